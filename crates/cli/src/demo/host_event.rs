//! What a host process tells the demonstration, one line of JSON each on its stdout.

use changefeed::{Failure, LeaseToken, Notification, Release};
use serde::{Deserialize, Serialize};

use super::ledger::Order;

/// Something that happened on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum HostEvent {
    /// The host runs.
    Started,
    /// It handled an order; the batch is not finished yet.
    Handled {
        order: Order,
    },
    /// It finished a batch in which it handled so many orders.
    BatchDone {
        handled: usize,
    },
    /// It cannot handle an order.
    Refused {
        item: String,
        attempt: u32,
        reason: String,
    },
    Acquired {
        lease: String,
    },
    /// It gave a lease up; `lost` says why if it did not want to.
    Released {
        lease: String,
        lost: Option<String>,
        handed_over: bool,
    },
    Split {
        parent: String,
        children: Vec<String>,
    },
    DeadLettered {
        lease: String,
        item: String,
    },
    CaughtUp {
        lease: String,
    },
    Failed {
        message: String,
    },
}

impl HostEvent {
    /// What a notification of the processor means here, if anything.
    pub(crate) fn of(notification: &Notification) -> Option<Self> {
        Some(match notification {
            Notification::LeaseAcquired(lease) => Self::Acquired { lease: lease.to_string() },
            Notification::LeaseReleased(lease, release) => Self::Released {
                lease: lease.to_string(),
                lost: match release {
                    Release::Lost(loss) => Some(loss.to_string()),
                    _ => None,
                },
                handed_over: matches!(release, Release::HandedOver(_)),
            },
            Notification::Split { parent, children } => Self::Split {
                parent: parent.to_string(),
                children: children.iter().map(LeaseToken::to_string).collect(),
            },
            Notification::DeadLettered { lease, item, .. } => {
                Self::DeadLettered { lease: lease.to_string(), item: item.clone() }
            }
            Notification::CaughtUp(lease) => Self::CaughtUp { lease: lease.to_string() },
            // The delegate reports its own failures, with the attempt.
            Notification::Error(report) if matches!(report.failure, Failure::Delegate(_)) => return None,
            Notification::Error(report) => Self::Failed { message: report.failure.to_string() },
            _ => return None,
        })
    }
}
