//! Leases of other implementations in our own form: those of the change feed processor library for .NET (version 2) and
//! both kinds that the Java SDK writes.

mod apply;
mod java;
mod plan;

pub use self::{
    apply::{AppliedLease, ImportOutcome},
    plan::{ConvertedLease, ImportPlan, LeaseDialect, plan_import},
};
