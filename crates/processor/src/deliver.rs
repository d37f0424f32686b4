//! Delivering one page: trying again, finding the items to blame, burying them.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    blame::{Blame, Finding, Suspect, regroup},
    call::Called,
    dead_letter::{DeadLetterDocument, Death},
    delegate::{DelegateError, Outcome, Verdict},
    host::Shared,
    lease::{
        keeper::{KeeperHandle, Progress},
        prefix::LeaseToken,
    },
    mutant::{self, Mutant},
    notification::{Failure, Notification},
    options::Checkpoint,
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
    /// Empty once a call has handled all of it.
    pub(crate) changes: RawChanges,
    pub(crate) request_charge: f64,
    /// What a checkpoint after this page says.
    pub(crate) progress: Progress,
    /// Whether the page ends with these changes: only then may a checkpoint of the user say that it was handled.
    pub(crate) last: bool,
    /// Failures that earlier owners of the lease have met here.
    pub(crate) failures: u32,
    /// Who is to blame for failures.
    pub(crate) blame: Blame,
    /// How often an outage was found.
    pub(crate) outages: u32,
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
pub(crate) struct Piece {
    pub(crate) items: Range<usize>,
    pub(crate) failures: u32,
}

impl Piece {
    /// Items that nobody has a reason to suspect.
    fn afresh(items: Range<usize>) -> Self {
        Self { items, failures: 0 }
    }
}

impl Delivery<'_> {
    /// Delivers until everything was handled or there is no point in going on.
    pub(crate) async fn run(&mut self) -> Delivered {
        let mut pieces = VecDeque::from([Piece { items: 0..self.changes.len(), failures: self.failures }]);
        while let Some(piece) = pieces.pop_front() {
            if piece.items.is_empty() {
                continue;
            }
            let last = pieces.iter().all(|piece| piece.items.is_empty());
            // In the last call the user may store that the page was handled: nobody may wait for judgment then.
            let manual = self.shared.options.checkpoint == Checkpoint::Manual;
            if last && manual && !self.settle().await {
                return Delivered::GivenUp;
            }
            let handled = match self.call(&piece, self.last && last).await {
                Called::Verdict(Verdict::Done) => self.succeeded().await,
                Called::Verdict(Verdict::Each(outcomes)) => self.each(&piece, outcomes, &mut pieces).await,
                Called::Failed(error) => self.failed(piece, error, &mut pieces).await,
                Called::GivenUp => false,
            };
            if !handled {
                return Delivered::GivenUp;
            }
        }
        if self.settle().await { Delivered::All } else { Delivered::GivenUp }
    }

    /// How often a batch is tried before the items to blame are looked for, if there is a place for them.
    fn limit(&self) -> Option<u32> {
        self.shared.options.dead_letter.as_ref().map(|letters| letters.attempts)
    }

    /// One outcome for each item; items without one come again, together.
    async fn each(&mut self, piece: &Piece, outcomes: Vec<Outcome>, pieces: &mut VecDeque<Piece>) -> bool {
        let Piece { items, failures: before } = piece;
        // A verdict on an item is about that item: what a batch of several met before says nothing about it.
        let failures = if items.len() == 1 { before + 1 } else { 1 };
        let limit = self.limit();
        let judged = outcomes.len().min(items.len());
        let (mut again, mut pause, mut reason) = (Vec::new(), None, None);
        let mut outage = false;
        for (item, outcome) in items.clone().zip(outcomes) {
            let handled = match outcome {
                Outcome::Done | Outcome::Skip => {
                    outage = false;
                    self.succeeded().await
                }
                Outcome::DeadLetter { reason } if limit.is_some() => self.bury(item, failures, vec![reason]).await,
                Outcome::DeadLetter { reason: why } => {
                    reason = Some(format!("no dead-letter container is set: {why}"));
                    pause = pause.max(Some(Duration::ZERO));
                    again.push(Piece { items: item..item + 1, failures });
                    true
                }
                Outcome::Retry { .. } if !outage && limit.is_some_and(|limit| failures >= limit) => {
                    let errors = vec![format!("the delegate asked for it again, {failures} times")];
                    if let Some(held) = self.accuse(Suspect { item, attempts: failures, errors }) {
                        outage = true;
                        again.extend(regroup(&held, std::iter::empty()).into_iter().map(Piece::afresh));
                    }
                    true
                }
                Outcome::Retry { after } => {
                    pause = pause.max(Some(after));
                    again.push(Piece { items: item..item + 1, failures: if outage { 0 } else { failures } });
                    true
                }
            };
            if !handled {
                return false;
            }
        }
        if judged < items.len() {
            // Some verdicts are progress; none at all is a failure.
            let failures = if judged == 0 { before + 1 } else { 0 };
            pause = pause.max((judged == 0).then_some(Duration::ZERO));
            again.push(Piece { items: items.start + judged..items.end, failures });
        }
        let count = again.len();
        again.into_iter().rev().for_each(|piece| pieces.push_front(piece));
        if outage {
            return self.wait_out(format!("the delegate asked for {count} items again and again")).await;
        }
        let Some(pause) = pause else { return true };
        if let Some(reason) = &reason {
            self.report_error(DelegateError::new(reason.clone()));
        }
        let reason = reason.unwrap_or_else(|| format!("the delegate asked for {count} items again"));
        let failures = if judged == 0 { before + 1 } else { failures };
        self.report_state(failures, limit, reason).await;
        self.keeper.attempts(failures).await;
        let least = self.shared.options.retry.after(failures, self.shared.runtime.random());
        self.pause(pause.max(least)).await
    }

    /// The delegate failed: try again, cut the batch, or see whether the item is to blame.
    async fn failed(&mut self, piece: Piece, error: DelegateError, pieces: &mut VecDeque<Piece>) -> bool {
        let Piece { items, failures } = piece;
        let (failures, limit) = (failures + 1, self.limit());
        let blamed = error.item().map(|item| items.start + item).filter(|item| items.contains(item));
        let hopeless = error.is_hopeless();
        let enough = limit.is_some_and(|limit| failures >= limit || hopeless);
        let errors: Vec<String> = error.chain().map(str::to_owned).collect();
        self.report_state(failures, limit, format!("{error:?}")).await;
        self.report_error(error);
        let rest = blamed.map_or(items.clone(), |blamed| blamed..items.end);
        if rest.start > items.start && !self.succeeded().await {
            return false;
        }
        match (enough, rest.len(), blamed) {
            (true, 1, _) | (true, _, Some(_)) => {
                pieces.push_front(Piece::afresh(rest.start + 1..rest.end));
                if hopeless {
                    return self.bury(rest.start, failures, errors).await;
                }
                let reason = errors.join(": ");
                let Some(held) = self.accuse(Suspect { item: rest.start, attempts: failures, errors }) else {
                    return true;
                };
                let waiting = pieces.drain(..).map(|piece| piece.items);
                *pieces = regroup(&held, waiting).into_iter().map(Piece::afresh).collect();
                return self.wait_out(reason).await;
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

    /// An item failed alone, as often as allowed. Returns the items to try again if that means an outage.
    fn accuse(&mut self, suspect: Suspect) -> Option<Vec<usize>> {
        match self.blame.failed(suspect, self.shared.runtime.monotonic()) {
            Finding::Open => None,
            Finding::Outage(held) => Some(held),
        }
    }

    /// An item succeeded: those that failed alone before it are to blame.
    async fn succeeded(&mut self) -> bool {
        let guilty = self.blame.succeeded();
        self.bury_all(guilty).await
    }

    /// Nothing comes that could clear those that failed alone.
    async fn settle(&mut self) -> bool {
        let guilty = self.blame.settle();
        self.bury_all(guilty).await
    }

    async fn bury_all(&mut self, guilty: Vec<Suspect>) -> bool {
        for Suspect { item, attempts, errors } in guilty {
            if !self.bury(item, attempts, errors).await {
                return false;
            }
        }
        true
    }

    /// The world is down: says so, forgets the attempts, which prove nothing, and waits.
    async fn wait_out(&mut self, reason: String) -> bool {
        self.outages = self.outages.saturating_add(1);
        self.keeper.state(Some(format!("retry after an outage, {} so far: {reason}", self.outages))).await;
        self.keeper.attempts(0).await;
        self.shared.notifier.notify(Notification::Outage { lease: self.lease.clone(), reason });
        let tries = self.outages.saturating_mul(self.limit().unwrap_or(1));
        self.pause(self.shared.options.retry.after(tries, self.shared.runtime.random())).await
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
