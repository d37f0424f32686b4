//! The task of one lease: feeds events into its state and performs the effects. Has no logic of its own.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::Arc,
    task::{Context as PollContext, Poll},
    time::Duration,
};

use changefeed_core::{ChangePage, Error, ErrorKind, FeedRange, ReadChanges, Response, Result, StartFrom};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use super::{
    document::{LeaseVersion, Search, StartPosition},
    events::{CallEnd, Effect, Event, Moment, Page, Replacement, Written},
    host_context::HostContext,
    in_progress::{Ended, InProgress, PageRead, WriteEnd, poll_slot},
    interrupts::Activity,
    loss::Loss,
    pages::{LentPage, PageSummary, Pages},
    prefix::LeaseToken,
    signals::{Command, CommandSender},
    split::{self, Adopted, Split},
    state::{LeaseState, Start},
    writer::LeaseWriter,
};
use crate::{
    delegate::RawChanges,
    delivery::{
        call::{CallRequest, RunningCall},
        dead_letter_writer::write_dead_letter,
        outage::FailedItem,
    },
    limits::page_memory::PageRoom,
    metrics::{CallResult, LeaseMetrics},
    notification::{ErrorReport, FailedBatch, Failure, Notification, Release},
    runtime::BoxFuture,
};

/// What a lease task reports to its host.
#[derive(Debug)]
pub(crate) enum TaskReport {
    /// The work on this lease is over, for this reason.
    Ended(LeaseToken, Release),
    /// A split made this lease ours.
    Adopted(Adopted),
    /// The task panicked: the lease is to be released.
    Panicked(LeaseToken, String),
}

/// The task of one lease.
pub(crate) struct LeaseTask {
    context: Arc<HostContext>,
    token: LeaseToken,
    version: LeaseVersion,
    range: FeedRange,
    epoch: u64,
    /// The last delegate call.
    last_call: Option<FailedBatch>,
    measured: Measured,
    state: LeaseState,
    /// Away while a write is under way.
    writer: Option<Box<LeaseWriter>>,
    pages: Pages,
    waiters: BTreeMap<u64, oneshot::Sender<Result<(), Loss>>>,
    next_waiter: u64,
    commands: CommandSender,
    inbox: mpsc::Receiver<Command>,
    reports: mpsc::UnboundedSender<TaskReport>,
    work: InProgress,
    stop_seen: bool,
    abort_seen: bool,
}

/// What metrics need to know of the work under way.
struct Measured {
    /// The series of this lease, if it has any.
    lease: Option<LeaseMetrics>,
    /// When the call that is running began.
    call_begun: Duration,
    /// Whether the write that is under way stores progress.
    checkpoint: bool,
}

impl LeaseTask {
    /// The task of a lease that was just acquired, and the way to send it commands.
    pub(crate) fn new(
        context: Arc<HostContext>,
        writer: Box<LeaseWriter>,
        range: FeedRange,
        reports: mpsc::UnboundedSender<TaskReport>,
    ) -> (Self, CommandSender) {
        let document = writer.document();
        let (commands, inbox) = CommandSender::new();
        let start = Start {
            token: document.token.clone(),
            position: start_of(&context, &range, document.continuation.as_deref(), document.start()),
            continuation: document.continuation.clone(),
            attempts: document.attempts().count,
            search: document.search(),
            confirmed: writer.confirmed(),
            facts: writer.facts(),
        };
        let signals = context.signals.clone();
        let work = InProgress {
            stopped: Some(Box::pin(signals.stop.cancelled_owned())),
            aborted: Some(Box::pin(signals.abort.cancelled_owned())),
            ..InProgress::default()
        };
        let lease = context.notifier.metrics().of_lease(&document.token);
        let measured = Measured { lease, call_begun: Duration::ZERO, checkpoint: false };
        let task = Self {
            token: document.token.clone(),
            version: document.version,
            state: LeaseState::new(Arc::clone(&context.settings), start),
            context,
            range,
            epoch: document.epoch(),
            last_call: None,
            measured,
            writer: Some(writer),
            pages: Pages::default(),
            waiters: BTreeMap::new(),
            next_waiter: 0,
            commands: commands.clone(),
            inbox,
            reports,
            work,
            stop_seen: false,
            abort_seen: false,
        };
        (task, commands)
    }

    /// Works until the lease is left.
    pub(crate) async fn run(self) {
        let span = tracing::info_span!(parent: &self.context.span, "lease", lease = %self.token);
        Box::pin(self.work()).instrument(span).await;
    }

    async fn work(mut self) {
        self.context.notifier.notify(Notification::LeaseAcquired(self.token.clone()));
        let mut event = Event::Tick;
        loop {
            let now = self.context.runtime.monotonic();
            let pages = &self.pages;
            let name = |item: usize| pages.get(item).map(Search::name_of);
            let moment = Moment { now, random: self.context.runtime.random(), name: &name };
            let effects = self.state.on(event, moment);
            for effect in effects {
                if let Effect::End(release) = effect {
                    return self.end(release);
                }
                self.perform(effect);
            }
            self.arm_timer(now);
            event = self.next_event().await;
        }
    }

    fn end(self, release: Release) {
        // A lease that was taken by this host's own name is the sign of a second process with that name.
        if let Release::Lost(Loss::Taken { by: Some(by) }) = &release
            && *by == self.context.identity.instance
        {
            let message = format!("another host uses the instance name {by}: give each host its own");
            let failure = Failure::Lease(Arc::new(Error::new(ErrorKind::InvalidArgument, message)));
            self.context.notifier.notify(Notification::error(Some(self.token.clone()), failure));
        }
        self.context.notifier.notify(Notification::LeaseReleased(self.token.clone(), release.clone()));
        drop(self.reports.send(TaskReport::Ended(self.token.clone(), release)));
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read { from, max_items, likely_last } => {
                self.work.read = Some(self.read(from, max_items, likely_last));
            }
            Effect::DropPages => {
                self.work.read = None;
                self.pages.clear();
            }
            Effect::DropPage => self.page_done(),
            Effect::Wait(continuation) => {
                let (monitored, range) = (self.context.monitored.clone(), self.range.clone());
                let poll = self.context.runtime.sleep(self.context.options.poll_interval);
                self.work.wait = Some(Box::pin(async move {
                    tokio::select! {
                        biased;
                        () = monitored.backend().changed(&range, &continuation) => {}
                        () = poll => {}
                    }
                }));
            }
            Effect::StopWaiting => self.work.wait = None,
            Effect::Call { call, progress, whole } => self.call(call, progress, whole),
            Effect::CancelCall => self.work.call.iter().for_each(RunningCall::cancel),
            Effect::DropCall => self.work.call.iter_mut().for_each(RunningCall::abort),
            Effect::Write(update) => {
                if let Some(mut writer) = self.writer.take() {
                    self.measured.checkpoint = update.progress.is_some();
                    self.work.write = Some(Box::pin(async move {
                        let written = writer.write(update).await;
                        (writer, WriteEnd::Written(written))
                    }));
                }
            }
            Effect::DeadLetter(letter) => self.work.letter = Some(self.dead_letter(letter)),
            Effect::DropDeadLetter => self.work.letter = None,
            Effect::TakeTurn => {
                self.work.turn = Some(Box::pin(Arc::clone(&self.context.isolation).lock_owned()));
            }
            Effect::EndTurn => (self.work.turn, self.work.isolated) = (None, None),
            Effect::AwaitPermit => {
                let calls = self.context.limits.calls.clone();
                self.work.permit = Some(Box::pin(async move { calls?.acquire_owned().await.ok() }));
            }
            Effect::DropPermit => (self.work.permit, self.work.permitted) = (None, None),
            Effect::PrepareSplit => {
                let context = Arc::clone(&self.context);
                self.work.prepare = Some(Box::pin(async move { split::prepare(&context).await }));
            }
            Effect::DropSplit => (self.work.prepare, self.work.split) = (None, None),
            Effect::Replace(update) => self.replace(update),
            Effect::Reply(waiters, result) => {
                for waiter in waiters.iter().filter_map(|waiter| self.waiters.remove(waiter)) {
                    drop(waiter.send(result.clone()));
                }
            }
            Effect::Notify(notification) => self.notify(notification),
            Effect::Interrupted(activity) => self.report_interrupted(activity),
            Effect::End(_) => {}
        }
    }

    fn read(&self, from: StartFrom, max_items: usize, likely_last: bool) -> BoxFuture<'static, PageRead> {
        let mut request = ReadChanges::new(self.range.clone(), from).mode(self.context.mode).max_items(max_items);
        if self.version == LeaseVersion::Range
            && let Some(id) = self.token.to_range_id()
        {
            request.physical = Some(id);
            // What remains tells whether the next page would be empty. Counting a whole range takes next to no time where
            // the end is near; a store without wake-ups is read again in any case.
            request.count_remaining = likely_last && self.context.monitored.capabilities().wake_ups;
        }
        let (monitored, ahead) = (self.context.monitored.clone(), !self.pages.is_empty() || self.work.call.is_some());
        let memory = self.context.limits.memory.clone();
        Box::pin(async move {
            let room = match memory {
                Some(memory) => Some(memory.reserve().await),
                None => None,
            };
            if ahead {
                // A delegate that returns at once is then done with its page before the next one evicts it from caches.
                tokio::task::yield_now().await;
            }
            (monitored.backend().read_changes(request).await, room)
        })
    }

    fn call(&mut self, call: crate::delivery::Call, progress: Option<super::signals::Progress>, whole: bool) {
        let Some(LentPage { changes: page, request_charge, room }) = self.pages.lend() else { return };
        let request = CallRequest {
            lease: &self.token,
            range: &self.range,
            epoch: self.epoch,
            page,
            request_charge,
            call,
            progress,
            whole,
            commands: &self.commands,
            permit: self.work.permitted.take(),
            room,
        };
        self.context.notifier.called(&self.token);
        self.measured.call_begun = self.context.runtime.monotonic();
        let (call, batch) = RunningCall::start(&self.context, request);
        self.context.notifier.metrics().call_begins(batch.items, batch.attempt);
        (self.work.call, self.last_call) = (Some(call), Some(batch));
    }

    /// The first page in memory was handled.
    fn page_done(&mut self) {
        let Some(PageSummary { changes, oldest }) = self.pages.pop() else { return };
        self.context.notifier.metrics().page_done(changes, oldest, self.context.runtime.wall());
        if let Some(lease) = &self.measured.lease {
            lease.changes.increment(changes as u64);
        }
    }

    fn measure_call(&self, end: &CallEnd) {
        let result = match end {
            CallEnd::Returned(Ok(_)) => CallResult::Ok,
            CallEnd::Returned(Err(_)) => CallResult::Failed,
            CallEnd::Dropped => CallResult::Cancelled,
        };
        let took = self.context.runtime.monotonic().saturating_sub(self.measured.call_begun);
        self.context.notifier.metrics().call_ended(result, took);
        if let (CallResult::Failed, Some(lease)) = (result, &self.measured.lease) {
            lease.failures.increment(1);
        }
    }

    fn measure_write(&mut self, end: &WriteEnd) {
        let stored = match end {
            WriteEnd::Written(Written::Owned(_) | Written::Transferred(_)) => true,
            WriteEnd::Written(Written::Lost(_) | Written::Failed(..)) => false,
            WriteEnd::Replaced(Replacement::Lost(_) | Replacement::Failed(..), _) => false,
            WriteEnd::Replaced(..) => true,
        };
        if std::mem::take(&mut self.measured.checkpoint) && stored {
            self.context.notifier.metrics().checkpointed();
        }
    }

    fn dead_letter(&self, letter: FailedItem) -> BoxFuture<'static, Result<()>> {
        let (context, lease) = (Arc::clone(&self.context), self.token.clone());
        let change = self.pages.get(letter.item).cloned();
        Box::pin(async move { write_dead_letter(&context, &lease, change, letter).await })
    }

    fn replace(&mut self, update: super::update::LeaseUpdate) {
        let (Some(mut writer), Some(input)) = (self.writer.take(), self.work.split.take()) else { return };
        self.measured.checkpoint = update.progress.is_some();
        let (context, token, range) = (Arc::clone(&self.context), self.token.clone(), self.range.clone());
        self.work.write = Some(Box::pin(async move {
            let mut adopted = Vec::new();
            let split = Split { context: &context, token: &token, range: &range };
            let replacement = split.replace(&mut writer, update, input, &mut adopted).await;
            (writer, WriteEnd::Replaced(replacement, adopted))
        }));
    }

    /// Notifies the user; a failed delivery is reported with its batch.
    fn notify(&self, mut notification: Notification) {
        if let Notification::Error(ErrorReport { batch, failure, .. }) = &mut notification
            && matches!(failure, Failure::Delegate(_) | Failure::DeadLetter(_))
        {
            batch.clone_from(&self.last_call);
        }
        self.context.notifier.notify(notification);
    }

    fn report_interrupted(&self, activity: Activity) {
        let what = match activity {
            Activity::Calling => "a delegate call is running; its batch will be delivered again",
            Activity::DeadLettering => "a dead letter is being written",
            Activity::Splitting => "the lease is being replaced after a split",
            Activity::Reading | Activity::Pausing => "the lease container does not answer; the lease will expire",
        };
        self.context.stop_report.add(&self.token, what);
    }

    /// Sleeps until the state wants to be woken. A timer that is too early is kept: it costs one event.
    fn arm_timer(&mut self, now: Duration) {
        let Some(at) = self.state.wake_at(now) else { return self.work.timer = None };
        if self.work.timer.as_ref().is_none_or(|(armed, _)| *armed > at || *armed <= now) {
            let sleep = self.context.runtime.sleep(at.saturating_sub(now));
            self.work.timer = Some((at, sleep));
        }
    }

    async fn next_event(&mut self) -> Event {
        match poll_fn(|context| self.poll_ended(context)).await {
            Ended::Stop => Event::Stop,
            Ended::Abort => Event::Abort,
            Ended::Command(Command::Refresh) => Event::Refresh,
            Ended::Command(Command::CheckRange) => Event::CheckRange,
            Ended::Command(Command::Superseded) => Event::Superseded,
            Ended::Command(Command::Checkpoint(progress, reply)) => {
                self.next_waiter += 1;
                self.waiters.insert(self.next_waiter, reply);
                Event::Checkpoint(progress, self.next_waiter)
            }
            Ended::Read((page, room)) => {
                if page.is_ok() {
                    self.context.notifier.feed_read(&self.token);
                }
                Event::Read(self.page_read(page, room))
            }
            Ended::Changed => Event::Changed,
            Ended::Called(returned) => {
                self.measure_call(&returned.end);
                if let Some(page) = returned.page {
                    self.pages.give_back(page);
                }
                if let CallEnd::Returned(Ok(_)) = &returned.end {
                    self.context.notifier.handled(&self.token);
                }
                Event::Called(returned.end)
            }
            Ended::Write(writer, end) => {
                self.writer = Some(writer);
                self.measure_write(&end);
                match end {
                    WriteEnd::Written(written) => Event::Wrote(written),
                    WriteEnd::Replaced(replacement, adopted) => {
                        adopted.into_iter().for_each(|lease| drop(self.reports.send(TaskReport::Adopted(lease))));
                        Event::Replaced(replacement)
                    }
                }
            }
            Ended::Letter(stored) => Event::DeadLettered(stored),
            Ended::Turn(guard) => {
                self.work.isolated = Some(guard);
                Event::TurnTaken
            }
            Ended::Permit(permit) => {
                self.work.permitted = permit;
                Event::CallPermitted
            }
            Ended::Prepared(Ok(input)) => {
                self.work.split = Some(input);
                Event::SplitReady(Ok(()))
            }
            Ended::Prepared(Err(error)) => Event::SplitReady(Err(error)),
            Ended::Timer => Event::Tick,
        }
    }

    fn page_read(&mut self, page: Result<Response<ChangePage>>, room: Option<PageRoom>) -> Page {
        match page {
            Ok(Response { value, .. }) if value.changes.is_empty() => Page::Empty(value.continuation),
            Ok(Response { value, request_charge }) => {
                let (count, continuation, last) = (value.changes.len(), value.continuation, value.remaining == Some(0));
                let changes = RawChanges::of(value.changes, &self.context.monitored_identity);
                let oldest = changes.first().map(|change| change.timestamp).unwrap_or_default();
                self.context.notifier.metrics().page_read(oldest, self.context.runtime.wall());
                self.pages.push(changes, request_charge, room);
                Page::Changes { count, continuation, last }
            }
            Err(error) if matches!(error.kind(), ErrorKind::RangeGone | ErrorKind::RangeNotFound) => Page::Gone,
            Err(error) => Page::Failed(error),
        }
    }

    /// Polls everything that is under way, signals first.
    fn poll_ended(&mut self, context: &mut PollContext<'_>) -> Poll<Ended> {
        let work = &mut self.work;
        if !self.abort_seen && poll_slot(&mut work.aborted, context).is_ready() {
            self.abort_seen = true;
            return Poll::Ready(Ended::Abort);
        }
        if !self.stop_seen && poll_slot(&mut work.stopped, context).is_ready() {
            self.stop_seen = true;
            return Poll::Ready(Ended::Stop);
        }
        if let Poll::Ready(Some(command)) = self.inbox.poll_recv(context) {
            return Poll::Ready(Ended::Command(command));
        }
        work.poll(context)
    }
}

/// Where the feed of a lease begins: at its checkpoint, else where an operator or the processor's first start put it.
fn start_of(
    context: &HostContext,
    range: &FeedRange,
    continuation: Option<&str>,
    start: Option<StartPosition>,
) -> StartFrom {
    if let Some(token) = continuation {
        return StartPosition::Continuation(token.to_owned()).to_start();
    }
    let positions = start.map_or_else(|| context.start_positions.get().of(range), |start| vec![start]);
    // Leases whose ranges began at continuations have one of their own: the earliest of the others is good for all keys.
    let earliest = positions.into_iter().min_by_key(StartPosition::rank);
    earliest.map_or_else(|| context.options.start.clone(), |position| position.to_start())
}
