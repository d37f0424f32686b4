//! What users write: a delegate that gets batches of changes and says what became of them.

use std::{fmt, future::Future, marker::PhantomData, time::Duration};

use changefeed_core::{Change, Lsn, Operation, Timestamp};
use serde::de::DeserializeOwned;

use crate::{context::Context, raw::RawChanges, runtime::BoxFuture};

/// Why a delegate failed. Made from any error with `?`; [`At::at`] says which item is to blame.
pub struct DelegateError {
    message: String,
    chain: Vec<String>,
    item: Option<usize>,
    hopeless: bool,
}

impl DelegateError {
    /// A failure with a message of its own.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), chain: Vec::new(), item: None, hopeless: false }
    }

    /// Blames the item with this index: everything before it was done.
    #[must_use]
    pub fn at(mut self, item: usize) -> Self {
        self.item = Some(item);
        self
    }

    /// Marks a failure that trying again cannot mend, such as an item that does not parse.
    #[must_use]
    pub fn hopeless(mut self) -> Self {
        self.hopeless = true;
        self
    }

    /// The item to blame, if known.
    pub fn item(&self) -> Option<usize> {
        self.item
    }

    /// Whether trying again cannot help.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless
    }

    /// The message and its causes, outermost first.
    pub fn chain(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.message.as_str()).chain(self.chain.iter().map(String::as_str))
    }
}

impl fmt::Display for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chain().collect::<Vec<_>>().join(": "))
    }
}

impl<E: std::error::Error> From<E> for DelegateError {
    fn from(error: E) -> Self {
        let mut chain = Vec::new();
        let mut cause = error.source();
        while let Some(next) = cause {
            chain.push(next.to_string());
            cause = next.source();
        }
        Self { message: error.to_string(), chain, item: None, hopeless: false }
    }
}

/// Blaming an item: `send(order).await.map_err(|error| error.at(index))?`.
pub trait At {
    /// The error, with the index of the item to blame.
    fn at(self, item: usize) -> DelegateError;
}

impl<E: std::error::Error> At for E {
    fn at(self, item: usize) -> DelegateError {
        DelegateError::from(self).at(item)
    }
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was handled.
    Done,
    /// It was not meant to be handled.
    Skip,
    /// Try this item again, after a pause.
    Retry {
        /// How long to wait at least.
        after: Duration,
    },
    /// Put it into the dead-letter container, for this reason.
    DeadLetter {
        /// Why.
        reason: String,
    },
}

/// What became of a batch: everything done, or one outcome for each item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it was done.
    Done,
    /// One outcome for each item, in order.
    Each(Vec<Outcome>),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Vec<Outcome>> for Verdict {
    fn from(outcomes: Vec<Outcome>) -> Self {
        Self::Each(outcomes)
    }
}

/// The form that a delegate wants its changes in.
pub trait Input: Send + Sized + 'static {
    /// Builds it; on failure, the index of the first change that does not fit, and why.
    ///
    /// # Errors
    /// As said.
    fn parse(changes: &RawChanges) -> Result<Self, (usize, DelegateError)>;
}

/// Marks delegates of latest-version processors.
#[derive(Debug)]
pub struct Latest;

/// Marks delegates of all-versions processors.
#[derive(Debug)]
pub struct AllVersions;

/// An [`Input`] that fits a processor of mode `M`.
pub trait Fits<M>: Input {}

/// The items of a batch as values of the user's type.
#[derive(Debug)]
pub struct Changes<T> {
    items: Vec<T>,
}

impl<T> Changes<T> {
    /// How many.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none; a delegate never gets that.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }
}

impl<T> IntoIterator for Changes<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Changes<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<T: DeserializeOwned + Send + 'static> Input for Changes<T> {
    fn parse(changes: &RawChanges) -> Result<Self, (usize, DelegateError)> {
        let parse = |(index, change): (usize, &Change)| match change.parse::<T>() {
            Ok(Some(item)) => Ok(item),
            Ok(None) => Err((index, DelegateError::new("a delete has no item: use all_versions").hopeless())),
            Err(error) => Err((index, DelegateError::from(error).hopeless())),
        };
        let items = changes.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { items })
    }
}

impl<T: DeserializeOwned + Send + 'static> Fits<Latest> for Changes<T> {}

/// One version of an item, or its end.
#[derive(Debug)]
pub struct Version<T> {
    /// What happened.
    pub operation: Operation,
    /// The item after the change; none after a delete.
    pub current: Option<T>,
    /// The item before the change, where there was one.
    pub previous: Option<T>,
    /// The item's id.
    pub id: String,
    /// The position of the change.
    pub lsn: Lsn,
    /// When it was written.
    pub timestamp: Timestamp,
}

/// The versions of a batch, for all-versions processors.
#[derive(Debug)]
pub struct Versions<T> {
    versions: Vec<Version<T>>,
}

impl<T> Versions<T> {
    /// How many.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether there are none; a delegate never gets that.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, Version<T>> {
        self.versions.iter()
    }
}

impl<T> IntoIterator for Versions<T> {
    type Item = Version<T>;
    type IntoIter = std::vec::IntoIter<Version<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.versions.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Versions<T> {
    type Item = &'a Version<T>;
    type IntoIter = std::slice::Iter<'a, Version<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.versions.iter()
    }
}

impl<T: DeserializeOwned + Send + 'static> Input for Versions<T> {
    fn parse(changes: &RawChanges) -> Result<Self, (usize, DelegateError)> {
        let parse = |(index, change): (usize, &Change)| {
            let image = |body: &Option<changefeed_core::Bytes>| {
                let parsed = body.as_deref().map(serde_json::from_slice::<T>).transpose();
                parsed.map_err(|error| (index, DelegateError::from(error).hopeless()))
            };
            Ok(Version {
                operation: change.operation,
                current: image(&change.current)?,
                previous: image(&change.previous)?,
                id: change.id.to_string(),
                lsn: change.lsn,
                timestamp: change.timestamp,
            })
        };
        let versions = changes.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { versions })
    }
}

impl<T: DeserializeOwned + Send + 'static> Fits<AllVersions> for Versions<T> {}

impl Input for RawChanges {
    fn parse(changes: &RawChanges) -> Result<Self, (usize, DelegateError)> {
        Ok(changes.clone())
    }
}

impl Fits<Latest> for RawChanges {}
impl Fits<AllVersions> for RawChanges {}

/// A delegate, whatever form it wants its changes in.
pub(crate) trait Delegate: Send + Sync + 'static {
    /// How many of the first changes it can take, and if not all, what is wrong with the next.
    fn call(&self, changes: RawChanges, context: Context) -> BoxFuture<'static, Result<Verdict, DelegateError>>;
}

/// A closure as a delegate.
pub(crate) struct Closure<F, I>(pub(crate) F, pub(crate) PhantomData<fn() -> I>);

impl<F, I, Fut, V> Delegate for Closure<F, I>
where
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    I: Input,
    Fut: Future<Output = Result<V, DelegateError>> + Send + 'static,
    V: Into<Verdict>,
{
    fn call(&self, changes: RawChanges, context: Context) -> BoxFuture<'static, Result<Verdict, DelegateError>> {
        let (input, broken) = match I::parse(&changes) {
            Ok(input) => (input, None),
            Err((0, error)) => return Box::pin(std::future::ready(Err(error.at(0)))),
            Err((index, error)) => match I::parse(&changes.slice(0..index)) {
                Ok(input) => (input, Some(error.at(index))),
                Err((index, error)) => return Box::pin(std::future::ready(Err(error.at(index)))),
            },
        };
        let call = (self.0)(input, context);
        Box::pin(async move {
            let verdict = call.await?.into();
            match (broken, verdict) {
                (None, verdict) => Ok(verdict),
                (Some(error), Verdict::Done) => Err(error),
                (Some(error), Verdict::Each(mut outcomes)) => {
                    // The good ones have their verdicts; the one that does not parse is dead on arrival.
                    let good = error.item().unwrap_or_default();
                    outcomes.resize(good, Outcome::Retry { after: Duration::ZERO });
                    outcomes.push(Outcome::DeadLetter { reason: error.to_string() });
                    Ok(Verdict::Each(outcomes))
                }
            }
        })
    }
}
