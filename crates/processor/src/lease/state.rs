//! The life of a lease on this host, as a state machine: events go in, effects come out. Pure.
//!
//! What interrupts what is decided by one table, [`interrupt`]. Reading, delivering, retrying and splitting never look at
//! signals themselves.

mod deliver;
mod delivering;
mod feed;
mod settings;
mod split;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use changefeed_core::{Continuation, Error, StartFrom};

use self::delivering::{Delivering, Finished, Stage};
pub(crate) use self::settings::Settings;
use super::{
    document::Search,
    events::{Effect, Event, Facts, Moment, Page, Written},
    interrupts::{Activity, Interrupt, Leave, Signal, interrupt, leave},
    loss::Loss,
    prefix::LeaseToken,
    update::{LeaseUpdate, Transfer},
    writes::Writes,
};
use crate::{
    delivery::{crash_isolation::CrashIsolation, outage::OutageDetector},
    notification::{Failure, Notification, Release},
};

/// Where the work on a lease begins.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) token: LeaseToken,
    pub(crate) position: StartFrom,
    /// The checkpoint in the lease.
    pub(crate) continuation: Option<String>,
    /// How often the batch after it has failed.
    pub(crate) attempts: u32,
    /// The position of the search for poison items.
    pub(crate) search: Option<Search>,
    /// When the write that acquired the lease was begun.
    pub(crate) confirmed: Duration,
    pub(crate) facts: Facts,
}

/// The life of one lease on this host.
pub(crate) struct LeaseState {
    settings: Arc<Settings>,
    token: LeaseToken,
    work: Work,
    writes: Writes,
    signals: Signals,
    feed: Feed,
    memory: Memory,
}

/// What the lease is doing.
enum Work {
    /// Nothing: the next page is to be taken or read.
    Next,
    /// A page is being read.
    Reading,
    /// Everything was delivered: changes are waited for.
    Waiting,
    /// Until this moment nothing is read.
    ReadPause(Duration),
    Delivering(Box<Delivering>),
    Splitting(Splitting),
    /// The write that ends the ownership is due or in flight.
    Leaving(Leave, Signal),
    Ended,
}

/// How far the replacement of the lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Splitting {
    /// Ranges and leases are being read.
    Preparing,
    /// They are known; the write in flight comes first.
    Ready,
    Replacing,
    /// Until this moment nothing is done.
    Paused(Duration),
}

/// Signals that have come.
#[derive(Debug, Default)]
struct Signals {
    stop: bool,
    abort: bool,
    lost: Option<Loss>,
    range_gone: bool,
    facts: Facts,
}

/// Where the lease is in its feed.
#[derive(Debug)]
struct Feed {
    /// Where the next page begins.
    position: StartFrom,
    /// The number of the last page.
    page: u64,
    /// Whether a read is under way.
    reading: bool,
    /// A page that was read ahead.
    ahead: Option<Page>,
    /// Where the page that is being delivered ends, if nothing came after it when it was read: then changes are waited for,
    /// and no page is read that would be empty.
    end: Option<Continuation>,
    failures: u32,
    caught_up: bool,
}

/// What is remembered from page to page.
#[derive(Debug)]
struct Memory {
    /// Failed attempts of the next page, by earlier owners.
    attempts: u32,
    /// An earlier owner's search for an item that fails.
    search: Option<Search>,
    isolation: Option<CrashIsolation>,
    /// Isolation is over, and the lease may still name the last isolated batch: a crash now would count against it.
    stale_mark: bool,
    outage: OutageDetector,
    split_failures: u32,
}

impl LeaseState {
    /// A lease that was just acquired. The first event is [`Event::Tick`].
    pub(crate) fn new(settings: Arc<Settings>, start: Start) -> Self {
        let Start { token, position, continuation, attempts, search, confirmed, facts } = start;
        let isolation = CrashIsolation::resume(search.as_ref(), attempts, settings.policy, settings.max_items);
        let search = search.filter(|search| isolation.is_none() && search.first.is_some());
        let attempts = if isolation.is_some() { 0 } else { attempts };
        let outage = settings.outage.clone();
        Self {
            writes: Writes::new(settings.timing, settings.checkpoint_interval, confirmed, continuation),
            settings,
            token,
            work: Work::Next,
            signals: Signals { facts, ..Signals::default() },
            feed: Feed { position, page: 0, reading: false, ahead: None, end: None, failures: 0, caught_up: false },
            memory: Memory { attempts, search, isolation, stale_mark: false, outage, split_failures: 0 },
        }
    }

    /// Takes in an event and returns what to do about it, in order.
    pub(crate) fn on(&mut self, event: Event, moment: Moment<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.take_in(event, moment, &mut effects);
        self.expire_timers(moment, &mut effects);
        self.check_deadline(moment);
        self.answer_after_loss(&mut effects);
        self.proceed(moment, &mut effects);
        self.write(moment, &mut effects);
        effects
    }

    /// When [`Event::Tick`] must come, after an event at `now`, if nothing else does before; `None` after the end.
    pub(crate) fn wake_at(&self, now: Duration) -> Option<Duration> {
        let work = match &self.work {
            Work::Ended => return None,
            Work::ReadPause(until) | Work::Splitting(Splitting::Paused(until)) => Some(*until),
            Work::Delivering(delivering) => delivering.wake_at(&self.settings),
            _ => None,
        };
        let moments = work.into_iter().chain(self.writes.due_at()).chain([self.writes.deadline()]);
        // What is due by now was dealt with, or waits for something else.
        moments.filter(|at| *at > now).min()
    }

    /// What the lease is doing, for the table of interrupts.
    pub(crate) fn activity(&self) -> Activity {
        match &self.work {
            Work::Next | Work::Reading | Work::Waiting | Work::ReadPause(_) | Work::Leaving(..) | Work::Ended => {
                Activity::Reading
            }
            Work::Splitting(Splitting::Replacing) => Activity::Splitting,
            Work::Splitting(_) => Activity::Reading,
            Work::Delivering(delivering) => match delivering.stage {
                Stage::Calling(_) => Activity::Calling,
                Stage::DeadLettering | Stage::Marking => Activity::DeadLettering,
                Stage::Between | Stage::Turn | Stage::Permit(..) | Stage::Pausing(_) => Activity::Pausing,
            },
        }
    }

    fn take_in(&mut self, event: Event, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        match event {
            Event::Stop => self.signals.stop = true,
            Event::Abort => {
                if !self.signals.abort && !matches!(self.work, Work::Ended) {
                    effects.push(Effect::Interrupted(self.activity()));
                }
                (self.signals.stop, self.signals.abort) = (true, true);
            }
            Event::Refresh => self.writes.refresh(),
            Event::CheckRange => self.signals.range_gone = true,
            Event::Superseded => self.signals.lost = Some(Loss::Superseded),
            Event::Checkpoint(progress, waiter) => {
                if let Some(loss) = &self.signals.lost {
                    effects.push(Effect::Reply(vec![waiter], Err(loss.clone())));
                } else if self.writes.checkpoint_for(progress, waiter) {
                    effects.push(Effect::Reply(vec![waiter], Ok(())));
                }
            }
            Event::Read(page) => self.read(page, moment, effects),
            Event::Changed => {
                if matches!(self.work, Work::Waiting) {
                    self.work = Work::Next;
                    effects.push(Effect::StopWaiting);
                }
            }
            Event::Called(end) => self.called(end, moment, effects),
            Event::Wrote(written) => self.wrote(written, moment, effects),
            Event::DeadLettered(stored) => self.dead_lettered(stored, moment, effects),
            Event::TurnTaken => self.turn_taken(),
            Event::CallPermitted => self.call_permitted(),
            Event::SplitReady(ready) => self.split_ready(ready, moment, effects),
            Event::Replaced(replacement) => self.replaced(replacement, moment, effects),
            Event::Tick => {}
        }
    }

    fn expire_timers(&mut self, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        match &mut self.work {
            Work::ReadPause(until) if *until <= moment.now => self.work = Work::Next,
            Work::Splitting(Splitting::Paused(until)) if *until <= moment.now => {
                self.work = Work::Splitting(Splitting::Preparing);
                effects.push(Effect::PrepareSplit);
            }
            Work::Delivering(_) => self.expire_delivery_timers(moment, effects),
            _ => {}
        }
    }

    /// Past the own deadline the lease is lost, unless a renewal is under way or worth another attempt.
    fn check_deadline(&mut self, moment: Moment<'_>) {
        let waits = self.writes.is_in_flight() || self.writes.due_at().is_some_and(|at| at <= moment.now);
        let works = self.is_worth_renewing() && self.writes.due_at().is_some();
        if self.is_fenced(moment.now) && !waits && !works && self.signals.lost.is_none() {
            self.signals.lost = Some(if self.is_blocked() { Loss::Blocked } else { Loss::Expired });
        }
    }

    /// Whether the renewal is tried again past the own deadline: if something would be delivered twice otherwise. The
    /// lease may still be owned when the store is back, and a write tells. A stop waits for that until its deadline.
    fn is_worth_renewing(&self) -> bool {
        crate::planted!(ProgressDroppedAtDeadline =>
            return matches!(self.activity(), Activity::Calling | Activity::Splitting));
        if matches!(self.activity(), Activity::Calling | Activity::Splitting) {
            return true;
        }
        let handled = matches!(&self.work, Work::Delivering(delivering) if delivering.delivery.has_handled());
        (handled || self.writes.has_unsaved_progress()) && !self.signals.abort
    }

    /// Nothing is written after a loss: a call that waits for its checkpoint must not wait without limit.
    fn answer_after_loss(&mut self, effects: &mut Vec<Effect>) {
        if let Some(loss) = &self.signals.lost {
            let waiters = self.writes.abandon();
            if !waiters.is_empty() {
                effects.push(Effect::Reply(waiters, Err(loss.clone())));
            }
        }
    }

    fn is_fenced(&self, now: Duration) -> bool {
        now >= self.writes.deadline()
    }

    /// The strongest signal that has come.
    fn signal(&self, now: Duration) -> Option<Signal> {
        let Signals { stop, abort, lost, range_gone, facts } = &self.signals;
        let table = [
            (lost.is_some(), Signal::Lost),
            (*abort, Signal::Abort),
            (*stop, Signal::Stop),
            (facts.paused, Signal::Paused),
            (facts.requested_by.is_some(), Signal::Requested),
            (self.is_fenced(now), Signal::Fenced),
            (*range_gone, Signal::RangeGone),
        ];
        table.into_iter().find(|(came, _)| *came).map(|(_, signal)| signal)
    }

    /// Obeys the strongest signal, or goes on with the work.
    fn proceed(&mut self, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        loop {
            if matches!(self.work, Work::Ended) {
                return;
            }
            let signal = self.signal(moment.now);
            if let Work::Leaving(..) = self.work {
                if let Some(loss) = self.signals.lost.take() {
                    self.end(Release::Lost(loss), effects);
                }
                return;
            }
            // Past the own deadline nothing is decided about signals but the loss: the lease may not be owned any more.
            let signal = signal.map(|signal| match signal {
                Signal::Stop | Signal::Paused | Signal::Requested | Signal::RangeGone if self.is_fenced(moment.now) => {
                    Signal::Fenced
                }
                signal => signal,
            });
            let progressed = match signal {
                // It is obeyed already.
                Some(Signal::RangeGone) if matches!(self.work, Work::Splitting(_)) => return,
                // It was read before the range was gone, and its children would deliver what was handled again.
                Some(Signal::RangeGone) if self.is_page_begun() => self.go_on(moment, effects) || !self.is_page_begun(),
                None => self.go_on(moment, effects),
                Some(signal) => match interrupt(signal, self.activity()) {
                    Interrupt::Hold => return,
                    Interrupt::Finish => {
                        // The host keeps what comes after a split: a call has no reason to end early.
                        if signal != Signal::RangeGone {
                            self.cancel_call(effects);
                        }
                        return;
                    }
                    Interrupt::Discard => {
                        self.cancel_call(effects);
                        if !self.is_blocked() {
                            return;
                        }
                        self.leave(signal, effects);
                        true
                    }
                    Interrupt::Drop => {
                        if self.drop_call(moment.now, effects) {
                            return;
                        }
                        match self.finish_page(signal, effects) {
                            Finished::Page => {}
                            Finished::LetterBegun => return,
                            Finished::Nothing => self.leave(signal, effects),
                        }
                        true
                    }
                },
            };
            if !progressed {
                return;
            }
        }
    }

    /// Drops what is under way and leaves the lease as the signal says.
    fn leave(&mut self, signal: Signal, effects: &mut Vec<Effect>) {
        self.drop_work(effects);
        match leave(signal) {
            Leave::Abandon => {
                let loss = self.signals.lost.clone().unwrap_or(Loss::Expired);
                self.end(Release::Lost(loss), effects);
            }
            how @ (Leave::Release | Leave::Grant) => {
                self.work = Work::Leaving(how, signal);
                self.writes.transfer(if how == Leave::Grant { Transfer::Grant } else { Transfer::Release });
            }
            Leave::Split => {
                self.work = Work::Splitting(Splitting::Preparing);
                effects.push(Effect::PrepareSplit);
            }
            Leave::Stay => {}
        }
    }

    /// Drops what is under way. A page that was not finished is read again.
    fn drop_work(&mut self, effects: &mut Vec<Effect>) {
        match std::mem::replace(&mut self.work, Work::Next) {
            Work::Waiting => effects.push(Effect::StopWaiting),
            Work::Splitting(_) => effects.push(Effect::DropSplit),
            Work::Delivering(delivering) => self.drop_delivery(*delivering, effects),
            _ => {}
        }
        if self.feed.reading || self.feed.ahead.is_some() {
            (self.feed.reading, self.feed.ahead) = (false, None);
        }
        self.feed.end = None;
        effects.push(Effect::DropPages);
    }

    fn end(&mut self, release: Release, effects: &mut Vec<Effect>) {
        self.drop_work(effects);
        self.work = Work::Ended;
        let loss = match &release {
            Release::Lost(loss) => loss.clone(),
            _ => Loss::Taken { by: None },
        };
        effects.push(Effect::Reply(self.writes.abandon(), Err(loss)));
        effects.push(Effect::End(release));
    }

    /// Begins the write that is due.
    fn write(&mut self, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        crate::planted!(CallNotRenewed => if self.activity() == Activity::Calling { return });
        let due = self.writes.due_at().is_some_and(|at| at <= moment.now);
        match self.work {
            Work::Ended | Work::Splitting(Splitting::Replacing) => {}
            Work::Splitting(Splitting::Ready) if !self.writes.is_in_flight() => {
                self.work = Work::Splitting(Splitting::Replacing);
                effects.push(Effect::Replace(self.writes.begin(moment.now)));
            }
            _ if due && self.signals.lost.is_none() => effects.push(Effect::Write(self.writes.begin(moment.now))),
            _ => {}
        }
    }

    fn wrote(&mut self, written: Written, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        match written {
            Written::Owned(facts) => {
                self.confirmed(facts, effects);
                if let Work::Leaving(Leave::Grant, _) = self.work {
                    // Nobody asks any more.
                    self.work = Work::Next;
                }
                self.marked();
            }
            Written::Transferred(to) => {
                self.confirmed(Facts::default(), effects);
                let release = match (&self.work, to) {
                    (_, Some(to)) => {
                        let lease = self.token.clone();
                        effects.push(Effect::Notify(Notification::HandedOver { lease, to: to.clone() }));
                        Release::HandedOver(to)
                    }
                    (Work::Leaving(_, Signal::Paused), None) => Release::Paused,
                    (_, None) => Release::Stopped,
                };
                self.end(release, effects);
            }
            Written::Lost(loss) => self.signals.lost = Some(loss),
            Written::Failed(update, error) => self.write_failed(&update, error, moment, effects),
        }
    }

    fn confirmed(&mut self, facts: Facts, effects: &mut Vec<Effect>) {
        crate::planted!(SlowReadDropped => if matches!(self.work, Work::Reading) { self.drop_work(effects) });
        let before = self.writes.continuation().map(str::to_owned);
        let stored = self.writes.succeeded(facts.confirmed);
        if self.settings.policy.manual && before.as_deref() != self.writes.continuation() {
            let isolation = self.memory.isolation.take();
            self.memory.isolation = isolation.and_then(|isolation| isolation.after_checkpoint(self.settings.max_items));
        }
        self.signals.facts = facts;
        if !stored.is_empty() {
            effects.push(Effect::Reply(stored, Ok(())));
        }
    }

    fn write_failed(&mut self, update: &LeaseUpdate, error: Error, moment: Moment<'_>, effects: &mut Vec<Effect>) {
        self.writes.failed(update, moment.now, moment.random);
        self.writes.not_before(moment.now + error.retry_after().unwrap_or_default());
        self.notify_error(Failure::Lease(Arc::new(error)), effects);
        if self.is_fenced(moment.now) && !self.is_worth_renewing() {
            self.signals.lost = Some(Loss::Expired);
        }
    }

    fn notify_error(&self, failure: Failure, effects: &mut Vec<Effect>) {
        effects.push(Effect::Notify(Notification::error(Some(self.token.clone()), failure)));
    }
}
