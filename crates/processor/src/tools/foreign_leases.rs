//! Leases of other implementations in our own form: those of the change feed processor library for .NET (version 2) and
//! both kinds that the Java SDK writes. Also leases of this library under another name of the processor.

mod apply;
mod java;
mod plan;
mod source;

pub use self::{
    apply::{AppliedLease, ImportOutcome},
    plan::{ConvertedLease, ImportPlan, plan_import},
    source::LeaseDialect,
};
