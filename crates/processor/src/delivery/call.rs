//! One call of the delegate, in a task of its own: it may panic, block its thread or never return.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context as PollContext, Poll},
};

use changefeed_core::{Change, FeedRange};
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};
use tracing::Instrument;

use super::{Call, trace};
use crate::{
    delegate::{BatchResult, Context, ContextInner, DelegateError, RawChanges, Returned},
    lease::{
        events::CallEnd,
        host_context::HostContext,
        prefix::LeaseToken,
        signals::{CommandSender, Progress},
    },
    limits::page_memory::PageRoom,
    notification::FailedBatch,
};

/// What a call needs to know.
pub(crate) struct CallRequest<'a> {
    pub(crate) lease: &'a LeaseToken,
    pub(crate) range: &'a FeedRange,
    pub(crate) epoch: u64,
    pub(crate) page: RawChanges,
    pub(crate) request_charge: f64,
    pub(crate) call: Call,
    /// What a checkpoint stores; `None` if the page goes on after this call.
    pub(crate) progress: Option<Progress>,
    /// Whether the call has all of the page.
    pub(crate) whole: bool,
    pub(crate) commands: &'a CommandSender,
    /// Held until the call has ended, whether anybody still waits for it or not; so is `room`.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The memory of the page.
    pub(crate) room: Option<Arc<PageRoom>>,
}

/// How a call ended, with its page unless all of it was handled.
#[derive(Debug)]
pub(crate) struct CallReturn {
    pub(crate) end: CallEnd,
    pub(crate) page: Option<RawChanges>,
}

type Answer = Result<Returned, DelegateError>;

/// A call that is running. Dropping it aborts the call; `Context::cancelled` fires then.
pub(crate) struct RunningCall {
    answer: oneshot::Receiver<Answer>,
    page: oneshot::Receiver<RawChanges>,
    task: AbortOnDropHandle<()>,
    cancelled: CancellationToken,
    /// Fires the token if the lease task is dropped.
    guard: Option<DropGuard>,
}

impl RunningCall {
    /// Begins a call. Also returns what a report of its failure says about it.
    pub(crate) fn start(host: &HostContext, request: CallRequest<'_>) -> (Self, FailedBatch) {
        let CallRequest { lease, range, epoch, page, request_charge, call, progress, whole, commands, permit, room } =
            request;
        let changes = page.select(call.items.ranges());
        let cancelled = CancellationToken::new();
        let lsn = |change: Option<&Change>| change.map(|change| change.lsn).unwrap_or_default();
        let (first_lsn, last_lsn) = (lsn(changes.first()), lsn(changes.last()));
        let batch = FailedBatch { first_lsn, last_lsn, items: changes.len(), attempt: call.attempt };
        let span = trace::span(host, lease, &batch, &changes);
        let context = Context {
            last_lsn,
            progress,
            inner: Arc::new(ContextInner {
                lease: lease.clone(),
                range: range.clone(),
                instance: Arc::clone(&host.instance),
                attempt: call.attempt,
                first_lsn,
                epoch,
                request_charge,
                cancelled: cancelled.clone(),
                commands: commands.clone(),
            }),
        };
        let (reply, answer) = oneshot::channel();
        let (lent, page) = ReturnOnDrop::new(page);
        let (delegate, session) = (Arc::clone(&host.delegate), host.session.clone());
        let task = async move {
            let _held = (permit, session, room);
            let call = AssertUnwindSafe(async move { delegate.call(changes, context).await }).catch_unwind();
            let answer = call.await.unwrap_or_else(|panic| Err(panic_error(&*panic)));
            match &answer {
                Ok(Returned { result: BatchResult::Done, unparsed: None }) if whole => lent.keep(),
                _ => drop(lent),
            }
            drop(reply.send(answer));
        };
        let name = format!("delegate[{}/{lease}]", host.name);
        let task = AbortOnDropHandle::new(host.runtime.spawn(&name, Box::pin(task.instrument(span))));
        let guard = Some(cancelled.clone().drop_guard());
        (Self { answer, page, task, cancelled, guard }, batch)
    }

    /// Lets `Context::cancelled` fire.
    pub(crate) fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Drops the call at its next await point.
    pub(crate) fn abort(&mut self) {
        self.task.abort();
    }

    /// Completes when the call has ended.
    pub(crate) fn poll(&mut self, context: &mut PollContext<'_>) -> Poll<CallReturn> {
        let end = match Pin::new(&mut self.answer).poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(answer)) => {
                self.guard.take().map(DropGuard::disarm);
                CallEnd::Returned(answer)
            }
            Poll::Ready(Err(_)) => CallEnd::Dropped,
        };
        Poll::Ready(CallReturn { end, page: self.page.try_recv().ok() })
    }
}

fn panic_error(panic: &(dyn std::any::Any + Send)) -> DelegateError {
    DelegateError::new(format!("the delegate panicked: {}", crate::runtime::panic_message(panic)))
}

/// A page that is lent to a call. It comes back however the call ends, unless the call keeps it because all of it was
/// handled: so its memory is free when the call ends, not when the lease task gets its turn.
struct ReturnOnDrop {
    page: RawChanges,
    back: Option<oneshot::Sender<RawChanges>>,
}

impl ReturnOnDrop {
    fn new(page: RawChanges) -> (Self, oneshot::Receiver<RawChanges>) {
        let (back, returned) = oneshot::channel();
        (Self { page, back: Some(back) }, returned)
    }

    fn keep(mut self) {
        self.back = None;
    }
}

impl Drop for ReturnOnDrop {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            drop(back.send(std::mem::take(&mut self.page)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_however_its_call_ends_unless_it_was_handled() {
        let lend = || ReturnOnDrop::new(vec![crate::delegate::change(7)].into());
        let (lent, mut back) = lend();
        drop(lent);
        assert_eq!(back.try_recv().unwrap().len(), 1);
        let (lent, mut back) = lend();
        lent.keep();
        back.try_recv().unwrap_err();
        let (lent, mut back) = lend();
        let call = std::thread::spawn(move || {
            let _lent = lent;
            panic!("on purpose");
        });
        call.join().unwrap_err();
        assert_eq!(back.try_recv().unwrap().len(), 1);
    }
}
