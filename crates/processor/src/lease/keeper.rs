//! The keeper of one lease: the one task that writes it. Renews it while idle, stores checkpoints, hands it over.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use changefeed_core::Error;
use tokio::sync::{mpsc, oneshot};

use super::{
    document::{Attempts, LeaseDocument},
    fence::{Fence, Guard, LeaseStatus},
    ownership::{Loss, OwnedLease, WriteError},
    timing::LeaseTiming,
};
use crate::runtime::Runtime;

/// Checkpoints that wait while one is being written; more would only be merged.
const WAITING: usize = 16;

/// Progress to be stored: everything up to `continuation` was handled.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of the batch, rising.
    pub batch: u64,
    /// Where the next owner goes on.
    pub continuation: String,
}

/// How a lease ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Give it up, for anybody to take, with the last progress.
    Release(Option<Progress>),
    /// Give it to whoever asks for it when this is written, with the last progress.
    Grant(Option<Progress>),
    /// The range is gone and its successors have leases: delete it.
    Delete,
    /// It is not ours any more: write nothing.
    Abandon,
}

/// How an ending came out.
#[derive(Debug)]
pub enum Ended {
    /// As asked.
    Done,
    /// This instance has it now.
    Granted(String),
    /// Nobody asks for it any more: it stays with its keeper.
    Kept,
    /// It had been lost before.
    Lost(Loss),
    /// The store refused to delete it: a tombstone is left.
    Tombstone(Error),
    /// The store did not answer in time: the lease will expire.
    Unreachable(Error),
}

enum Order {
    Checkpoint(Progress, Option<oneshot::Sender<Result<(), Loss>>>),
    Attempts(u32),
    Suspect(Option<String>, oneshot::Sender<Result<(), Loss>>),
    State(Option<String>),
    /// Progress that can wait for the next write.
    Note(Progress),
    /// Look at the lease: somebody may have asked for it.
    Refresh,
    Document(oneshot::Sender<LeaseDocument>),
    /// Boxed: room is kept for many orders of each lease.
    End(Box<Ending>, oneshot::Sender<Ended>),
}

enum Wake {
    Renew,
    Order(Order),
}

/// The worker's way to its keeper.
#[derive(Clone, Debug)]
pub struct KeeperHandle {
    orders: mpsc::Sender<Order>,
    /// Whether work may go on.
    pub fence: Fence,
}

impl KeeperHandle {
    /// Stores progress, soon: several calls may become one write.
    pub async fn checkpoint(&self, progress: Progress) {
        drop(self.orders.send(Order::Checkpoint(progress, None)).await);
    }

    /// Stores progress, and waits until it is stored.
    ///
    /// # Errors
    /// The loss of the lease; then nothing was stored.
    pub async fn checkpoint_now(&self, progress: Progress) -> Result<(), Loss> {
        let (reply, answer) = oneshot::channel();
        drop(self.orders.send(Order::Checkpoint(progress, Some(reply))).await);
        answer.await.unwrap_or(Err(self.loss()))
    }

    /// Stores how often the batch after the checkpoint has failed.
    pub async fn attempts(&self, count: u32) {
        drop(self.orders.send(Order::Attempts(count)).await);
    }

    /// Stores which item is about to be delivered alone, and waits until it is stored.
    ///
    /// # Errors
    /// The loss of the lease; then the item must not be delivered.
    pub async fn suspect(&self, item: Option<String>) -> Result<(), Loss> {
        let (reply, answer) = oneshot::channel();
        drop(self.orders.send(Order::Suspect(item, reply)).await);
        answer.await.unwrap_or(Err(self.loss()))
    }

    /// Stores a line about what the lease is doing, with the next write.
    pub async fn state(&self, line: Option<String>) {
        drop(self.orders.send(Order::State(line)).await);
    }

    /// Stores a line about what the lease is doing, with the next write, unless the keeper is busy. Does not wait.
    pub fn say(&self, line: String) {
        drop(self.orders.try_send(Order::State(Some(line))));
    }

    /// Stores progress with the next write, whenever that is: for empty pages.
    pub async fn note(&self, progress: Progress) {
        drop(self.orders.send(Order::Note(progress)).await);
    }

    /// Has the lease written now, and with that, looked at: somebody may have asked for it. Does not wait.
    pub fn refresh(&self) {
        // If the keeper is busy it is about to write anyway.
        drop(self.orders.try_send(Order::Refresh));
    }

    /// The lease as it is stored, with all progress ordered before.
    ///
    /// # Errors
    /// The loss of the lease.
    pub async fn document(&self) -> Result<LeaseDocument, Loss> {
        let (reply, answer) = oneshot::channel();
        drop(self.orders.send(Order::Document(reply)).await);
        answer.await.map_err(|_| self.loss())
    }

    /// Ends the lease and its keeper.
    pub async fn end(&self, ending: Ending) -> Ended {
        let (reply, answer) = oneshot::channel();
        drop(self.orders.send(Order::End(Box::new(ending), reply)).await);
        answer.await.unwrap_or_else(|_| Ended::Lost(self.loss()))
    }

    /// Whether nobody keeps the lease any more.
    pub fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }

    fn loss(&self) -> Loss {
        self.fence.status().lost.unwrap_or(Loss::Expired)
    }
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
    noted: Option<Progress>,
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
        let keeper =
            Self { lease, runtime, timing, orders, guard, backlog: VecDeque::new(), report, state: None, noted: None };
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
            Wake::Renew => self.write(|_| {}).await,
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
                self.noted = Some(progress);
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
        let pause = self.renew_at().saturating_sub(self.runtime.monotonic());
        let sleep = self.runtime.sleep(pause);
        tokio::select! {
            biased;
            order = self.orders.recv() => order.map(Wake::Order),
            () = sleep => Some(Wake::Renew),
        }
    }

    /// When the lease must be renewed if nothing else is written.
    fn renew_at(&self) -> Duration {
        self.lease.confirmed() + self.timing.renew
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
        self.write(|document| advance(document, &progress)).await?;
        self.guard.change(|status| status.checkpointed = progress.batch);
        Ok(())
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
            Ending::Release(progress) => self.release(progress).await,
            Ending::Grant(progress) => self.grant(progress).await,
            Ending::Delete => return self.delete().await,
        };
        ended.unwrap_or_else(Ended::Lost)
    }

    /// Stores the last progress and gives the lease up, in one write.
    async fn release(&mut self, progress: Option<Progress>) -> Result<Ended, Loss> {
        self.write_last(progress, |document| set_free(document, None)).await.map(|()| Ended::Done)
    }

    /// Stores the last progress and gives the lease to whoever asks for it, in one write. A host that stops withdraws
    /// its request, and must not be given what nobody would take from it before it has expired.
    async fn grant(&mut self, progress: Option<Progress>) -> Result<Ended, Loss> {
        self.write_last(progress, |document| {
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

    /// Stores the last progress, unless it is stored already, with one more change.
    async fn write_last(
        &mut self,
        progress: Option<Progress>,
        change: impl Fn(&mut LeaseDocument) + Send + Sync,
    ) -> Result<(), Loss> {
        let stored = self.guard.status().checkpointed;
        let progress = progress.filter(|progress| progress.batch > stored);
        self.write(|document| {
            if let Some(progress) = &progress {
                advance(document, progress);
            }
            change(document);
        })
        .await?;
        if let Some(progress) = progress {
            self.guard.change(|status| status.checkpointed = progress.batch);
        }
        Ok(())
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
