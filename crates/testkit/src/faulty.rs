//! A store that injects faults. It has no clock and no randomness: the caller's plan decides each call.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind, FeedRange,
    Item, ItemKey, ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult,
};

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`Backend::feed_ranges`].
    FeedRanges,
    /// [`Backend::read_changes`].
    ReadChanges(&'a ReadChanges),
    /// [`Backend::changed`].
    Changed(&'a FeedRange, &'a Continuation),
    /// [`Backend::read_item`].
    ReadItem(&'a ItemKey),
    /// [`Backend::write`].
    Write(&'a Batch),
    /// [`Backend::list_items`].
    ListItems(&'a ListItems),
    /// [`Backend::time_to_live`].
    TimeToLive,
}

impl Call<'_> {
    /// Whether it changes the store.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::FeedRanges => "feed_ranges",
            Self::ReadChanges(_) => "read_changes",
            Self::Changed(..) => "changed",
            Self::ReadItem(_) => "read_item",
            Self::Write(_) => "write",
            Self::ListItems(_) => "list_items",
            Self::TimeToLive => "time_to_live",
        }
    }
}

/// What happens to a call. [`Backend::changed`] cannot report errors: where others fail, it returns early, without news.
pub enum Fault {
    /// The call goes through.
    None,
    /// Nothing is done and this error is reported, with no effect.
    Error(ErrorKind),
    /// Nothing is done: too many requests. The error names neither a wait nor a charge.
    Throttled,
    /// Nothing is done: too many requests, with what the store tells about it.
    ThrottledFor {
        /// How long the store asks the caller to wait.
        retry_after: Duration,
        /// What the refused request costs, in request units.
        request_charge: f64,
    },
    /// Nothing is done, and the store panics in the caller's task.
    Panic,
    /// The call is made, and the store panics in the caller's task.
    DidItThenPanicked,
    /// The call goes through once this future is over. The caller makes it, from whatever clock the test runs on.
    Latency(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// The call is made, and a timeout is reported: with unknown effect if it was a write.
    DidItThenFailed,
    /// Nothing is done, and the same timeout is reported: the caller cannot tell it from `DidItThenFailed`.
    FailedWithoutDoingIt,
    /// Nothing is done and nothing is ever reported.
    NeverReturns,
    /// The call is made and nothing is ever reported.
    DidItThenNeverReturned,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Error(kind) => write!(f, "Error({kind})"),
            Self::Throttled => f.write_str("Throttled"),
            Self::ThrottledFor { retry_after, request_charge } => {
                write!(f, "ThrottledFor({retry_after:?}, {request_charge} RU)")
            }
            Self::Panic => f.write_str("Panic"),
            Self::DidItThenPanicked => f.write_str("DidItThenPanicked"),
            Self::Latency(_) => f.write_str("Latency"),
            Self::DidItThenFailed => f.write_str("DidItThenFailed"),
            Self::FailedWithoutDoingIt => f.write_str("FailedWithoutDoingIt"),
            Self::NeverReturns => f.write_str("NeverReturns"),
            Self::DidItThenNeverReturned => f.write_str("DidItThenNeverReturned"),
        }
    }
}

/// Decides what happens to each call. Every `Fn(&Call<'_>) -> Fault` is one.
pub trait FaultPlan: Send + Sync + 'static {
    /// What happens to `call`. Asked exactly once for each, before it is made.
    fn fault(&self, call: &Call<'_>) -> Fault;
}

impl<F: Fn(&Call<'_>) -> Fault + Send + Sync + 'static> FaultPlan for F {
    fn fault(&self, call: &Call<'_>) -> Fault {
        self(call)
    }
}

/// A plan that hits the next calls in the order given and lets all later ones through.
#[derive(Debug, Default)]
pub struct Script(Mutex<VecDeque<Fault>>);

impl Script {
    /// A plan of these faults, one for each call.
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self(Mutex::new(faults.into_iter().collect()))
    }

    /// Adds a fault behind the others.
    pub fn push(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }
}

impl FaultPlan for Script {
    fn fault(&self, _: &Call<'_>) -> Fault {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or(Fault::None)
    }
}

impl FaultPlan for Arc<Script> {
    fn fault(&self, call: &Call<'_>) -> Fault {
        self.as_ref().fault(call)
    }
}

/// A store that behaves like the one it wraps, except where the plan says otherwise.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    plan: Box<dyn FaultPlan>,
}

impl Faulty {
    /// Wraps `inner`; `plan` decides each call.
    pub fn new(inner: Arc<dyn Backend>, plan: impl FaultPlan) -> Self {
        Self { inner, plan: Box::new(plan) }
    }

    async fn run<T: Send>(&self, call: Call<'_>, doing: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match self.plan.fault(&call) {
            Fault::None => doing.await,
            Fault::Error(kind) => Err(injected(kind, &call)),
            Fault::Throttled => Err(injected(ErrorKind::Throttled, &call)),
            Fault::ThrottledFor { retry_after, request_charge } => {
                let error = injected(ErrorKind::Throttled, &call);
                Err(error.with_retry_after(retry_after).with_request_charge(request_charge))
            }
            Fault::Panic => panic!("injected into {}", call.name()),
            Fault::DidItThenPanicked => {
                let _ = doing.await;
                panic!("injected into {}, which was done", call.name())
            }
            Fault::Latency(wait) => {
                wait.await;
                doing.await
            }
            Fault::DidItThenFailed => doing.await.and_then(|_| Err(timeout(&call))),
            Fault::FailedWithoutDoingIt => Err(timeout(&call)),
            Fault::NeverReturns => std::future::pending().await,
            Fault::DidItThenNeverReturned => {
                let _ = doing.await;
                std::future::pending().await
            }
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.inner)
    }
}

#[async_trait]
impl Backend for Faulty {
    fn identity(&self) -> &ContainerIdentity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.run(Call::FeedRanges, self.inner.feed_ranges()).await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.run(Call::ReadChanges(&request), self.inner.read_changes(request.clone())).await
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        let waiting = async {
            self.inner.changed(range, continuation).await;
            Ok(())
        };
        // An error means "may be changed": waking for nothing is what the contract allows.
        let _ = self.run(Call::Changed(range, continuation), waiting).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.run(Call::ReadItem(key), self.inner.read_item(key)).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.run(Call::Write(&batch), self.inner.write(batch.clone())).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.run(Call::ListItems(&request), self.inner.list_items(request.clone())).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        self.run(Call::TimeToLive, self.inner.time_to_live()).await
    }

    /// The faults are those of the container that was given: the new one has none.
    async fn reopen(&self) -> Result<Container> {
        self.inner.reopen().await
    }
}

fn injected(kind: ErrorKind, call: &Call<'_>) -> Error {
    Error::new(kind, format!("injected into {}", call.name()))
}

fn timeout(call: &Call<'_>) -> Error {
    let error = injected(ErrorKind::Timeout, call);
    if call.is_write() { error.with_unknown_effect() } else { error }
}

#[cfg(test)]
mod tests;
