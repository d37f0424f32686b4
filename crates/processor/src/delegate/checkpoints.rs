//! Automatic and manual checkpoints as types, so that only a delegate with manual checkpoints can store progress.

use std::{fmt, ops::Deref};

use changefeed_core::{Error, ErrorKind, Result};

use super::context::Context;

/// Marks a processor that stores progress itself: its delegate gets a [`Context`].
#[derive(Debug)]
pub struct AutomaticCheckpoints;

/// Marks a processor whose delegate stores progress: it gets a [`ManualContext`].
#[derive(Debug)]
pub struct ManualCheckpoints;

/// Who stores progress: [`AutomaticCheckpoints`] or [`ManualCheckpoints`]. Not for implementation elsewhere.
pub trait CheckpointMode: Send + Sync + 'static {
    /// What a delegate gets beside its changes.
    type Context: Send + 'static;

    /// Turns the context of a call into the one that its delegate gets.
    #[doc(hidden)]
    fn context(context: Context, _: sealed::Token) -> Self::Context;
}

pub(super) mod sealed {
    /// Nobody outside of this crate has one.
    #[derive(Debug)]
    pub struct Token(pub(crate) ());
}

impl CheckpointMode for AutomaticCheckpoints {
    type Context = Context;

    fn context(context: Context, _: sealed::Token) -> Context {
        context
    }
}

impl CheckpointMode for ManualCheckpoints {
    type Context = ManualContext;

    fn context(context: Context, _: sealed::Token) -> ManualContext {
        ManualContext(context)
    }
}

/// The context of one delegate call of a processor with manual checkpoints, see
/// [`ProcessorBuilder::manual_checkpoints`](crate::ProcessorBuilder::manual_checkpoints): a [`Context`] that can store
/// progress. Cheap to clone; it can be kept, to checkpoint after the call.
///
/// ```
/// use changefeed::{Changes, DelegateError, ManualContext};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// # async fn ship(order: &Order) {}
/// async fn handle(orders: Changes<Order>, ctx: ManualContext) -> Result<(), DelegateError> {
///     for order in &orders {
///         ship(order).await;
///     }
///     println!("lease {} is handled up to {}", ctx.lease(), ctx.last_lsn());
///     ctx.checkpoint().await?; // this batch and everything before it will not come again
///     Ok(())
/// }
/// ```
///
/// Where progress is stored automatically, there is no `checkpoint`:
///
/// ```compile_fail,E0599
/// # use changefeed::{Changes, Context, DelegateError};
/// async fn handle(orders: Changes<serde_json::Value>, ctx: Context) -> Result<(), DelegateError> {
///     ctx.checkpoint().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct ManualContext(Context);

impl ManualContext {
    /// Stores that this batch and everything before it was handled. A call for an earlier batch after a later one does
    /// nothing. Of a page that was cut into several batches, because items in it failed or do not parse, only the last
    /// batch stores anything.
    ///
    /// # Errors
    /// `PreconditionFailed` if the lease is no longer owned: another host delivers the batch again.
    pub async fn checkpoint(&self) -> Result<()> {
        let Some(progress) = self.0.progress.clone() else { return Ok(()) };
        self.0.inner.commands.checkpoint(progress).await.map_err(|loss| {
            Error::new(ErrorKind::PreconditionFailed, format!("checkpoint lease {}: {loss}", self.0.inner.lease))
        })
    }
}

impl Deref for ManualContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.0
    }
}

impl fmt::Debug for ManualContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
