//! The one error type. `kind` names the caller's remedy, `effect` says whether a write may have landed.

use std::{error::Error as StdError, fmt, time::Duration};

/// Shorthand for results of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, sorted by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No item with this id under this partition key.
    ItemNotFound,
    /// The container does not exist (any more): create it, or check its name.
    ContainerNotFound,
    /// The database does not exist: create it, or check its name.
    DatabaseNotFound,
    /// Something with this id exists already.
    AlreadyExists,
    /// The etag that was asked for is not the current one: read again, decide again.
    PreconditionFailed,
    /// The item has no `id`, or its `id` is not a string.
    MissingId,
    /// The id is empty, longer than 1,023 bytes, or contains one of `/ \ #`; or it is no name of a database or container.
    BadId,
    /// The body of an item is JSON, but not an object.
    NotAnObject,
    /// The body of an item is not valid JSON.
    BadJson,
    /// The body of an item is not valid UTF-8.
    NotUtf8,
    /// The item is larger than 2 MiB.
    TooLarge,
    /// The partition key is missing, has the wrong number of parts, or differs from the one in the item.
    WrongPartitionKey,
    /// The text is not an etag.
    BadETag,
    /// A batch is empty, too long or names several partition keys.
    BadBatch,
    /// A feed range or one of its bounds is empty, inverted or not hexadecimal.
    BadRange,
    /// No physical range with this id has ever existed in the container.
    RangeNotFound,
    /// The physical range was split or merged: read the feed ranges again and go on with its successors.
    RangeGone,
    /// The text is not a continuation.
    BadContinuation,
    /// The continuation belongs to another container.
    ForeignContinuation,
    /// The continuation lies after the newest change of the container.
    ContinuationBeyondEnd,
    /// All-versions mode: changes after this continuation have already left the retention period.
    ContinuationExpired,
    /// Options or arguments that make no sense; the message names the fix.
    InvalidArgument,
    /// The store cannot do this, and trying again will not help.
    Unsupported,
    /// Too many requests: wait for [`Error::retry_after`], then try again.
    Throttled,
    /// The store did not answer in time.
    Timeout,
    /// The store cannot be reached at the moment: try again with back-off.
    Unavailable,
    /// The credentials do not allow this.
    Forbidden,
    /// The store's folder is in use by another process.
    Locked,
    /// The store's folder was written by another version of the format.
    UnknownFormat,
    /// Stored bytes are damaged; nothing was changed.
    Corrupt,
    /// The operating system refused to read or write.
    Io,
    /// The store was closed, or stopped itself after a failed sync: open it again.
    Closed,
}

impl ErrorKind {
    /// Returns `true` if waiting and trying the same thing again can help.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Throttled | Self::Timeout | Self::Unavailable)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Whether the operation that failed may nevertheless have taken place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Nothing was changed.
    #[default]
    None,
    /// The write may have landed: read before trying again.
    Unknown,
}

/// An error: kind, effect, a message that says what and which, and its cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    effect: Effect,
    message: String,
    operation: Option<usize>,
    request_charge: f64,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error without effect and without cause. Messages are lower case, without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect: Effect::None,
            message: message.into(),
            operation: None,
            request_charge: 0.0,
            retry_after: None,
            source: None,
        }))
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Marks the write as one that may have landed.
    #[must_use]
    pub fn with_unknown_effect(mut self) -> Self {
        self.0.effect = Effect::Unknown;
        self
    }

    /// Names the operation of a batch that failed, counted from zero.
    #[must_use]
    pub fn with_operation(mut self, index: usize) -> Self {
        self.0.operation = Some(index);
        self
    }

    /// Sets the cost of the failed call, in request units.
    #[must_use]
    pub fn with_request_charge(mut self, request_charge: f64) -> Self {
        self.0.request_charge = request_charge;
        self
    }

    /// Sets how long the store asks callers to wait before they try again.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Duration) -> Self {
        self.0.retry_after = Some(retry_after);
        self
    }

    /// Returns the kind, which names the remedy.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether a write may have landed.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Returns the message: what failed and which, without the cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the operation of a batch that failed, counted from zero.
    pub fn operation(&self) -> Option<usize> {
        self.0.operation
    }

    /// Returns the cost of the failed call, in request units. Zero where the store does not charge.
    pub fn request_charge(&self) -> f64 {
        self.0.request_charge
    }

    /// Returns how long the store asks callers to wait before they try again: known for some [`ErrorKind::Throttled`]
    /// and [`ErrorKind::Unavailable`].
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        if let Some(index) = self.0.operation {
            write!(f, " (operation {index})")?;
        }
        if self.0.effect == Effect::Unknown {
            f.write_str(" (the write may have landed)")?;
        }
        if let Some(wait) = self.0.retry_after {
            write!(f, " (retry after {wait:?})")?;
        }
        if self.0.request_charge != 0.0 {
            write!(f, " ({} RU)", self.0.request_charge)?;
        }
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_what_happened_and_keeps_its_cause() {
        let error = Error::new(ErrorKind::Io, "write segment 3")
            .with_source(std::io::Error::other("disk full"))
            .with_unknown_effect()
            .with_operation(2);
        assert_eq!(error.to_string(), "write segment 3");
        assert_eq!(error.effect(), Effect::Unknown);
        assert_eq!(error.operation(), Some(2));
        assert_eq!(format!("{error:?}"), "Io: write segment 3 (operation 2) (the write may have landed): disk full");
        assert_eq!((error.request_charge(), error.retry_after()), (0.0, None));
    }

    #[test]
    fn a_throttled_error_shows_its_charge_and_how_long_to_wait() {
        let error = Error::new(ErrorKind::Throttled, "read page")
            .with_retry_after(Duration::from_millis(250))
            .with_request_charge(0.38);
        assert_eq!((error.request_charge(), error.retry_after()), (0.38, Some(Duration::from_millis(250))));
        assert_eq!(format!("{error:?}"), "Throttled: read page (retry after 250ms) (0.38 RU)");
    }
}
