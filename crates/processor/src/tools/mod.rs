//! Tools around the processor that read and write its documents from outside: they need no running host.

pub(crate) mod control;
pub(crate) mod dead_letters;
pub(crate) mod estimator;
pub(crate) mod explain;
pub(crate) mod foreign_leases;
pub(crate) mod locate;
pub(crate) mod pull;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
