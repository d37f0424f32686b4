//! The worker of one lease: reads pages, has them delivered, stores how far it got.

use std::{sync::Arc, time::Duration};

use changefeed_core::{
    Change, ChangePage, Continuation, ErrorKind, FeedRange, ReadChanges, Response, Result, StartFrom,
};
use tokio::sync::watch;

use crate::{
    blame::Blame,
    deliver::{Delivered, Delivery, told},
    host::Shared,
    lease::{
        document::LeaseVersion,
        keeper::{Ended, Ending, KeeperHandle, Progress},
        ownership::Loss,
        prefix::LeaseToken,
    },
    mutant::{self, Mutant},
    notification::{Failure, Notification, Release},
    options::Checkpoint,
    runtime::BoxFuture,
    suspicion::{Suspicion, Treatment},
};

/// What the host wants of its workers.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// Finish the page and give the lease up.
    pub(crate) stopping: watch::Receiver<bool>,
    /// Give everything up at once.
    pub(crate) hurry: watch::Receiver<bool>,
    /// See whether the lease's range is still one.
    pub(crate) reconsider: watch::Receiver<bool>,
}

/// Why a worker ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The lease was given up, or lost.
    Released(Release),
    /// The range was split or merged; the lease is still ours.
    RangeGone,
}

/// The worker of one lease.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) token: LeaseToken,
    pub(crate) version: LeaseVersion,
    pub(crate) range: FeedRange,
    pub(crate) keeper: KeeperHandle,
    pub(crate) orders: Orders,
    /// Where to read on.
    pub(crate) position: StartFrom,
    /// The checkpoint in the lease.
    pub(crate) stored: Option<String>,
    /// Failures that earlier owners have met right after the checkpoint.
    pub(crate) failures: u32,
    /// What earlier owners that died found out about the items to come.
    pub(crate) suspicion: Suspicion,
    /// Number of the last page.
    pub(crate) batch: u64,
    pub(crate) caught_up: bool,
    /// Dead letters since the last item that succeeded.
    pub(crate) buried: usize,
    /// Items that were delivered one by one.
    pub(crate) careful_items: usize,
}

/// What to do next.
enum Step {
    Deliver(Response<ChangePage>),
    Idle,
    End(Exit),
}

type ReadAhead = BoxFuture<'static, Result<Response<ChangePage>>>;

impl Worker {
    /// Works until the lease ends. The keeper is left alive only if the range is gone.
    pub(crate) async fn run(&mut self) -> Exit {
        let mut ahead: Option<ReadAhead> = None;
        let mut failures = 0;
        loop {
            if let Some(exit) = self.reason_to_end().await {
                return exit;
            }
            if self.orders.reconsider.has_changed().unwrap_or(false) {
                self.orders.reconsider.mark_unchanged();
                return Exit::RangeGone;
            }
            let read = ahead.take().unwrap_or_else(|| self.read());
            match self.step(read, &mut failures).await {
                Step::Idle => {}
                Step::End(exit) => {
                    if mutant::is(Mutant::SplitFromReadPosition) {
                        self.store_read_position().await;
                    }
                    return exit;
                }
                // Apart, so that a lease without changes holds no room for what a delivery needs.
                Step::Deliver(page) => ahead = Box::pin(self.deliver(page)).await,
            }
        }
    }

    /// A bug on purpose: stores how far was read, whether it was handled or not.
    async fn store_read_position(&mut self) {
        if let StartFrom::Continuation(continuation) = &self.position {
            self.batch += 1;
            let progress = Progress { batch: self.batch, continuation: continuation.token().to_owned() };
            drop(self.keeper.checkpoint_now(progress).await);
        }
    }

    /// Ends the lease if somebody wants it, the host stops, or it is lost.
    async fn reason_to_end(&mut self) -> Option<Exit> {
        let status = self.keeper.fence.status();
        if let Some(loss) = status.lost {
            self.keeper.end(Ending::Abandon).await;
            return Some(Exit::Released(Release::Lost(loss)));
        }
        if *self.orders.stopping.borrow() || status.paused {
            let ended = self.keeper.end(Ending::Release(None)).await;
            return Some(Exit::Released(released(ended, Release::Stopped)));
        }
        if let Some(to) = status.wanted_by {
            match self.keeper.end(Ending::Grant(None)).await {
                Ended::Granted(to) => {
                    self.shared.notifier.notify(Notification::HandedOver { lease: self.token.clone(), to: to.clone() });
                    return Some(Exit::Released(Release::HandedOver(to)));
                }
                Ended::Kept => {}
                ended => return Some(Exit::Released(released(ended, Release::HandedOver(to)))),
            }
        }
        if self.keeper.is_gone() || !self.keeper.fence.holds(self.shared.runtime.monotonic()) {
            return match self.keeper.end(Ending::Expire).await {
                Ended::Kept => None,
                ended => Some(Exit::Released(released(ended, Release::Lost(Loss::Expired)))),
            };
        }
        None
    }

    /// Ends when there may be a reason to end.
    async fn disturbed(&self) {
        let mut fence = self.keeper.fence.clone();
        let mut stopping = self.orders.stopping.clone();
        let mut reconsider = self.orders.reconsider.clone();
        let left = fence.status().deadline.saturating_sub(self.shared.runtime.monotonic());
        let expiry = self.shared.runtime.sleep(left);
        tokio::select! {
            biased;
            () = told(&mut stopping) => {}
            () = fence.until(|status| status.lost.is_some() || status.wanted_by.is_some() || status.paused) => {}
            Ok(()) = reconsider.changed() => {}
            () = expiry => {}
        }
    }

    /// Asks for the page after the current position.
    fn read(&self) -> ReadAhead {
        let options = &self.shared.options;
        let mut request = ReadChanges::new(self.range.clone(), self.position.clone()).mode(self.shared.mode);
        request.max_items = if self.is_careful() { 1 } else { options.max_items };
        if self.version == LeaseVersion::Range
            && let Some(id) = self.token.to_range_id()
        {
            request.physical = Some(id);
        }
        let monitored = self.shared.monitored.clone();
        Box::pin(async move { monitored.backend().read_changes(request).await })
    }

    /// Waits for a page, and decides what it means.
    async fn step(&mut self, read: ReadAhead, failures: &mut u32) -> Step {
        let page = tokio::select! {
            biased;
            () = self.disturbed() => return Step::Idle,
            page = read => page,
        };
        match page {
            Ok(page) => {
                *failures = 0;
                if !page.changes.is_empty() {
                    return Step::Deliver(page);
                }
                self.idle(page.into_value()).await;
                Step::Idle
            }
            Err(error) if error.kind() == ErrorKind::RangeGone => Step::End(Exit::RangeGone),
            Err(error) if error.kind() == ErrorKind::RangeNotFound => Step::End(Exit::RangeGone),
            Err(error) => {
                *failures += 1;
                self.keeper.state(Some(format!("cannot read the feed: {error:?}"))).await;
                let failure = Failure::Feed(Arc::new(error));
                self.shared.notifier.notify(Notification::Error(Some(self.token.clone()), failure));
                let pause = self.shared.options.store_retry.after(*failures, self.shared.runtime.random());
                self.wait(pause).await;
                Step::Idle
            }
        }
    }

    /// Nothing new: remembers the position and waits for news.
    async fn idle(&mut self, page: ChangePage) {
        self.position = StartFrom::Continuation(page.continuation.clone());
        if !self.caught_up {
            self.caught_up = true;
            self.shared.notifier.notify(Notification::CaughtUp(self.token.clone()));
        }
        self.keeper.state(None).await;
        let everything_stored = self.keeper.fence.status().checkpointed == self.batch;
        if everything_stored && self.stored.as_deref() != Some(page.continuation.token()) {
            self.batch += 1;
            let progress = Progress { batch: self.batch, continuation: page.continuation.token().to_owned() };
            self.stored = Some(progress.continuation.clone());
            self.keeper.note(progress).await;
        }
        let changed = self.shared.monitored.backend().changed(&self.range, &page.continuation);
        let poll = self.shared.runtime.sleep(self.shared.options.poll_interval);
        tokio::select! {
            biased;
            () = self.disturbed() => {}
            () = changed => {}
            () = poll => {}
        }
    }

    async fn wait(&self, pause: Duration) {
        let sleep = self.shared.runtime.sleep(pause);
        tokio::select! {
            biased;
            () = self.disturbed() => {}
            () = sleep => {}
        }
    }

    /// Delivers a page and stores that; reads the next one meanwhile.
    async fn deliver(&mut self, page: Response<ChangePage>) -> Option<ReadAhead> {
        self.caught_up = false;
        let before = std::mem::replace(&mut self.position, StartFrom::Continuation(page.continuation.clone()));
        self.batch += 1;
        let progress = Progress { batch: self.batch, continuation: page.continuation.token().to_owned() };
        if self.is_careful() {
            return match Box::pin(self.deliver_carefully(&page, progress)).await {
                Delivered::All => None,
                Delivered::GivenUp => self.go_back(before),
            };
        }
        if mutant::is(Mutant::CheckpointBeforeDelegate) {
            self.keeper.checkpoint(progress.clone()).await;
        }
        let mut granted = !mutant::is(Mutant::GrantBeforeCheckpoint);
        let mut fence = self.keeper.fence.clone();
        let mut ahead = after_others(self.read());
        let mut next = None;
        let failures = std::mem::take(&mut self.failures);
        let (shared, keeper, orders) = (Arc::clone(&self.shared), self.keeper.clone(), self.orders.clone());
        let (token, range) = (self.token.clone(), self.range.clone());
        let mut delivery = Delivery {
            shared: &shared,
            keeper: &keeper,
            lease: &token,
            range: &range,
            request_charge: page.request_charge,
            changes: page.into_value().changes.into(),
            progress: progress.clone(),
            last: true,
            failures,
            blame: self.blame(),
            outages: 0,
            stopping: orders.stopping,
            hurry: orders.hurry,
        };
        let delivered = {
            let run = delivery.run();
            tokio::pin!(run);
            loop {
                tokio::select! {
                    biased;
                    delivered = &mut run => break delivered,
                    page = &mut ahead, if next.is_none() => next = Some(page),
                    () = fence.until(|status| status.wanted_by.is_some()), if !granted => {
                        granted = true;
                        keeper.end(Ending::Grant(None)).await;
                    }
                }
            }
        };
        self.buried = delivery.blame.buried();
        match delivered {
            Delivered::All => {
                self.progressed(progress).await;
                Some(match next {
                    Some(page) => Box::pin(std::future::ready(page)),
                    None => ahead,
                })
            }
            Delivered::GivenUp => self.go_back(before),
        }
    }

    fn go_back(&mut self, before: StartFrom) -> Option<ReadAhead> {
        self.position = before;
        self.batch -= 1;
        None
    }

    /// A page was handled: stores that now, or leaves it to the user.
    async fn progressed(&mut self, progress: Progress) {
        match self.shared.options.checkpoint {
            Checkpoint::Manual => {}
            Checkpoint::Automatic => {
                self.stored = Some(progress.continuation.clone());
                self.keeper.checkpoint(progress).await;
            }
        }
    }

    /// Whether processes have died here so often that items are delivered one by one.
    fn is_careful(&self) -> bool {
        let limit = self.shared.options.dead_letter.as_ref().map(|letters| letters.attempts);
        limit.is_some_and(|limit| !self.suspicion.is_empty() || self.failures >= limit)
    }

    /// Delivers the items of a page one by one, naming each in the lease before it is delivered: if the process dies,
    /// the next owner knows which one it was. One death alone with an item may be bad luck; two are not.
    async fn deliver_carefully(&mut self, page: &Response<ChangePage>, progress: Progress) -> Delivered {
        for (at, change) in page.changes.iter().enumerate() {
            // One at a time on this host: otherwise a death would be blamed on items of several leases.
            let shared = Arc::clone(&self.shared);
            let alone = tokio::select! {
                biased;
                () = self.disturbed() => return Delivered::GivenUp,
                alone = shared.alone.lock() => alone,
            };
            let name = format!("{}:{}", change.lsn, change.id);
            let treatment = self.suspicion.treat(&name);
            let last = at + 1 == page.changes.len();
            let delivered = match &treatment {
                Treatment::Skip => Delivered::All,
                Treatment::Bury => {
                    let mut delivery = self.single(change.clone(), page.request_charge, progress.clone(), last);
                    delivery.bury_suspect(self.failures).await
                }
                Treatment::Alone(name) => {
                    if self.keeper.suspect(self.suspicion.text(Some(name))).await.is_err() {
                        return Delivered::GivenUp;
                    }
                    let mut delivery = self.single(change.clone(), page.request_charge, progress.clone(), last);
                    let delivered = delivery.run().await;
                    self.buried = delivery.blame.buried();
                    delivered
                }
            };
            if delivered == Delivered::GivenUp {
                return Delivered::GivenUp;
            }
            if treatment == Treatment::Bury {
                self.suspicion.bury(name);
            }
            self.careful_items += 1;
            // The item is no longer to blame for what happens next.
            let cleared = if last && self.shared.options.checkpoint == Checkpoint::Automatic {
                self.stored = Some(progress.continuation.clone());
                self.keeper.checkpoint_now(progress.clone()).await
            } else {
                self.keeper.suspect(self.suspicion.text(None)).await
            };
            if cleared.is_err() {
                return Delivered::GivenUp;
            }
            drop(alone);
            self.relax();
        }
        Delivered::All
    }

    /// Ends careful delivery when the batch that killed must have been passed, and the checkpoint with it: what comes
    /// before it would be delivered again.
    fn relax(&mut self) {
        let passed = self.careful_items >= self.shared.options.max_items || !self.suspicion.is_empty();
        if passed && self.keeper.fence.status().checkpointed > 0 {
            (self.failures, self.suspicion, self.careful_items) = (0, Suspicion::default(), 0);
        }
    }

    fn blame(&self) -> Blame {
        let letters = self.shared.options.dead_letter.as_ref();
        let (limit, patience) = letters.map(|letters| (letters.in_a_row, letters.patience)).unwrap_or_default();
        Blame::new(limit, patience, self.buried)
    }

    fn single(&self, change: Change, request_charge: f64, progress: Progress, last: bool) -> Delivery<'_> {
        Delivery {
            shared: &self.shared,
            keeper: &self.keeper,
            lease: &self.token,
            range: &self.range,
            changes: vec![change].into(),
            request_charge,
            progress,
            last,
            failures: 0,
            blame: self.blame(),
            outages: 0,
            stopping: self.orders.stopping.clone(),
            hurry: self.orders.hurry.clone(),
        }
    }
}

/// A read that lets others go first: a delegate that returns at once is then done with its page before the next one
/// drives it out of the caches.
fn after_others(read: ReadAhead) -> ReadAhead {
    Box::pin(async move {
        tokio::task::yield_now().await;
        read.await
    })
}

fn released(ended: Ended, wanted: Release) -> Release {
    match ended {
        Ended::Lost(loss) => Release::Lost(loss),
        Ended::Done | Ended::Granted(_) | Ended::Kept | Ended::Tombstone(_) => wanted,
        Ended::Unreachable(_) => Release::Lost(Loss::Expired),
    }
}

/// A stored continuation as a start position.
pub(crate) fn resume(token: &str) -> StartFrom {
    StartFrom::Continuation(Continuation::from_token(token))
}
