//! Documents in the lease container: the dialect of the .NET SDK, version 3, byte for byte.
//!
//! Members that we do not know are kept. Our own state lives in `properties` only, under keys that begin with `cf.`:
//! a .NET host drops every other member at its next write.

mod error;
mod info;
mod iso;
mod keys;
mod lease;
mod lock;
mod members;
mod owner_kind;
mod properties;
mod read_properties;
mod search;
mod status;
mod summary;
#[cfg(test)]
mod tests;

pub use self::{
    error::{DocumentError, JavaDialect},
    info::{InfoDocument, StartPosition, StartPositions},
    lease::{LeaseDocument, LeaseVersion},
    lock::LockDocument,
    owner_kind::OwnerKind,
    properties::{Attempts, HandOver},
    search::Search,
    status::Status,
    summary::{LeaseSummary, SummaryRef},
};
pub(crate) use self::{properties::LONGEST_PROMISE, status::one_line};
