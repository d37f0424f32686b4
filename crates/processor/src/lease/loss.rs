//! Why this host no longer owns a lease.

use std::fmt;

/// Why this host lost ownership of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Another instance, or another process with this host's name, owns it; or no host, after an operator's seek.
    Taken {
        /// Its owner now, if any.
        by: Option<String>,
    },
    /// The document was deleted.
    Deleted,
    /// Its document cannot be read any more.
    Unreadable,
    /// Another document with the same token counts: it has a higher epoch, or an earlier position.
    Superseded,
    /// It could not be renewed in time.
    Expired,
    /// It was given up: a delegate call did not return within its timeout and blocks its thread.
    Blocked,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { by: Some(owner) } => write!(f, "taken by {owner}"),
            Self::Taken { by: None } => f.write_str("released by an operator"),
            Self::Deleted => f.write_str("its document was deleted"),
            Self::Superseded => f.write_str("another document with the same token counts"),
            Self::Unreadable => f.write_str("its document cannot be read any more"),
            Self::Expired => f.write_str("it could not be renewed in time"),
            Self::Blocked => f.write_str("a delegate call blocks its thread"),
        }
    }
}
