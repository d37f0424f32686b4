//! The worker's way to the keeper of its lease: orders, and how endings come out.

use changefeed_core::Error;
use tokio::sync::{mpsc, oneshot};

use crate::lease::{document::LeaseDocument, fence::Fence, ownership::Loss};

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
    /// The deadline seems to have passed: abandon it, unless it was renewed meanwhile.
    Expire,
}

/// How an ending came out.
#[derive(Debug)]
pub enum Ended {
    /// As asked.
    Done,
    /// This instance has it now.
    Granted(String),
    /// There is no reason to end it any more: it stays with its keeper.
    Kept,
    /// It had been lost before.
    Lost(Loss),
    /// The store refused to delete it: a tombstone is left.
    Tombstone(Error),
    /// The store did not answer in time: the lease will expire.
    Unreachable(Error),
}

/// What a keeper is told to do.
#[derive(Debug)]
pub(super) enum Order {
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

/// The worker's way to its keeper.
#[derive(Clone, Debug)]
pub struct KeeperHandle {
    pub(super) orders: mpsc::Sender<Order>,
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
