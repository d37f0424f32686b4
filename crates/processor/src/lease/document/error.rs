//! Why a document of the lease container cannot be used.

use std::{error, fmt};

use changefeed_core::{Error, ErrorKind};

/// Why a document of the lease container cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentError {
    /// The body is not a JSON object.
    NotJson {
        /// Where and why.
        problem: String,
    },
    /// A member is missing or has a value that neither we nor a .NET host could use.
    BadField {
        /// Its name; for a property `properties.name`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A lease of a kind that did not exist when this was written. A .NET host would take it for version 0.
    UnknownVersion(i64),
    /// A lease that a later version of this library wrote.
    FutureVersion(u64),
    /// A lease of the Java SDK, whose positions mean nothing here.
    JavaDialect(JavaDialect),
}

/// The two kinds of leases that the Java SDK writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaDialect {
    /// One lease per physical range, `handleChanges`.
    PhysicalRanges,
    /// One lease per feed range, `handleLatestVersionChanges` and `handleAllVersionsAndDeletesChanges`.
    FeedRanges,
}

impl DocumentError {
    /// Returns `true` if a Java host wrote the document.
    pub fn is_java(&self) -> bool {
        matches!(self, Self::JavaDialect(_))
    }

    /// Returns `true` if a later version of this library wrote the document.
    pub fn is_future(&self) -> bool {
        matches!(self, Self::UnknownVersion(_) | Self::FutureVersion(_))
    }

    pub(super) fn bad_field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::BadField { field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { problem } => write!(f, "not a json object ({problem}): repair or delete the document"),
            Self::BadField { field, problem } => write!(f, "{field} {problem}: repair or delete the document"),
            Self::UnknownVersion(number) => write!(f, "lease version {number} is not known here: update this host"),
            Self::FutureVersion(version) => {
                write!(f, "properties of version {version} (cf.version) are not known here: update this host")
            }
            Self::JavaDialect(dialect) => {
                let method = match dialect {
                    JavaDialect::PhysicalRanges => "handleChanges",
                    JavaDialect::FeedRanges => "handleLatestVersionChanges or handleAllVersionsAndDeletesChanges",
                };
                write!(f, "lease of a java processor ({method}): give this processor a name of its own")
            }
        }
    }
}

impl error::Error for DocumentError {}

impl From<DocumentError> for Error {
    fn from(error: DocumentError) -> Self {
        let kind = match error {
            DocumentError::NotJson { .. } | DocumentError::BadField { .. } => ErrorKind::Corrupt,
            DocumentError::UnknownVersion(_) | DocumentError::FutureVersion(_) => ErrorKind::UnknownFormat,
            DocumentError::JavaDialect(_) => ErrorKind::InvalidArgument,
        };
        Self::new(kind, error.to_string())
    }
}
