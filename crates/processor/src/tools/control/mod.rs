//! Operator commands: seek, reset, pause, resume, release, export and import, with dry runs where they move anything.

mod archive;
mod handle;
mod import;
mod liveness;
mod release;
mod reset;
mod rewind;
mod scope;
mod seek;
mod update;

pub use self::{
    archive::{ArchivedContainer, LeaseArchive},
    handle::Control,
    import::{Import, ImportAction, ImportedLease, adopt_store},
    release::{LeaseRelease, ReleaseOutcome, ReleasedLease},
    reset::Reset,
    scope::Scope,
    seek::{Moved, Position, Seek, SeekTo},
};
