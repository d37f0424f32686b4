//! What a lease task has under way: one future for each kind of effect.

use std::{
    task::{Context as PollContext, Poll},
    time::Duration,
};

use changefeed_core::{ChangePage, Response, Result};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};

use super::{
    events::{Replacement, Written},
    signals::Command,
    split::{Adopted, SplitInput},
    writer::LeaseWriter,
};
use crate::{
    delivery::call::{CallReturn, RunningCall},
    limits::page_memory::PageRoom,
    runtime::BoxFuture,
};

/// A page that was read, with room for it.
pub(super) type PageRead = (Result<Response<ChangePage>>, Option<PageRoom>);

/// What is under way. One future for each kind of effect.
#[derive(Default)]
pub(super) struct InProgress {
    pub(super) read: Option<BoxFuture<'static, PageRead>>,
    pub(super) wait: Option<BoxFuture<'static, ()>>,
    pub(super) call: Option<RunningCall>,
    pub(super) write: Option<BoxFuture<'static, (Box<LeaseWriter>, WriteEnd)>>,
    pub(super) letter: Option<BoxFuture<'static, Result<()>>>,
    pub(super) turn: Option<BoxFuture<'static, OwnedMutexGuard<()>>>,
    pub(super) isolated: Option<OwnedMutexGuard<()>>,
    pub(super) permit: Option<BoxFuture<'static, Option<OwnedSemaphorePermit>>>,
    pub(super) permitted: Option<OwnedSemaphorePermit>,
    pub(super) prepare: Option<BoxFuture<'static, Result<SplitInput>>>,
    pub(super) split: Option<SplitInput>,
    pub(super) stopped: Option<BoxFuture<'static, ()>>,
    pub(super) aborted: Option<BoxFuture<'static, ()>>,
    pub(super) timer: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl InProgress {
    /// Polls everything but the signals.
    pub(super) fn poll(&mut self, context: &mut PollContext<'_>) -> Poll<Ended> {
        if let Poll::Ready((writer, end)) = poll_slot(&mut self.write, context) {
            return Poll::Ready(Ended::Write(writer, end));
        }
        if let Some(call) = &mut self.call
            && let Poll::Ready(returned) = call.poll(context)
        {
            self.call = None;
            return Poll::Ready(Ended::Called(returned));
        }
        if let Poll::Ready(stored) = poll_slot(&mut self.letter, context) {
            return Poll::Ready(Ended::Letter(stored));
        }
        if let Poll::Ready(guard) = poll_slot(&mut self.turn, context) {
            return Poll::Ready(Ended::Turn(guard));
        }
        if let Poll::Ready(permit) = poll_slot(&mut self.permit, context) {
            return Poll::Ready(Ended::Permit(permit));
        }
        if let Poll::Ready(input) = poll_slot(&mut self.prepare, context) {
            return Poll::Ready(Ended::Prepared(input));
        }
        if let Poll::Ready(page) = poll_slot(&mut self.read, context) {
            return Poll::Ready(Ended::Read(page));
        }
        if let Poll::Ready(()) = poll_slot(&mut self.wait, context) {
            return Poll::Ready(Ended::Changed);
        }
        if let Some((_, timer)) = &mut self.timer
            && timer.as_mut().poll(context).is_ready()
        {
            self.timer = None;
            return Poll::Ready(Ended::Timer);
        }
        Poll::Pending
    }
}

pub(super) enum WriteEnd {
    Written(Written),
    Replaced(Replacement, Vec<Adopted>),
}

/// Something that ended, before the state machine takes it in.
pub(super) enum Ended {
    Stop,
    Abort,
    Command(Command),
    Read(PageRead),
    Changed,
    Called(CallReturn),
    Write(Box<LeaseWriter>, WriteEnd),
    Letter(Result<()>),
    Turn(OwnedMutexGuard<()>),
    Permit(Option<OwnedSemaphorePermit>),
    Prepared(Result<SplitInput>),
    Timer,
}

/// Polls a future if there is one; empties the slot when it is ready.
pub(super) fn poll_slot<T>(slot: &mut Option<BoxFuture<'static, T>>, context: &mut PollContext<'_>) -> Poll<T> {
    let Some(future) = slot else { return Poll::Pending };
    let ready = future.as_mut().poll(context);
    if ready.is_ready() {
        *slot = None;
    }
    ready
}
