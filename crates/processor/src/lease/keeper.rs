//! The keeper of one lease: the one task that writes it. Renews it while idle, stores checkpoints, hands it over.

mod handle;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use changefeed_core::Error;
use tokio::sync::{mpsc, oneshot};

use self::handle::Order;
pub use self::handle::{Ended, Ending, KeeperHandle, Progress};
use super::{
    document::{Attempts, LeaseDocument},
    fence::{Guard, LeaseStatus},
    ownership::{Loss, OwnedLease, WriteError},
    timing::LeaseTiming,
};
use crate::runtime::Runtime;

/// Checkpoints that wait while one is being written; more would only be merged.
const WAITING: usize = 16;

/// Between two checkpoints that nobody waits for: a store in the same process would otherwise store thousands in a second,
/// each with a sync, to save a crash some milliseconds of work.
const SPACING: Duration = Duration::from_millis(20);

enum Wake {
    /// The lease must be written: to renew it, or for progress that has waited.
    Write,
    Order(Order),
}

/// Where errors of writes go that are tried again.
pub type Complaints = Box<dyn Fn(Error) + Send + Sync>;

/// The keeper itself.
pub struct Keeper {
    lease: OwnedLease,
    runtime: Arc<dyn Runtime>,
    timing: LeaseTiming,
    orders: mpsc::Receiver<Order>,
    guard: Guard,
    /// Orders that came while checkpoints were being merged.
    backlog: VecDeque<Order>,
    report: Complaints,
    state: Option<String>,
    /// Progress that goes along with the next write.
    noted: Option<Progress>,
    /// Whether that write is to come soon.
    hurried: bool,
}

impl Keeper {
    /// A keeper for a lease that was just taken. Errors of renewals go to `report`.
    pub fn new(
        lease: OwnedLease,
        runtime: Arc<dyn Runtime>,
        timing: LeaseTiming,
        report: Complaints,
    ) -> (Self, KeeperHandle) {
        let (sender, orders) = mpsc::channel(WAITING);
        let deadline = lease.confirmed() + timing.fence();
        let (guard, fence) = Guard::new(LeaseStatus { deadline, ..LeaseStatus::default() });
        let keeper = Self {
            lease,
            runtime,
            timing,
            orders,
            guard,
            backlog: VecDeque::new(),
            report,
            state: None,
            noted: None,
            hurried: false,
        };
        keeper.publish();
        (keeper, KeeperHandle { orders: sender, fence })
    }

    /// Runs until the lease ends or is lost. Boxed, since a future holds what it is called with twice.
    pub async fn run(mut self: Box<Self>) {
        loop {
            let Some(wake) = self.next_order().await else { return };
            // Apart, so that a lease that waits holds no room for what a write needs.
            match Box::pin(self.serve(wake)).await {
                Some(Ok(())) => {}
                Some(Err(loss)) => return Box::pin(self.mourn(loss)).await,
                None => return,
            }
        }
    }

    /// Does what is to be done; none if that was the end.
    async fn serve(&mut self, wake: Wake) -> Option<Result<(), Loss>> {
        let kept = match wake {
            Wake::Write => self.write(|_| {}).await,
            Wake::Order(Order::Checkpoint(progress, reply)) => self.checkpoint(progress, reply).await,
            Wake::Order(Order::Attempts(count)) => {
                self.write(|document| {
                    let continuation = document.continuation.clone();
                    document.set_attempts(&Attempts { continuation, count });
                })
                .await
            }
            Wake::Order(Order::Suspect(item, reply)) => {
                let written = self.write(|document| document.set_suspect(item.as_deref())).await;
                drop(reply.send(written.clone()));
                written
            }
            Wake::Order(Order::State(line)) => {
                self.state = line;
                Ok(())
            }
            Wake::Order(Order::Note(progress)) => {
                self.note(progress);
                Ok(())
            }
            Wake::Order(Order::Refresh) => self.write(|_| {}).await,
            Wake::Order(Order::Document(reply)) => {
                // A write proves that the lease is ours at this moment.
                let written = self.write(|_| {}).await;
                if written.is_ok() {
                    drop(reply.send(self.lease.document().clone()));
                }
                written
            }
            Wake::Order(Order::End(ending, reply)) => {
                let ended = self.end(*ending).await;
                let stays = matches!(ended, Ended::Kept);
                drop(reply.send(ended));
                return stays.then_some(Ok(()));
            }
        };
        Some(kept)
    }

    /// The next thing to do; none if the worker is gone.
    async fn next_order(&mut self) -> Option<Wake> {
        if let Some(order) = self.backlog.pop_front() {
            return Some(Wake::Order(order));
        }
        let pause = self.write_at().saturating_sub(self.runtime.monotonic());
        let sleep = self.runtime.sleep(pause);
        tokio::select! {
            biased;
            order = self.orders.recv() => order.map(Wake::Order),
            () = sleep => Some(Wake::Write),
        }
    }

    /// When the lease must be written if there is no other reason before.
    fn write_at(&self) -> Duration {
        let interval = if self.hurried { SPACING } else { self.timing.renew };
        self.lease.confirmed() + interval
    }

    /// Merges the checkpoints that wait, and stores the newest.
    async fn checkpoint(
        &mut self,
        mut progress: Progress,
        reply: Option<oneshot::Sender<Result<(), Loss>>>,
    ) -> Result<(), Loss> {
        let mut replies: Vec<_> = reply.into_iter().collect();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Checkpoint(newer, reply) => {
                    if newer.batch >= progress.batch {
                        progress = newer;
                    }
                    replies.extend(reply);
                }
                other => {
                    self.backlog.push_back(other);
                    break;
                }
            }
        }
        // An ending that follows takes the progress along: one write instead of two.
        if let Some(Order::End(ending, _)) = self.backlog.front_mut()
            && let Ending::Release(last) | Ending::Grant(last) = &mut **ending
            && last.is_none()
            && replies.is_empty()
        {
            *last = Some(progress);
            return Ok(());
        }
        if replies.is_empty() && self.runtime.monotonic() < self.lease.confirmed() + SPACING {
            self.note(progress);
            self.hurried = true;
            return Ok(());
        }
        let written = self.store(progress).await;
        for reply in replies {
            drop(reply.send(written.clone()));
        }
        written
    }

    async fn store(&mut self, progress: Progress) -> Result<(), Loss> {
        if progress.batch <= self.guard.status().checkpointed {
            return Ok(());
        }
        self.note(progress);
        self.write(|_| {}).await
    }

    /// Has progress go along with the next write.
    fn note(&mut self, progress: Progress) {
        if self.noted.as_ref().is_none_or(|noted| noted.batch < progress.batch) {
            self.noted = Some(progress);
        }
    }

    /// Writes the lease, trying again with growing pauses until it is stored, lost or too late.
    async fn write(&mut self, change: impl Fn(&mut LeaseDocument) + Send + Sync) -> Result<(), Loss> {
        let mut pause = self.timing.renew / 16;
        loop {
            if self.runtime.monotonic() >= self.lease.confirmed() + self.timing.fence() {
                return Err(Loss::Expired);
            }
            let (state, deadline) = (self.state.clone(), self.guard.status().deadline);
            let stored = self.guard.status().checkpointed;
            let noted = self.noted.clone().filter(|noted| noted.batch > stored);
            let update = self.lease.update(|document| {
                document.set_state(state.as_deref());
                if let Some(noted) = &noted {
                    advance(document, noted);
                }
                change(document);
            });
            match within(&*self.runtime, deadline, update).await {
                Some(Ok(())) => {
                    self.noted = None;
                    self.hurried = false;
                    if let Some(noted) = noted {
                        self.guard.change(|status| status.checkpointed = noted.batch);
                    }
                    self.publish();
                    return Ok(());
                }
                Some(Err(WriteError::Lost(loss))) => return Err(loss),
                Some(Err(WriteError::Store(error))) => (self.report)(error),
                None => return Err(Loss::Expired),
            }
            self.runtime.sleep(crate::backoff::jittered(pause, self.runtime.random())).await;
            pause = (pause * 2).min(self.timing.renew / 2);
        }
    }

    /// Tells the worker what the document says now.
    fn publish(&self) {
        let document = self.lease.document();
        let wanted_by = document.hand_over().map(|asked| asked.to);
        let paused = document.is_paused();
        let deadline = self.lease.confirmed() + self.timing.fence();
        self.guard.change(|status| {
            status.wanted_by = wanted_by;
            status.paused = paused;
            status.deadline = deadline;
        });
    }

    async fn end(&mut self, ending: Ending) -> Ended {
        let ended = match ending {
            Ending::Abandon => return Ended::Done,
            Ending::Expire => return self.expire(),
            Ending::Release(progress) => self.release(progress).await,
            Ending::Grant(progress) => self.grant(progress).await,
            Ending::Delete => return self.delete().await,
        };
        ended.unwrap_or_else(Ended::Lost)
    }

    /// A worker that wakes late sees the old deadline before the keeper has heard that it was renewed.
    fn expire(&self) -> Ended {
        match self.runtime.monotonic() < self.lease.confirmed() + self.timing.fence() {
            true => Ended::Kept,
            false => Ended::Lost(Loss::Expired),
        }
    }

    /// Stores the last progress and gives the lease up, in one write.
    async fn release(&mut self, progress: Option<Progress>) -> Result<Ended, Loss> {
        progress.into_iter().for_each(|progress| self.note(progress));
        self.write(|document| set_free(document, None)).await.map(|()| Ended::Done)
    }

    /// Stores the last progress and gives the lease to whoever asks for it, in one write. A host that stops withdraws
    /// its request, and must not be given what nobody would take from it before it has expired.
    async fn grant(&mut self, progress: Option<Progress>) -> Result<Ended, Loss> {
        progress.into_iter().for_each(|progress| self.note(progress));
        self.write(|document| {
            if let Some(asked) = document.hand_over() {
                set_free(document, Some(&asked.to));
            }
        })
        .await?;
        let document = self.lease.document();
        Ok(match (document.session(), &document.owner) {
            (None, Some(owner)) => Ended::Granted(owner.clone()),
            _ => Ended::Kept,
        })
    }

    async fn delete(&mut self) -> Ended {
        match self.lease.delete().await {
            Ok(()) => Ended::Done,
            Err(WriteError::Lost(loss)) => Ended::Lost(loss),
            Err(WriteError::Store(error)) => {
                let marked = self.write(|document| {
                    document.set_gone(true);
                    set_free(document, None);
                });
                match marked.await {
                    Ok(()) => Ended::Tombstone(error),
                    Err(_) => Ended::Unreachable(error),
                }
            }
        }
    }

    /// Tells everybody that the lease is lost, until the worker has gone.
    async fn mourn(mut self: Box<Self>, loss: Loss) {
        self.guard.change(|status| status.lost = Some(loss.clone()));
        loop {
            let waiting = self.backlog.pop_front();
            let Some(order) = (match waiting {
                Some(order) => Some(order),
                None => self.orders.recv().await,
            }) else {
                return;
            };
            match order {
                Order::Checkpoint(_, Some(reply)) | Order::Suspect(_, reply) => drop(reply.send(Err(loss.clone()))),
                Order::End(_, reply) => {
                    drop(reply.send(Ended::Lost(loss)));
                    return;
                }
                Order::Checkpoint(_, None)
                | Order::Attempts(_)
                | Order::State(_)
                | Order::Note(_)
                | Order::Refresh
                | Order::Document(_) => {}
            }
        }
    }
}

/// Waits for a write, but not beyond the fence: an answer that never comes must not keep us working.
async fn within<T>(runtime: &dyn Runtime, deadline: Duration, write: impl Future<Output = T>) -> Option<T> {
    let sleep = runtime.sleep(deadline.saturating_sub(runtime.monotonic()));
    tokio::select! {
        biased;
        done = write => Some(done),
        () = sleep => None,
    }
}

/// Moves the checkpoint; what was known of failures after the old one is over.
fn advance(document: &mut LeaseDocument, progress: &Progress) {
    document.continuation = Some(progress.continuation.clone());
    document.set_attempts(&Attempts::default());
    document.set_suspect(None);
}

/// Takes the lease out of our hands: to nobody, or to the one who asked for it, with an epoch of its own.
pub(crate) fn set_free(document: &mut LeaseDocument, to: Option<&str>) {
    document.owner = to.map(str::to_owned);
    document.set_epoch(document.epoch() + 1);
    document.set_session(None);
    document.set_hand_over(None);
    document.set_state(None);
    document.set_suspect(None);
}
