//! Delivering: calls, pauses, dead letters, isolation.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Continuation, Error, StartFrom};

use super::{
    LeaseState, Work,
    delivering::{CallState, Delivering, Dropped, Finished, Permit, Stage, blocked_after},
};
use crate::{
    delegate::DelegateError,
    delivery::{Call, Delivery, Report, Retrying, Step},
    lease::{
        document::{Search, Status, one_line},
        events::{CallEnd, Effect, Moment},
        interrupts::Signal,
        signals::Progress,
    },
    notification::{Failure, Notification},
};

impl LeaseState {
    pub(super) fn begin_page(
        &mut self,
        count: usize,
        continuation: Continuation,
        moment: Moment<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.feed.caught_up = false;
        self.feed.page += 1;
        let progress = Progress { page: self.feed.page, continuation: continuation.token().to_owned() };
        let before = std::mem::replace(&mut self.feed.position, StartFrom::Continuation(continuation));
        let (policy, attempts) = (self.settings.policy, std::mem::take(&mut self.memory.attempts));
        let mut delivery = Delivery::new(policy, count, attempts, std::mem::take(&mut self.memory.outage));
        let names = || (0..count).map(|item| (moment.name)(item).unwrap_or_default()).collect::<Vec<_>>();
        let mut stage = Stage::Between;
        if let Some(isolation) = &mut self.memory.isolation {
            let names = names();
            isolation.begin_page(&names);
            delivery = delivery.isolate(isolation, names);
            stage = Stage::Turn;
            effects.push(Effect::TakeTurn);
        } else if let Some(search) = self.memory.search.take() {
            delivery = delivery.resume_search(&search, &names());
        } else if self.memory.stale_mark {
            stage = Stage::Marking;
        }
        self.work = Work::Delivering(Box::new(Delivering { delivery, before, progress, stage, letter_failures: 0 }));
    }

    /// Takes the next step of the delivery, if nothing is under way. Returns whether there may be more to do at once.
    pub(super) fn deliver(&mut self, moment: Moment<'_>, effects: &mut Vec<Effect>) -> bool {
        let Work::Delivering(delivering) = &mut self.work else { return false };
        match &delivering.stage {
            Stage::Between => {}
            Stage::Permit(call, Permit::Granted) => {
                let call = call.clone();
                self.begin_call(call, moment, effects);
                return false;
            }
            _ => return false,
        }
        match delivering.delivery.next(self.memory.isolation.as_ref()) {
            Step::Done => {
                self.page_done(effects);
                return true;
            }
            Step::Mark(search) => {
                delivering.stage = Stage::Marking;
                self.writes.set_search(Some(search), self.feed.page, true);
            }
            Step::DeadLetter(letter) => {
                delivering.stage = Stage::DeadLettering;
                effects.push(Effect::DeadLetter(letter));
            }
            Step::Pause(pause) => {
                let length = self.settings.retry.after(pause.failures, moment.random).max(pause.at_least);
                delivering.stage = Stage::Pausing(moment.now + length);
            }
            Step::Call(call) if self.settings.limits_calls => {
                delivering.stage = Stage::Permit(call, Permit::Awaited);
                effects.push(Effect::AwaitPermit);
            }
            Step::Call(call) => self.begin_call(call, moment, effects),
        }
        false
    }

    fn begin_call(&mut self, call: Call, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        let Work::Delivering(delivering) = &mut self.work else { return };
        delivering.stage = Stage::Calling(CallState {
            begun: moment.now,
            slow_at: moment.now + self.settings.slow_after,
            cancelled: false,
            dropped: None,
            slow: false,
        });
        crate::planted!(CheckpointBeforeDelegate => self.writes.checkpoint_soon(delivering.progress.clone()));
        let whole = call.items.len() == delivering.delivery.count();
        let progress = call.last.then(|| delivering.progress.clone());
        effects.push(Effect::Call { call, progress, whole });
        if self.may_read_ahead() {
            self.read_next(effects);
        }
    }

    /// The lease is about to be left: finishes the page if everything of it was handled.
    pub(super) fn finish_page(&mut self, signal: Signal, effects: &mut Vec<Effect>) -> Finished {
        let Work::Delivering(delivering) = &mut self.work else { return Finished::Nothing };
        if !matches!(delivering.stage, Stage::Between) || signal == Signal::Lost {
            return Finished::Nothing;
        }
        match delivering.delivery.next(self.memory.isolation.as_ref()) {
            Step::Done => {
                self.page_done(effects);
                Finished::Page
            }
            Step::DeadLetter(letter) if signal != Signal::Abort => {
                delivering.stage = Stage::DeadLettering;
                effects.push(Effect::DeadLetter(letter));
                Finished::LetterBegun
            }
            _ => Finished::Nothing,
        }
    }

    /// Whether a part of the page was handled and the rest can follow: no call is running, and nothing is waited for but the
    /// host's permit.
    pub(super) fn is_page_begun(&self) -> bool {
        let Work::Delivering(delivering) = &self.work else { return false };
        let waits = matches!(delivering.stage, Stage::Turn | Stage::Calling(_) | Stage::Pausing(_));
        !waits && delivering.delivery.has_handled()
    }

    /// Everything of the page was handled.
    fn page_done(&mut self, effects: &mut Vec<Effect>) {
        let Work::Delivering(delivering) = std::mem::replace(&mut self.work, Work::Next) else { return };
        let Delivering { delivery, progress, .. } = *delivering;
        let (isolated, count) = (delivery.is_isolated(), delivery.count());
        self.memory.outage = delivery.outage;
        self.writes.set_status(None);
        effects.push(Effect::DropPage);
        let automatic = !self.settings.policy.manual;
        match (automatic, isolated) {
            (true, false) => self.writes.checkpoint_soon(progress),
            (true, true) => self.writes.checkpoint_now(progress),
            (false, _) => {}
        }
        if isolated {
            effects.push(Effect::EndTurn);
        }
        if let Some(isolation) = self.memory.isolation.as_mut().filter(|_| isolated) {
            isolation.passed(count, automatic);
            let is_over = isolation.is_over();
            self.writes.set_search(isolation.mark_between(), self.feed.page + 1, is_over);
            if is_over {
                self.memory.isolation = None;
                self.memory.stale_mark = true;
            }
        }
    }

    /// The page is given up: it is read again.
    pub(super) fn drop_delivery(&mut self, delivering: Delivering, effects: &mut Vec<Effect>) {
        let Delivering { mut delivery, before, stage, .. } = delivering;
        match stage {
            Stage::Calling(_) => effects.push(Effect::DropCall),
            Stage::DeadLettering => effects.push(Effect::DropDeadLetter),
            Stage::Permit(..) => effects.push(Effect::DropPermit),
            _ => {}
        }
        if delivery.is_isolated() {
            effects.push(Effect::EndTurn);
        }
        crate::planted!(SplitFromReadPosition => self.writes.checkpoint_now(delivering.progress));
        delivery.outage.discard();
        self.memory.outage = delivery.outage;
        (self.feed.position, self.feed.end) = (before, None);
        self.feed.page -= 1;
    }

    pub(super) fn turn_taken(&mut self) {
        if let Work::Delivering(delivering) = &mut self.work
            && matches!(delivering.stage, Stage::Turn)
        {
            delivering.stage = Stage::Between;
        }
    }

    pub(super) fn call_permitted(&mut self) {
        if let Work::Delivering(delivering) = &mut self.work
            && let Stage::Permit(_, permit) = &mut delivering.stage
        {
            *permit = Permit::Granted;
        }
    }

    /// The lease was written: it names the next batch, or that there is none to name, if that was being done.
    pub(super) fn marked(&mut self) {
        if self.writes.has_search() {
            return;
        }
        self.memory.stale_mark = false;
        if let Work::Delivering(delivering) = &mut self.work
            && matches!(delivering.stage, Stage::Marking)
        {
            delivering.stage = Stage::Between;
        }
    }

    pub(super) fn called(&mut self, end: CallEnd, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        let Work::Delivering(delivering) = &mut self.work else { return };
        let Stage::Calling(call) = &delivering.stage else { return };
        let (dropped, slow) = (call.dropped, call.slow);
        delivering.stage = Stage::Between;
        if slow {
            self.writes.set_status(None);
        }
        if dropped.is_some_and(|dropped| dropped.blocked) {
            self.writes.set_renewing(true);
        }
        let result = match end {
            CallEnd::Returned(result) => result,
            CallEnd::Dropped if dropped.is_some_and(|dropped| dropped.timeout) => {
                let limit = self.settings.delegate_timeout.unwrap_or_default();
                Err(DelegateError::new(format!("the delegate did not return within {limit:?}")))
            }
            CallEnd::Dropped => return delivering.delivery.dropped(),
        };
        if self.signals.lost.is_some() {
            return delivering.delivery.dropped();
        }
        let report = delivering.delivery.finished(result, moment.now);
        if moment.now >= self.writes.deadline() {
            // The result counts only if the lease is still owned: a write tells.
            self.writes.retry_now();
        }
        let (narrowed, detected) = (delivering.delivery.take_narrowed(), delivering.delivery.outage.detected());
        if let Some((first, window)) = narrowed
            && self.memory.isolation.is_none()
            && let Some(first) = (moment.name)(first)
        {
            let search = Search { first: Some(first), window, ..Search::default() };
            self.writes.set_search(Some(search), self.feed.page, false);
        }
        self.report(report, detected, effects);
    }

    fn report(&mut self, report: Report, detected: u32, effects: &mut Vec<Effect>) {
        let Report { error, retrying, outage, attempts } = report;
        if let Some(error) = error {
            self.notify_error(Failure::Delegate(Arc::new(error)), effects);
        }
        if let Some(reason) = outage {
            let error = one_line(&reason);
            self.writes.set_status(Some(Status::Outage { detected, error }));
            effects.push(Effect::Notify(Notification::Outage { lease: self.token.clone(), reason }));
        } else if let Some(Retrying { failures, reason }) = retrying {
            let (of, error) = (self.settings.policy.attempts, one_line(&reason));
            self.writes.set_status(Some(Status::Retrying { attempts: failures, of, error }));
            let after = self.settings.stalled_after;
            let doubled = (failures / after).is_power_of_two() && failures.is_multiple_of(after);
            if doubled {
                let lease = self.token.clone();
                effects.push(Effect::Notify(Notification::Stalled { lease, attempts: failures, reason }));
            }
        }
        if let Some(attempts) = attempts {
            self.memory.attempts = 0;
            self.writes.set_attempts(attempts);
        }
    }

    pub(super) fn dead_lettered(&mut self, stored: Result<(), Error>, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        let Work::Delivering(delivering) = &mut self.work else { return };
        if !matches!(delivering.stage, Stage::DeadLettering) {
            return;
        }
        match crate::planted!(CheckpointBeforeDeadLetter => Ok(()); stored) {
            Ok(()) => {
                delivering.letter_failures = 0;
                delivering.stage = Stage::Between;
                let item = delivering.delivery.dead_lettered();
                let name = item.and_then(|item| delivering.delivery.name(item));
                if let (Some(isolation), Some(name)) = (&mut self.memory.isolation, name)
                    && isolation.action_for(name) != crate::delivery::crash_isolation::ItemAction::Deliver
                {
                    isolation.dead_lettered(name);
                }
            }
            Err(error) => {
                delivering.letter_failures += 1;
                let pause = self.settings.store_retry.after(delivering.letter_failures, moment.random);
                delivering.stage = Stage::Pausing(moment.now + pause);
                self.writes.set_status(Some(Status::DeadLetterFailing { error: one_line(&format!("{error:?}")) }));
                self.notify_error(Failure::DeadLetter(Arc::new(error)), effects);
            }
        }
    }

    pub(super) fn expire_delivery_timers(&mut self, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        let Work::Delivering(delivering) = &mut self.work else { return };
        match &mut delivering.stage {
            Stage::Pausing(until) if *until <= moment.now => delivering.stage = Stage::Between,
            Stage::Calling(call) => {
                let running = moment.now.saturating_sub(call.begun);
                let over = self.settings.delegate_timeout.is_some_and(|limit| running >= limit);
                match &mut call.dropped {
                    None if over => {
                        call.dropped = Some(Dropped { at: moment.now, timeout: true, blocked: false });
                        effects.push(Effect::DropCall);
                    }
                    None if moment.now >= call.slow_at => {
                        call.slow = true;
                        // Reported again whenever the time has doubled.
                        let running = call.slow_at.saturating_sub(call.begun);
                        call.slow_at += running;
                        let (lease, seconds) = (self.token.clone(), running.as_secs());
                        self.writes.set_status(Some(Status::Calling { seconds }));
                        effects.push(Effect::Notify(Notification::Slow { lease, running }));
                    }
                    Some(dropped) if !dropped.blocked && moment.now >= dropped.at + blocked_after(&self.settings) => {
                        dropped.blocked = true;
                        if dropped.timeout {
                            // Others must be able to take the lease: a thread cannot be interrupted.
                            self.writes.set_renewing(false);
                            let message = format!(
                                "the delegate blocks its thread {running:?} after it was called: the lease is given \
                                 up; use spawn_blocking for blocking work"
                            );
                            self.notify_error(Failure::Delegate(Arc::new(DelegateError::new(message))), effects);
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Lets `Context::cancelled` fire, once.
    pub(super) fn cancel_call(&mut self, effects: &mut Vec<Effect>) {
        if let Work::Delivering(delivering) = &mut self.work
            && let Stage::Calling(call) = &mut delivering.stage
            && !std::mem::replace(&mut call.cancelled, true)
        {
            effects.push(Effect::CancelCall);
        }
    }

    /// Drops the call. Returns whether its end is to be waited for.
    pub(super) fn drop_call(&mut self, now: Duration, effects: &mut Vec<Effect>) -> bool {
        let Work::Delivering(delivering) = &mut self.work else { return false };
        let Stage::Calling(call) = &mut delivering.stage else { return false };
        match call.dropped {
            None => {
                call.dropped = Some(Dropped { at: now, timeout: false, blocked: false });
                let message = "the call was cut by the stop deadline: its batch will be delivered again";
                let failure = Failure::Delegate(Arc::new(DelegateError::new(message)));
                effects.extend([
                    Effect::CancelCall,
                    Effect::DropCall,
                    Effect::Notify(Notification::error(Some(self.token.clone()), failure)),
                ]);
                true
            }
            Some(dropped) => !dropped.blocked,
        }
    }

    /// Whether a call was dropped and blocks its thread.
    pub(super) fn is_blocked(&self) -> bool {
        let Work::Delivering(delivering) = &self.work else { return false };
        let Stage::Calling(call) = &delivering.stage else { return false };
        call.dropped.is_some_and(|dropped| dropped.blocked)
    }
}
