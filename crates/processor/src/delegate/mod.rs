//! The user's delegate: receives batches of changes and returns a result for the batch or for each item.

mod checkpoints;
mod context;
mod error;
mod function;
mod info;
mod raw;
mod traceparent;

use std::{future::Future, marker::PhantomData, time::Duration};

use changefeed_core::{Bytes, Change, Lsn, Operation, Timestamp, parse_item};
use serde::de::DeserializeOwned;

pub(crate) use self::context::Inner as ContextInner;
#[cfg(test)]
pub(crate) use self::raw::tests::change;
pub(crate) use self::traceparent::traceparent;
pub use self::{
    checkpoints::{AutomaticCheckpoints, CheckpointMode, ManualCheckpoints, ManualContext},
    context::Context,
    error::{DelegateError, ErrorAt},
    function::{IntoDelegateError, delegate_fn},
    info::ChangeInfo,
    raw::RawChanges,
};
use crate::runtime::BoxFuture;

/// The result of one item.
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{Changes, Context, DelegateError, ItemResult};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// # async fn charge(total: f64) -> Result<(), &'static str> { Ok(()) }
/// async fn handle(orders: Changes<Order>, _ctx: Context) -> Result<Vec<ItemResult>, DelegateError> {
///     let mut results = Vec::new();
///     for order in &orders {
///         results.push(match charge(order.total).await {
///             Ok(()) => ItemResult::Done,
///             Err("busy") => ItemResult::Retry { after: Duration::from_secs(1) },
///             Err(reason) => ItemResult::DeadLetter { reason: reason.to_owned() },
///         });
///     }
///     Ok(results)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemResult {
    /// The item was handled.
    Done,
    /// The item needs no handling.
    Skip,
    /// Deliver this item again after a pause. Items of one batch that ask for a retry are delivered again together.
    Retry {
        /// The shortest pause.
        after: Duration,
    },
    /// Write the item to the dead-letter container.
    DeadLetter {
        /// The reason, stored with the dead letter.
        reason: String,
    },
}

/// The result of a batch: all items handled, or one result for each item.
///
/// A delegate that returns `Ok(())` or `Ok(vec_of_item_results)` need not name it. It helps if both happen:
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{BatchResult, Changes, Context, DelegateError, ItemResult};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// # async fn charge_all(orders: &Changes<Order>) -> Result<(), Vec<bool>> { Ok(()) }
/// async fn handle(orders: Changes<Order>, _ctx: Context) -> Result<BatchResult, DelegateError> {
///     let Err(charged) = charge_all(&orders).await else { return Ok(BatchResult::Done) };
///     let again = ItemResult::Retry { after: Duration::from_secs(1) };
///     Ok(BatchResult::Each(charged.iter().map(|done| if *done { ItemResult::Done } else { again.clone() }).collect()))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchResult {
    /// All items were handled.
    Done,
    /// One result for each item, in order. Items without a result are delivered again.
    Each(Vec<ItemResult>),
}

impl From<()> for BatchResult {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Vec<ItemResult>> for BatchResult {
    fn from(results: Vec<ItemResult>) -> Self {
        Self::Each(results)
    }
}

/// A value that a delegate may return in `Ok`: `()` if all items were handled, `Vec<ItemResult>` for a result for each item,
/// or a [`BatchResult`].
#[diagnostic::on_unimplemented(
    message = "a delegate cannot return `Ok` with `{Self}`",
    label = "is not the result of a batch",
    note = "a delegate returns `Ok(())` if all items were handled, or `Ok` with a `Vec<ItemResult>` or a `BatchResult`"
)]
pub trait IntoBatchResult {
    /// Converts the value.
    fn into_batch_result(self) -> BatchResult;
}

#[diagnostic::do_not_recommend]
impl<R: Into<BatchResult>> IntoBatchResult for R {
    fn into_batch_result(self) -> BatchResult {
        self.into()
    }
}

/// The form in which a delegate receives its changes.
#[diagnostic::on_unimplemented(
    message = "a delegate cannot receive `{Self}`",
    label = "not a form of changes",
    note = "the first parameter of a delegate is `Changes<T>` or, after `.all_versions()`, `Versions<T>`, where `T` \
            implements `serde::de::DeserializeOwned`, or `RawChanges`"
)]
pub trait Input: Send + Sized + 'static {
    /// Parses a batch.
    ///
    /// # Errors
    /// The index of the first change that does not parse, and the error.
    fn parse(changes: &RawChanges) -> Result<Self, (usize, DelegateError)>;
}

/// Marks a delegate of a latest-version processor.
#[derive(Debug)]
pub struct Latest;

/// Marks a delegate of an all-versions processor.
#[derive(Debug)]
pub struct AllVersions;

/// An [`Input`] that a processor of mode `M` can deliver.
#[diagnostic::on_unimplemented(
    message = "a processor of `{M}` versions cannot deliver `{Self}`",
    label = "does not fit the mode of the processor",
    note = "a delegate takes `Changes<T>`, or `Versions<T>` after `.all_versions()`, or `RawChanges`; `T` must implement \
            `serde::de::DeserializeOwned`"
)]
pub trait AcceptsMode<M>: Input {}

/// The items of a batch as values of the user's type.
///
/// The store's system members (`_rid`, `_self`, `_etag`, `_attachments`, `_ts`, `_lsn`) are left out, so that
/// `deny_unknown_fields` works; a struct that names one of them as a field gets it. [`Changes::with_info`] has what the
/// store knows about each item.
///
/// ```
/// use changefeed::{Changes, Context, DelegateError};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Order {
///     id: String,
///     customer: String,
///     total: f64,
/// }
///
/// async fn handle(orders: Changes<Order>, _ctx: Context) -> Result<(), DelegateError> {
///     for (order, info) in orders.with_info() {
///         println!("{} of {} over {} at LSN {}", order.id, order.customer, order.total, info.lsn());
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Changes<T> {
    items: Vec<T>,
    raw: RawChanges,
}

impl<T> Changes<T> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns `true` if the batch is empty; a delegate never receives an empty batch.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Iterates in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Iterates in order, with id, partition key, LSN, etag, time and [`ChangeInfo::change_id`] of each item.
    pub fn with_info(&self) -> impl ExactSizeIterator<Item = (&T, ChangeInfo<'_>)> {
        self.items.iter().zip(self.raw.infos())
    }

    /// Returns the changes as the store returned them.
    pub fn raw(&self) -> &RawChanges {
        &self.raw
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
            Ok(None) => Err((index, DelegateError::new("a delete has no item: use all_versions").permanent())),
            Err(error) => Err((index, DelegateError::from(error).permanent())),
        };
        // The length is not known to an iterator that may end with an error.
        let mut items = Vec::with_capacity(changes.len());
        for change in changes.iter().enumerate() {
            items.push(parse(change)?);
        }
        Ok(Self { items, raw: changes.clone() })
    }
}

impl<T: DeserializeOwned + Send + 'static> AcceptsMode<Latest> for Changes<T> {}

/// One version of an item, or its delete.
#[derive(Debug)]
#[non_exhaustive]
pub struct Version<T> {
    /// The operation.
    pub operation: Operation,
    /// The item after the change; `None` after a delete.
    pub current: Option<T>,
    /// The item before the change, where there was one.
    pub previous: Option<T>,
    /// The item's id.
    pub id: String,
    /// The LSN of the change.
    pub lsn: Lsn,
    /// When it was written.
    pub timestamp: Timestamp,
}

/// The versions of a batch, for all-versions processors. System members are left out, as in [`Changes`].
///
/// ```
/// use changefeed::{Context, DelegateError, Versions, core::Operation};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// async fn audit(versions: Versions<Order>, _ctx: Context) -> Result<(), DelegateError> {
///     for version in &versions {
///         match (version.operation, &version.previous) {
///             (Operation::Delete, Some(order)) => println!("{} over {} is gone", version.id, order.total),
///             (operation, _) => println!("{} {operation:?} at {}", version.id, version.lsn),
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Versions<T> {
    versions: Vec<Version<T>>,
    raw: RawChanges,
}

impl<T> Versions<T> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Returns `true` if the batch is empty; a delegate never receives an empty batch.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Iterates in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Version<T>> {
        self.versions.iter()
    }

    /// Iterates in order, with partition key, etag and [`ChangeInfo::change_id`] of each version.
    pub fn with_info(&self) -> impl ExactSizeIterator<Item = (&Version<T>, ChangeInfo<'_>)> {
        self.versions.iter().zip(self.raw.infos())
    }

    /// Returns the changes as the store returned them.
    pub fn raw(&self) -> &RawChanges {
        &self.raw
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
            let image = |body: &Option<Bytes>| {
                let parsed = body.as_deref().map(parse_item::<T>).transpose();
                parsed.map_err(|error| (index, DelegateError::from(error).permanent()))
            };
            Ok(Version {
                operation: change.operation,
                current: image(&change.current)?,
                previous: image(&change.previous)?,
                id: change.id.as_str().to_owned(),
                lsn: change.lsn,
                timestamp: change.timestamp,
            })
        };
        let versions = changes.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { versions, raw: changes.clone() })
    }
}

impl<T: DeserializeOwned + Send + 'static> AcceptsMode<AllVersions> for Versions<T> {}

impl Input for RawChanges {
    fn parse(changes: &RawChanges) -> Result<Self, (usize, DelegateError)> {
        Ok(changes.clone())
    }
}

impl AcceptsMode<Latest> for RawChanges {}
impl AcceptsMode<AllVersions> for RawChanges {}

/// What the user's code returned, and the change after the batch that does not parse.
#[derive(Debug)]
pub(crate) struct Returned {
    /// The result for the changes that parsed.
    pub(crate) result: BatchResult,
    /// The error of the first change that does not parse: its index is the length of the batch that was delivered.
    pub(crate) unparsed: Option<DelegateError>,
}

/// A delegate of any input type.
pub(crate) trait Delegate: Send + Sync + 'static {
    /// Parses the changes and calls the user's code with those before the first that does not parse.
    fn call(&self, changes: RawChanges, context: Context) -> BoxFuture<'static, Result<Returned, DelegateError>>;
}

/// A closure as a delegate.
pub(crate) struct Closure<F, I, C>(pub(crate) F, pub(crate) PhantomData<fn() -> (I, C)>);

impl<F, I, C, Fut, R> Delegate for Closure<F, I, C>
where
    F: Fn(I, C::Context) -> Fut + Send + Sync + 'static,
    I: Input,
    C: CheckpointMode,
    Fut: Future<Output = Result<R, DelegateError>> + Send + 'static,
    R: IntoBatchResult,
{
    fn call(&self, changes: RawChanges, context: Context) -> BoxFuture<'static, Result<Returned, DelegateError>> {
        let (input, unparsed) = match I::parse(&changes) {
            Ok(input) => (input, None),
            Err((0, error)) => return Box::pin(std::future::ready(Err(error.at(0)))),
            Err((index, error)) => match I::parse(&changes.slice(0..index)) {
                Ok(input) => (input, Some(error.at(index))),
                Err((index, error)) => return Box::pin(std::future::ready(Err(error.at(index)))),
            },
        };
        let context = match unparsed.as_ref().and_then(DelegateError::item) {
            None => context,
            // A checkpoint would pass the change that does not parse, and everything after it.
            Some(at) => crate::planted!(CheckpointPassesUnparsed => context; context.limited_to(&changes.slice(0..at))),
        };
        let call = (self.0)(input, C::context(context, checkpoints::sealed::Token(())));
        Box::pin(async move { Ok(Returned { result: call.await?.into_batch_result(), unparsed }) })
    }
}
