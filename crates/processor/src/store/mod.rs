//! Wrappers around the stores that a host uses.

pub(crate) mod charged;
pub(crate) mod presence;
pub(crate) mod reopened;
pub(crate) mod replacement;
pub(crate) mod retry;
pub(crate) mod timeout;
