//! One call of the delegate: in a task of its own, watched.

use std::{sync::Arc, time::Duration};

use changefeed_core::Change;
use tokio::sync::{oneshot, watch};

use crate::{
    context::{Context, Inner},
    delegate::{DelegateError, Verdict},
    deliver::{Delivery, Piece, told},
    notification::Notification,
    raw::RawChanges,
};

/// What became of one call.
pub(crate) enum Called {
    Verdict(Verdict),
    Failed(DelegateError),
    GivenUp,
}

/// When to look at a call that has not returned.
struct Alarm {
    limit: Option<Duration>,
    /// For how long it has been running when the alarm goes off.
    running: Duration,
    slow: Duration,
}

impl Alarm {
    fn new(limit: Option<Duration>, slow: Duration) -> Self {
        Self { limit, running: Duration::ZERO, slow }
    }

    /// How long to sleep until the next alarm: slow calls are told of again whenever their time has doubled.
    fn next(&mut self) -> Duration {
        if !self.running.is_zero() {
            self.slow = self.running.saturating_mul(2);
        }
        let at = self.limit.map_or(self.slow, |limit| limit.min(self.slow));
        let pause = at.saturating_sub(self.running);
        self.running = at;
        pause
    }

    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.running >= limit)
    }
}

impl Delivery<'_> {
    /// Calls the delegate, in a task of its own: it may panic, and it may never return.
    pub(crate) async fn call(&mut self, piece: &Piece, last: bool) -> Called {
        let shared = self.shared;
        if !self.keeper.fence.holds(shared.runtime.monotonic()) {
            return Called::GivenUp;
        }
        let changes = self.changes.slice(piece.items.clone());
        let (cancel, cancelled) = watch::channel(false);
        let context = self.context(&changes, piece.failures + 1, last, cancelled);
        let delegate = Arc::clone(&shared.delegate);
        let (reply, mut answer) = oneshot::channel();
        let whole = changes.len() == self.changes.len();
        let (loan, mut back) = Loan::of(std::mem::take(&mut self.changes));
        let task = async move {
            let verdict = delegate.call(changes, context).await;
            if whole && matches!(verdict, Ok(Verdict::Done)) {
                loan.keep();
            } else {
                drop(loan);
            }
            drop(reply.send(verdict));
        };
        let name = format!("delegate[{}/{}]", shared.name, self.lease);
        let mut handle = AbortOnDrop(shared.runtime.spawn(&name, Box::pin(task)));
        let mut alarm = Alarm::new(shared.options.delegate_timeout, shared.options.slow_after());
        let mut timer = shared.runtime.sleep(alarm.next());
        let mut fence = self.keeper.fence.clone();
        let mut hurry = self.hurry.clone();
        let (mut warned, mut slow) = (false, false);
        let ended = loop {
            tokio::select! {
                biased;
                verdict = &mut answer => {
                    if slow {
                        self.keeper.state(None).await;
                    }
                    let called = match verdict {
                        Ok(verdict) => called(verdict),
                        Err(_) => Called::Failed(DelegateError::new(panic_message(handle).await)),
                    };
                    self.changes = back.try_recv().unwrap_or_default();
                    return called;
                }
                () = &mut timer => {
                    if alarm.is_over() {
                        let message = format!("the delegate did not return within {:?}", alarm.running);
                        break Called::Failed(DelegateError::new(message));
                    }
                    slow = true;
                    self.report_slow(alarm.running);
                    timer = shared.runtime.sleep(alarm.next());
                }
                () = told(&mut hurry) => break Called::GivenUp,
                () = fence.until(|status| status.lost.is_some()), if !warned => {
                    // The call may finish, but what it does will be done again by the new owner.
                    warned = true;
                    cancel.send_replace(true);
                }
            }
        };
        handle.end().await;
        self.changes = back.try_recv().unwrap_or_default();
        // It may have returned before it could be ended: what it has done need not be done again.
        answer.try_recv().map_or(ended, called)
    }

    fn context(&self, changes: &[Change], attempt: u32, last: bool, cancelled: watch::Receiver<bool>) -> Context {
        let lsn = |change: Option<&Change>| change.map(|change| change.lsn).unwrap_or_default();
        Context {
            inner: Arc::new(Inner {
                lease: self.lease.clone(),
                range: self.range.clone(),
                instance: Arc::clone(&self.shared.instance),
                attempt,
                first_lsn: lsn(changes.first()),
                last_lsn: lsn(changes.last()),
                request_charge: self.request_charge,
                cancelled,
                keeper: self.keeper.clone(),
                progress: last.then(|| self.progress.clone()),
            }),
        }
    }

    /// Says that a call is slow, in the lease as well.
    fn report_slow(&self, running: Duration) {
        self.keeper.say(format!("delegate running for more than {running:?}"));
        self.shared.notifier.notify(Notification::Slow { lease: self.lease.clone(), running });
    }
}

fn called(verdict: Result<Verdict, DelegateError>) -> Called {
    match verdict {
        Ok(verdict) => Called::Verdict(verdict),
        Err(error) => Called::Failed(error),
    }
}

/// A page that is lent to a call. It comes back however the call ends, to be tried again or buried, unless the call
/// keeps it because all of it was handled. So it is gone with the call: whoever waits for the answer may have to wait
/// for its turn, and a page is large enough to drive what others read out of the caches.
struct Loan {
    changes: RawChanges,
    back: Option<oneshot::Sender<RawChanges>>,
}

impl Loan {
    fn of(changes: RawChanges) -> (Self, oneshot::Receiver<RawChanges>) {
        let (back, returned) = oneshot::channel();
        (Self { changes, back: Some(back) }, returned)
    }

    fn keep(mut self) {
        self.back = None;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            drop(back.send(std::mem::take(&mut self.changes)));
        }
    }
}

/// Ends a task with its handle.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl AbortOnDrop {
    /// Ends the task, and waits until it has ended: two calls for one lease must not run at once.
    async fn end(&mut self) {
        self.0.abort();
        drop((&mut self.0).await);
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn panic_message(mut handle: AbortOnDrop) -> String {
    let text = match (&mut handle.0).await {
        Err(error) if error.is_panic() => {
            let panic = error.into_panic();
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| panic.downcast_ref::<String>().cloned())
        }
        _ => None,
    };
    format!("the delegate panicked: {}", text.as_deref().unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarms(limit: Option<u64>, slow: u64) -> Vec<(u64, bool)> {
        let mut alarm = Alarm::new(limit.map(Duration::from_secs), Duration::from_secs(slow));
        let mut slept = 0;
        let mut seen = Vec::new();
        while seen.len() < 4 && !alarm.is_over() {
            slept += alarm.next().as_secs();
            seen.push((slept, alarm.is_over()));
        }
        seen
    }

    #[test]
    fn slow_calls_are_told_of_at_each_doubling_until_the_limit() {
        assert_eq!(alarms(None, 30), [(30, false), (60, false), (120, false), (240, false)]);
        assert_eq!(alarms(Some(100), 30), [(30, false), (60, false), (100, true)]);
        assert_eq!(alarms(Some(20), 30), [(20, true)]);
    }

    #[test]
    fn a_page_comes_back_however_its_call_ends_unless_it_was_handled() {
        let lend = || Loan::of(vec![crate::raw::tests::change(7)].into());
        let (loan, mut back) = lend();
        drop(loan);
        assert_eq!(back.try_recv().unwrap().len(), 1);
        let (loan, mut back) = lend();
        loan.keep();
        back.try_recv().unwrap_err();
        let (loan, mut back) = lend();
        let call = std::thread::spawn(move || {
            let _loan = loan;
            panic!("on purpose");
        });
        call.join().unwrap_err();
        assert_eq!(back.try_recv().unwrap().len(), 1);
    }
}
