//! Signals to the task of one lease: commands of its host and of contexts, and the host's stop and abort.

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::loss::Loss;

/// How many commands may wait for a lease task that is between two events.
const WAITING: usize = 32;

/// Progress to be stored: everything up to `continuation` was handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of the page, rising.
    pub(crate) page: u64,
    /// Where the next owner continues.
    pub(crate) continuation: String,
}

/// What host and contexts ask of a lease task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Somebody wrote into the lease document: read it.
    Refresh,
    /// The lease overlaps another: check whether its range was split or merged.
    CheckRange,
    /// Another document with the same token counts: end without a write.
    Superseded,
    /// The user stores progress.
    Checkpoint(Progress, oneshot::Sender<Result<(), Loss>>),
}

/// Sends commands to one lease task. Cheap to clone; keeps no task alive.
#[derive(Clone, Debug)]
pub(crate) struct CommandSender(mpsc::Sender<Command>);

impl CommandSender {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Asks the task to read the lease document. Does not wait: a task with a full queue is about to write it anyway.
    pub(crate) fn refresh(&self) {
        drop(self.0.try_send(Command::Refresh));
    }

    /// Asks the task to check its range. Does not wait: the next audit asks again.
    pub(crate) fn check_range(&self) {
        drop(self.0.try_send(Command::CheckRange));
    }

    /// Tells the task that another document with the same token counts. Does not wait: the next audit says it again.
    pub(crate) fn superseded(&self) {
        drop(self.0.try_send(Command::Superseded));
    }

    /// Stores progress, and waits until it is stored.
    pub(crate) async fn checkpoint(&self, progress: Progress) -> Result<(), Loss> {
        let (reply, answer) = oneshot::channel();
        let lost = || Loss::Taken { by: None };
        self.0.send(Command::Checkpoint(progress, reply)).await.map_err(|_| lost())?;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// What interrupts the work on all leases of a host. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Finish in good order.
    pub(crate) stop: CancellationToken,
    /// The stop deadline has passed: give up what does not finish.
    pub(crate) abort: CancellationToken,
}

impl Signals {
    /// Signals of their own that fire with these at the latest.
    pub(crate) fn child(&self) -> Self {
        Self { stop: self.stop.child_token(), abort: self.abort.child_token() }
    }
}
