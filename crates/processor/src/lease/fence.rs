//! The fence of one lease: whether work on it may begin at this moment.

use std::time::Duration;

use tokio::sync::watch;

use super::ownership::Loss;

/// What the keeper of a lease tells the worker.
#[derive(Clone, Debug, Default)]
pub struct LeaseStatus {
    /// Why it is not ours any more.
    pub lost: Option<Loss>,
    /// Who asks for it.
    pub wanted_by: Option<String>,
    /// An operator asked for a pause.
    pub paused: bool,
    /// The newest batch whose checkpoint is stored.
    pub checkpointed: u64,
    /// On our monotonic clock: no work begins after this.
    pub deadline: Duration,
}

/// The keeper's side.
#[derive(Debug)]
pub struct Guard {
    sender: watch::Sender<LeaseStatus>,
}

/// The worker's side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    receiver: watch::Receiver<LeaseStatus>,
}

impl Guard {
    /// A new fence, and the hand that moves it.
    pub fn new(status: LeaseStatus) -> (Self, Fence) {
        let (sender, receiver) = watch::channel(status);
        (Self { sender }, Fence { receiver })
    }

    /// Changes what the worker sees. Wakes it only for what it may be waiting for: a renewal or a checkpoint moves the
    /// deadline and nothing else, which the worker sees when it looks.
    pub fn change(&self, change: impl FnOnce(&mut LeaseStatus)) {
        self.sender.send_if_modified(|status| {
            let (lost, paused, wanted_by) = (status.lost.is_some(), status.paused, status.wanted_by.clone());
            change(status);
            (lost, paused, &wanted_by) != (status.lost.is_some(), status.paused, &status.wanted_by)
        });
    }

    /// What the worker sees.
    pub fn status(&self) -> LeaseStatus {
        self.sender.borrow().clone()
    }
}

impl Fence {
    /// Whether work may begin at `now`.
    pub fn holds(&self, now: Duration) -> bool {
        let status = self.receiver.borrow();
        status.lost.is_none() && now < status.deadline
    }

    /// What the keeper last said.
    pub fn status(&self) -> LeaseStatus {
        self.receiver.borrow().clone()
    }

    /// Ends when the keeper's word satisfies `condition`, which must be about the loss, the pause or the request; or when
    /// the keeper is gone.
    pub async fn until(&mut self, condition: impl FnMut(&LeaseStatus) -> bool) {
        drop(self.receiver.wait_for(condition).await);
    }
}
