//! Delivering one page: calling the delegate, trying again, finding the items to blame.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use changefeed_core::Change;
use tokio::sync::watch;

use crate::{
    context::{Context, Inner},
    dead_letter::{DeadLetterDocument, Death},
    delegate::{DelegateError, Outcome, Verdict},
    host::Shared,
    lease::{
        keeper::{KeeperHandle, Progress},
        prefix::LeaseToken,
    },
    mutant::{self, Mutant},
    notification::{Failure, Notification},
    raw::RawChanges,
};

/// After this many failures in a row the host says that a lease is stalled, and again at each doubling.
const STALLED_AFTER: u32 = 3;

/// A page, and whom it is delivered for.
pub(crate) struct Delivery<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) keeper: &'a KeeperHandle,
    pub(crate) lease: &'a LeaseToken,
    pub(crate) range: &'a changefeed_core::FeedRange,
    pub(crate) changes: RawChanges,
    pub(crate) request_charge: f64,
    /// What a checkpoint after this page says.
    pub(crate) progress: Progress,
    /// Whether the page ends with these changes: only then may a checkpoint of the user say that it was handled.
    pub(crate) last: bool,
    /// Failures that earlier owners of the lease have met here.
    pub(crate) failures: u32,
    /// Ends when the host wants to stop. Batches that are being tried again are given up then.
    pub(crate) stopping: watch::Receiver<bool>,
    /// Ends when the host cannot wait any longer. Running calls are given up then.
    pub(crate) hurry: watch::Receiver<bool>,
}

/// How a delivery ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Everything was handled: the checkpoint may pass.
    All,
    /// Something was not: the checkpoint must stay.
    GivenUp,
}

/// Items of the page that are still to be delivered together.
struct Piece {
    items: Range<usize>,
    failures: u32,
}

/// What became of one call.
enum Called {
    Verdict(Verdict),
    Failed(DelegateError),
    GivenUp,
}

impl Delivery<'_> {
    /// Delivers until everything was handled or there is no point in going on.
    pub(crate) async fn run(&mut self) -> Delivered {
        let mut pieces = VecDeque::from([Piece { items: 0..self.changes.len(), failures: self.failures }]);
        while let Some(piece) = pieces.pop_front() {
            if piece.items.is_empty() {
                continue;
            }
            let handled = match self.call(&piece, self.last && pieces.is_empty()).await {
                Called::Verdict(Verdict::Done) => true,
                Called::Verdict(Verdict::Each(outcomes)) => self.each(&piece, outcomes, &mut pieces).await,
                Called::Failed(error) => self.failed(piece, error, &mut pieces).await,
                Called::GivenUp => false,
            };
            if !handled {
                return Delivered::GivenUp;
            }
        }
        Delivered::All
    }

    /// Calls the delegate, in a task of its own: it may panic, and it may never return.
    async fn call(&mut self, piece: &Piece, last: bool) -> Called {
        let shared = self.shared;
        if !self.keeper.fence.holds(shared.runtime.monotonic()) {
            return Called::GivenUp;
        }
        let changes = self.changes.slice(piece.items.clone());
        let (cancel, cancelled) = watch::channel(false);
        let context = self.context(&changes, piece.failures + 1, last, cancelled);
        let delegate = Arc::clone(&shared.delegate);
        let (reply, mut answer) = tokio::sync::oneshot::channel();
        let task = async move {
            drop(reply.send(delegate.call(changes, context).await));
        };
        let name = format!("delegate[{}/{}]", shared.name, self.lease);
        let mut handle = AbortOnDrop(shared.runtime.spawn(&name, Box::pin(task)));
        let limit = shared.options.delegate_timeout;
        let timeout = shared.runtime.sleep(limit.unwrap_or(Duration::from_secs(u64::from(u32::MAX))));
        tokio::pin!(timeout);
        let mut fence = self.keeper.fence.clone();
        let mut hurry = self.hurry.clone();
        let mut warned = false;
        loop {
            tokio::select! {
                biased;
                verdict = &mut answer => return match verdict {
                    Ok(Ok(verdict)) => Called::Verdict(verdict),
                    Ok(Err(error)) => Called::Failed(error),
                    Err(_) => Called::Failed(DelegateError::new(panic_message(handle).await)),
                },
                () = &mut timeout => {
                    handle.end().await;
                    let limit = limit.unwrap_or_default();
                    return Called::Failed(DelegateError::new(format!("the delegate did not return within {limit:?}")));
                }
                () = told(&mut hurry) => {
                    handle.end().await;
                    return Called::GivenUp;
                }
                () = fence.until(|status| status.lost.is_some()), if !warned => {
                    // The call may finish, but what it does will be done again by the new owner.
                    warned = true;
                    cancel.send_replace(true);
                }
            }
        }
    }

    fn context(&self, changes: &[Change], attempt: u32, last: bool, cancelled: watch::Receiver<bool>) -> Context {
        let lsn = |change: Option<&Change>| change.map(|change| change.lsn).unwrap_or_default();
        Context {
            inner: Arc::new(Inner {
                lease: self.lease.clone(),
                range: self.range.clone(),
                instance: Arc::clone(&self.shared.instance),
                attempt,
                first_lsn: lsn(changes.first()),
                last_lsn: lsn(changes.last()),
                request_charge: self.request_charge,
                cancelled,
                keeper: self.keeper.clone(),
                progress: last.then(|| self.progress.clone()),
            }),
        }
    }

    /// One outcome for each item; items without one come again, together.
    async fn each(&mut self, piece: &Piece, outcomes: Vec<Outcome>, pieces: &mut VecDeque<Piece>) -> bool {
        let Piece { items, failures } = piece;
        let failures = failures + 1;
        let judged = outcomes.len().min(items.len());
        let (mut again, mut pause, mut reason) = (Vec::new(), None, None);
        for (item, outcome) in items.clone().zip(outcomes) {
            match outcome {
                Outcome::Done | Outcome::Skip => {}
                Outcome::DeadLetter { reason } if self.shared.options.dead_letter.is_some() => {
                    if !self.bury(item, failures, vec![reason]).await {
                        return false;
                    }
                }
                Outcome::DeadLetter { reason: why } => {
                    reason = Some(format!("no dead-letter container is set: {why}"));
                    pause = pause.max(Some(Duration::ZERO));
                    again.push(Piece { items: item..item + 1, failures });
                }
                Outcome::Retry { after } => {
                    pause = pause.max(Some(after));
                    again.push(Piece { items: item..item + 1, failures });
                }
            }
        }
        if judged < items.len() {
            // Some verdicts are progress; none at all is a failure.
            let failures = if judged == 0 { failures } else { 0 };
            pause = pause.max((judged == 0).then_some(Duration::ZERO));
            again.push(Piece { items: items.start + judged..items.end, failures });
        }
        let count = again.len();
        again.into_iter().rev().for_each(|piece| pieces.push_front(piece));
        let Some(pause) = pause else { return true };
        if let Some(reason) = &reason {
            self.report_error(DelegateError::new(reason.clone()));
        }
        let reason = reason.unwrap_or_else(|| format!("the delegate asked for {count} items again"));
        self.report_state(failures, None, reason).await;
        self.keeper.attempts(failures).await;
        let least = self.shared.options.retry.after(failures, self.shared.runtime.random());
        self.pause(pause.max(least)).await
    }

    /// The delegate failed: try again, cut the batch, or bury the item to blame.
    async fn failed(&mut self, piece: Piece, error: DelegateError, pieces: &mut VecDeque<Piece>) -> bool {
        let Piece { items, failures } = piece;
        let failures = failures + 1;
        let blamed = error.item().map(|item| items.start + item).filter(|item| items.contains(item));
        let limit = self.shared.options.dead_letter.as_ref().map(|letters| letters.attempts);
        let enough = limit.is_some_and(|limit| failures >= limit || error.is_hopeless());
        let chain: Vec<String> = error.chain().map(str::to_owned).collect();
        self.report_state(failures, limit, format!("{error:?}")).await;
        self.report_error(error);
        let rest = blamed.map_or(items.clone(), |blamed| blamed..items.end);
        match (enough, rest.len(), blamed) {
            (true, 1, _) | (true, _, Some(_)) => {
                pieces.push_front(Piece { items: rest.start + 1..rest.end, failures: 0 });
                return self.bury(rest.start, failures, chain).await;
            }
            (true, length, None) => {
                // Each half gets one more try before it is cut again.
                let (middle, failures) = (rest.start + length / 2, limit.unwrap_or(1) - 1);
                pieces.push_front(Piece { items: middle..rest.end, failures });
                pieces.push_front(Piece { items: rest.start..middle, failures });
                return true;
            }
            (false, ..) => pieces.push_front(Piece { items: rest, failures }),
        }
        self.keeper.attempts(failures).await;
        self.pause(self.shared.options.retry.after(failures, self.shared.runtime.random())).await
    }

    /// Says, in the lease and every now and then aloud, that items are tried again.
    async fn report_state(&self, failures: u32, limit: Option<u32>, reason: String) {
        let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        self.keeper.state(Some(format!("retry {failures}{of}: {reason}"))).await;
        let doubled = (failures / STALLED_AFTER).is_power_of_two() && failures.is_multiple_of(STALLED_AFTER);
        if failures >= STALLED_AFTER && doubled {
            let lease = self.lease.clone();
            self.shared.notifier.notify(Notification::Stalled { lease, attempts: failures, reason });
        }
    }

    fn report_error(&self, error: DelegateError) {
        let failure = Failure::Delegate(Arc::new(error));
        self.shared.notifier.notify(Notification::Error(Some(self.lease.clone()), failure));
    }

    /// Buries the only item of the delivery: processes have died of it.
    pub(crate) async fn bury_suspect(&mut self, deaths: u32) -> Delivered {
        let reason = format!("the process died {deaths} times while this item was delivered");
        if self.bury(0, deaths, vec![reason]).await { Delivered::All } else { Delivered::GivenUp }
    }

    /// Puts an item into the dead-letter container. Tries until it is there: it must not be passed over.
    async fn bury(&mut self, item: usize, attempts: u32, errors: Vec<String>) -> bool {
        let shared = self.shared;
        let change = self.changes.get(item).cloned();
        let (Some(letters), Some(change)) = (&shared.options.dead_letter, change) else { return false };
        let reason = errors.join(": ");
        let death = Death {
            processor: &shared.name,
            container: &shared.monitored.identity().container,
            lease: self.lease,
            instance: &shared.instance,
            attempts,
            errors,
            at: shared.runtime.wall(),
        };
        let document = DeadLetterDocument::new(&change, death);
        let mut failures = 0;
        loop {
            let stored = tokio::select! {
                biased;
                stored = document.store(&letters.container) => stored,
                () = told(&mut self.hurry) => return false,
            };
            let Err(error) = stored else { break };
            if mutant::is(Mutant::CheckpointBeforeDeadLetter) {
                return true;
            }
            failures += 1;
            let failure = Failure::DeadLetter(Arc::new(error));
            shared.notifier.notify(Notification::Error(Some(self.lease.clone()), failure));
            let pause = shared.options.store_retry.after(failures, shared.runtime.random());
            if !self.pause(pause).await {
                return false;
            }
        }
        let (lease, item) = (self.lease.clone(), change.id.to_string());
        shared.notifier.notify(Notification::DeadLettered { lease, item, reason });
        true
    }

    /// Waits; false if there is no point in going on.
    async fn pause(&mut self, duration: Duration) -> bool {
        let sleep = self.shared.runtime.sleep(duration);
        let mut fence = self.keeper.fence.clone();
        let paused = tokio::select! {
            biased;
            () = told(&mut self.stopping) => false,
            () = fence.until(|status| status.lost.is_some() || status.wanted_by.is_some()) => false,
            () = sleep => true,
        };
        paused && self.keeper.fence.holds(self.shared.runtime.monotonic())
    }
}

/// Ends when the order is given.
pub(crate) async fn told(order: &mut watch::Receiver<bool>) {
    // If nobody can give the order any more, the host is gone: that is the strongest order of all.
    drop(order.wait_for(|given| *given).await);
}

/// Ends a task with its handle.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl AbortOnDrop {
    /// Ends the task, and waits until it has ended: two calls for one lease must not run at once.
    async fn end(&mut self) {
        self.0.abort();
        drop((&mut self.0).await);
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn panic_message(mut handle: AbortOnDrop) -> String {
    let text = match (&mut handle.0).await {
        Err(error) if error.is_panic() => {
            let panic = error.into_panic();
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| panic.downcast_ref::<String>().cloned())
        }
        _ => None,
    };
    format!("the delegate panicked: {}", text.as_deref().unwrap_or("no message"))
}
