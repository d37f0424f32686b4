//! A page that is being delivered: how far it is. Pure.

use std::time::Duration;

use changefeed_core::StartFrom;

use super::settings::Settings;
use crate::{
    delivery::{Call, Delivery},
    lease::signals::Progress,
};

/// A call that does not end so long after it was dropped blocks its thread.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// A page that is being delivered.
pub(super) struct Delivering {
    pub(super) delivery: Delivery,
    /// Where the page begins.
    pub(super) before: StartFrom,
    /// What a checkpoint after the page says.
    pub(super) progress: Progress,
    pub(super) stage: Stage,
    /// Failed writes of the current dead letter.
    pub(super) letter_failures: u32,
}

/// How far the delivery is.
pub(super) enum Stage {
    /// Nothing is under way.
    Between,
    /// It waits for its turn to deliver in isolation.
    Turn,
    /// The next batch is being named in the lease.
    Marking,
    /// This call waits for a permit of the host, or has it.
    Permit(Call, Permit),
    Calling(CallState),
    DeadLettering,
    /// Until this moment nothing is done.
    Pausing(Duration),
}

/// Whether the host permits a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Awaited,
    Granted,
}

/// A call of the delegate.
pub(super) struct CallState {
    pub(super) begun: Duration,
    /// When it is reported as slow.
    pub(super) slow_at: Duration,
    /// Whether `Context::cancelled` has fired.
    pub(super) cancelled: bool,
    pub(super) dropped: Option<Dropped>,
    pub(super) slow: bool,
}

/// A call that was dropped and has not ended yet.
#[derive(Clone, Copy)]
pub(super) struct Dropped {
    pub(super) at: Duration,
    /// Whether by the delegate timeout.
    pub(super) timeout: bool,
    /// Whether it was reported to block its thread.
    pub(super) blocked: bool,
}

/// What could be finished of a page before the lease is left.
pub(super) enum Finished {
    /// The whole page.
    Page,
    /// A dead letter is being written.
    LetterBegun,
    Nothing,
}

impl Delivering {
    pub(super) fn wake_at(&self, settings: &Settings) -> Option<Duration> {
        match &self.stage {
            Stage::Pausing(until) => Some(*until),
            Stage::Calling(call) => match call.dropped {
                None => {
                    let limit = settings.delegate_timeout.map(|limit| call.begun + limit);
                    Some(limit.map_or(call.slow_at, |limit| limit.min(call.slow_at)))
                }
                Some(dropped) => (!dropped.blocked).then(|| dropped.at + blocked_after(settings)),
            },
            _ => None,
        }
    }
}

/// When a call that was dropped counts as blocking its thread.
pub(super) fn blocked_after(settings: &Settings) -> Duration {
    BLOCKED_AFTER.min(settings.timing.expiration / 4)
}
