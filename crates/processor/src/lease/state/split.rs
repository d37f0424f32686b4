//! Splitting: the replacement of the lease by those of its successors.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind};

use super::{LeaseState, Splitting, Work};
use crate::{
    lease::events::{Effect, Moment, Replacement},
    notification::{Failure, Notification, Release},
};

impl LeaseState {
    pub(super) fn split_ready(&mut self, ready: Result<(), Error>, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        if self.is_splitting(Splitting::Preparing) {
            match ready {
                Ok(()) => self.work = Work::Splitting(Splitting::Ready),
                Err(error) => self.split_failed(error, moment, effects),
            }
        }
    }

    pub(super) fn replaced(&mut self, replacement: Replacement, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        match replacement {
            Replacement::Done(children) => {
                let parent = self.token.clone();
                effects.push(Effect::Notify(Notification::Split { parent, children }));
                self.end(Release::RangeGone, effects);
            }
            Replacement::Stays(facts) => {
                self.confirmed(facts, effects);
                self.signals.range_gone = false;
                // The first time the lease may just have overlapped another for a moment.
                let failures = self.memory.split_failures.saturating_add(1);
                self.memory.split_failures = failures;
                self.work = Work::ReadPause(moment.now + self.settings.store_retry.after(failures, moment.random));
                if failures > 1 {
                    let message = "the range of the lease is said to be gone, but is among the live ranges";
                    let error = Error::new(ErrorKind::RangeGone, message);
                    self.notify_error(Failure::Split(Arc::new(error)), effects);
                }
            }
            Replacement::Interrupted(facts) => {
                self.confirmed(facts, effects);
                self.work = Work::Next;
            }
            Replacement::Lost(loss) => {
                self.signals.lost = Some(loss);
                self.work = Work::Next;
            }
            Replacement::Failed(update, error) => {
                self.writes.failed(&update, moment.now, moment.random);
                self.split_failed(error, moment, effects);
            }
            Replacement::Incomplete(facts, error) => {
                self.confirmed(facts, effects);
                self.split_failed(error, moment, effects);
            }
        }
    }

    fn split_failed(&mut self, error: Error, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        self.memory.split_failures = self.memory.split_failures.saturating_add(1);
        let pause = self.settings.store_retry.after(self.memory.split_failures, moment.random);
        self.work = Work::Splitting(Splitting::Paused(moment.now + pause));
        self.notify_error(Failure::Split(Arc::new(error)), effects);
    }

    pub(super) fn is_splitting(&self, stage: Splitting) -> bool {
        matches!(self.work, Work::Splitting(current) if current == stage)
    }
}
