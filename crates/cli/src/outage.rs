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

/// Whether the same request may succeed once somebody has repaired what is wrong: a certificate, a key, a clock, the version
/// of a server.
fn may_be_repaired(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidArgument | ErrorKind::Forbidden | ErrorKind::Unsupported)
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
    has_succeeded: bool,
}

impl Outage {
    /// Whether to go on after this error. What a wrong argument can cause ends a reader that has never succeeded; one that
    /// has waits until it is repaired, as running hosts do.
    pub(crate) fn may_end(&self, error: &Error) -> bool {
        may_pass(error.kind()) || self.has_succeeded && may_be_repaired(error.kind())
    }

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
        let before = std::mem::replace(self, Self { has_succeeded: true, ..Self::default() });
        if before.is_announced {
            say("reads succeed again");
        }
    }
}
