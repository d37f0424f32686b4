//! Wrappers around the stores that a host uses.

pub(crate) mod retry;
pub(crate) mod timeout;
