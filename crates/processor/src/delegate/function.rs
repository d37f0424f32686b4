//! Delegates whose functions return an error type of their own.

use std::{future::Future, pin::Pin};

use super::error::DelegateError;

/// Makes a delegate of a function that returns another error than [`DelegateError`], such as `anyhow::Result<()>`:
/// `build(delegate_fn(handle))`. The error is kept for [`DelegateError::downcast_ref`].
///
/// A closure needs it only for `anyhow::bail!` and `anyhow::ensure!`. If it has neither, the compiler asks for its error
/// type: leave out `delegate_fn`, or end the closure with `anyhow::Ok(())`.
///
/// ```
/// use changefeed::{Changes, Context, Processor, core::Container, delegate_fn};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// async fn handle(orders: Changes<Order>, _ctx: Context) -> anyhow::Result<()> {
///     for order in &orders {
///         anyhow::ensure!(order.total >= 0.0, "a negative total");
///     }
///     Ok(())
/// }
///
/// # fn build(orders: &Container, leases: &Container) -> changefeed::core::Result<()> {
/// let mailer = Processor::builder("mailer", orders, leases).build(delegate_fn(handle))?;
/// let printer = Processor::builder("printer", orders, leases).build(delegate_fn(
///     |orders: Changes<Order>, _ctx: Context| async move {
///         if orders.len() > 1_000_000 {
///             anyhow::bail!("too many orders");
///         }
///         Ok(())
///     },
/// ))?;
/// # Ok(())
/// # }
/// ```
pub fn delegate_fn<F, I, X, Fut, R, E>(
    function: F,
) -> impl Fn(I, X) -> Pin<Box<dyn Future<Output = Result<R, DelegateError>> + Send>> + Send + Sync + 'static
where
    F: Fn(I, X) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    E: IntoDelegateError + 'static,
    R: 'static,
    I: 'static,
    X: 'static,
{
    move |changes, context| {
        let call = function(changes, context);
        Box::pin(async move { call.await.map_err(IntoDelegateError::into_delegate_error) })
    }
}

/// An error that a function for [`delegate_fn`] may return: each one that implements [`std::error::Error`], `Send` and
/// `Sync`, boxes of such errors, texts, `anyhow::Error`, and [`DelegateError`] itself.
#[diagnostic::on_unimplemented(
    message = "a delegate cannot fail with `{Self}`",
    label = "returns an error that does not convert to `DelegateError`",
    note = "the error of a delegate implements `std::error::Error + Send + Sync + 'static`, or is a text, an \
            `anyhow::Error`, a `Box<dyn std::error::Error + Send + Sync>` or a `changefeed::DelegateError`"
)]
pub trait IntoDelegateError {
    /// Converts the error, and keeps it as the source.
    fn into_delegate_error(self) -> DelegateError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<DelegateError>> IntoDelegateError for E {
    fn into_delegate_error(self) -> DelegateError {
        self.into()
    }
}
