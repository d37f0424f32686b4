//! Errors of a store that pass by themselves: which these are, and how long to wait before the next attempt.

use std::time::Duration;

use changefeed_core::{Error, ErrorKind};

use crate::{
    clock,
    exit::{say, warn, with_causes},
};

/// Whether the same request may succeed later.
pub(crate) fn may_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Throttled | ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::RangeGone)
}

/// How long to wait after so many attempts: as long as the store says, or up to three seconds.
pub(crate) fn pause(error: &Error, attempts: u32) -> Duration {
    error.retry_after().unwrap_or(Duration::from_millis(50 << attempts.min(6)))
}

/// A time in which reads fail. It is announced once, and so is its end.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    attempts: u32,
    is_announced: bool,
}

impl Outage {
    /// Waits after a read that failed.
    pub(crate) async fn wait(&mut self, error: &Error) {
        self.attempts += 1;
        // A store that throttles is well, unless it goes on doing so.
        let is_worth_it = error.kind() != ErrorKind::Throttled || self.attempts > 1;
        if is_worth_it && !self.is_announced {
            self.is_announced = true;
            warn(&format!("a read failed and is repeated until it succeeds: {}", with_causes(error)));
        }
        clock::sleep(pause(error, self.attempts)).await;
    }

    /// A read has succeeded.
    pub(crate) fn end(&mut self) {
        if std::mem::take(self).is_announced {
            say("reads succeed again");
        }
    }
}
