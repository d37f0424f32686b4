//! Errors of delegates.

use std::{error::Error as StdError, fmt};

/// Any error that a delegate may fail with.
type Source = Box<dyn StdError + Send + Sync>;

/// Why a delegate failed.
///
/// `?` creates one from any error: of the standard library, boxed, a text, or `anyhow::Error`. The error is kept, see
/// [`DelegateError::source`] and [`DelegateError::downcast_ref`]. [`ErrorAt::at`] names the failed item.
///
/// ```
/// use changefeed::{Changes, Context, DelegateError, ErrorAt};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: String }
/// # fn charge(total: f64) -> anyhow::Result<()> { Ok(()) }
/// async fn handle(orders: Changes<Order>, _ctx: Context) -> Result<(), DelegateError> {
///     for (index, order) in orders.iter().enumerate() {
///         let total = order.total.parse::<f64>().map_err(|error| error.at(index).permanent())?;
///         charge(total)?; // an anyhow::Result
///     }
///     Ok(())
/// }
/// ```
///
/// It does not implement [`std::error::Error`] itself, as `anyhow::Error` does not: that is what makes `?` work on every
/// error.
pub struct DelegateError {
    source: Source,
    item: Option<usize>,
    permanent: bool,
}

impl DelegateError {
    /// Creates an error from a message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { source: message.into().into(), item: None, permanent: false }
    }

    /// Names the item that failed by its index in the batch; all items before it succeeded.
    #[must_use]
    pub fn at(mut self, item: usize) -> Self {
        self.item = Some(item);
        self
    }

    /// Marks a failure that a retry cannot fix, such as an item that does not parse: with a dead-letter container the
    /// item is not retried. It still counts towards outage detection, see [`DeadLetter`](crate::DeadLetter).
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// Returns the index of the failed item, if known.
    pub fn item(&self) -> Option<usize> {
        self.item
    }

    /// Returns `true` if a retry cannot help.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Returns the error that the delegate failed with.
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// Returns the error that the delegate failed with, or the first of its causes, that has the type `E`.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.causes().find_map(<dyn StdError>::downcast_ref)
    }

    /// Returns the message and its causes, outermost first.
    pub fn chain(&self) -> impl Iterator<Item = String> {
        self.causes().map(ToString::to_string)
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let outermost: &(dyn StdError + 'static) = &*self.source;
        std::iter::successors(Some(outermost), |error| (*error).source())
    }
}

impl fmt::Display for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

impl fmt::Debug for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chain().collect::<Vec<_>>().join(": "))
    }
}

impl<E: Into<Source> + Send + Sync + 'static> From<E> for DelegateError {
    fn from(error: E) -> Self {
        Self { source: keep(error), item: None, permanent: false }
    }
}

/// Boxes an error so that its type can be found again.
#[cfg(feature = "anyhow")]
fn keep<E: Into<Source> + Send + Sync + 'static>(error: E) -> Source {
    let mut error = Some(error);
    let any: &mut dyn std::any::Any = &mut error;
    match any.downcast_mut::<Option<anyhow::Error>>().and_then(Option::take) {
        // The conversion of anyhow hides the type of the error that it wraps.
        Some(error) => error.reallocate_into_boxed_dyn_error_without_backtrace(),
        None => error.map_or_else(|| Source::from("no error"), Into::into),
    }
}

/// Boxes an error.
#[cfg(not(feature = "anyhow"))]
fn keep<E: Into<Source> + Send + Sync + 'static>(error: E) -> Source {
    error.into()
}

/// Names the failed item: `send(order).await.map_err(|error| error.at(index))?`.
pub trait ErrorAt {
    /// Returns the error with the index of the failed item.
    fn at(self, item: usize) -> DelegateError;
}

impl<E: Into<Source> + Send + Sync + 'static> ErrorAt for E {
    fn at(self, item: usize) -> DelegateError {
        DelegateError::from(self).at(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Refused(u32);

    impl fmt::Display for Refused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "refused with {}", self.0)
        }
    }

    impl StdError for Refused {}

    fn chain(error: &DelegateError) -> Vec<String> {
        error.chain().collect()
    }

    #[test]
    fn errors_texts_and_boxes_convert_and_can_be_found_again() {
        let plain = DelegateError::from(Refused(402));
        assert_eq!(plain.downcast_ref(), Some(&Refused(402)));
        let boxed = DelegateError::from(Box::<dyn StdError + Send + Sync>::from(Refused(403)));
        assert_eq!(boxed.downcast_ref(), Some(&Refused(403)));
        assert_eq!(chain(&DelegateError::from("no answer")), ["no answer"]);
        assert_eq!(chain(&DelegateError::from(format!("no {}", "answer"))), ["no answer"]);
        assert!(plain.downcast_ref::<fmt::Error>().is_none());
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn an_anyhow_error_keeps_its_causes_with_and_without_context() {
        let plain = DelegateError::from(anyhow::Error::new(Refused(1)));
        assert_eq!((plain.downcast_ref(), chain(&plain)), (Some(&Refused(1)), vec!["refused with 1".to_owned()]));
        let error = anyhow::Error::new(Refused(2)).context("charge the card").context("handle order 7");
        let wrapped = error.at(3);
        assert_eq!(chain(&wrapped), ["handle order 7", "charge the card", "refused with 2"]);
        assert_eq!((wrapped.downcast_ref(), wrapped.item()), (Some(&Refused(2)), Some(3)));
        assert_eq!(
            format!("{wrapped} / {wrapped:?}"),
            "handle order 7 / handle order 7: charge the card: refused with 2"
        );
    }
}
