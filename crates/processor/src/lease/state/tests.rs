//! What each signal does to each activity, as effects; deadlines; retries of writes; splits.

use changefeed_core::{Continuation, Error, ErrorKind};

use super::*;
use crate::lease::events::Replacement;
use crate::{
    backoff::Backoff,
    delegate::{BatchResult, DelegateError, Returned},
    delivery::Policy,
    lease::{events::CallEnd, timing::LeaseTiming},
};

const SECOND: Duration = Duration::from_secs(1);

/// The beginning of time: not zero, so that code that takes zero for "never" shows.
const BEGIN: Duration = Duration::from_secs(1000);

/// Drives a state by hand.
struct Driver {
    state: LeaseState,
    now: Duration,
}

fn settings(attempts: Option<u32>) -> Settings {
    let timing = LeaseTiming { acquire: SECOND, renew: 2 * SECOND, expiration: 10 * SECOND };
    Settings {
        checkpoint_interval: Duration::ZERO,
        timing,
        policy: Policy { attempts, ..Policy::default() },
        outage: OutageDetector::new(3, None),
        retry: Backoff { first: SECOND, longest: SECOND },
        store_retry: Backoff { first: SECOND, longest: SECOND },
        max_items: 100,
        delegate_timeout: None,
        slow_after: 30 * SECOND,
        stalled_after: 3,
        limits_calls: false,
    }
}

impl Driver {
    fn new(settings: Settings) -> Self {
        Self::resuming(settings, None)
    }

    /// A state that continues what an earlier owner searched for.
    fn resuming(settings: Settings, search: Option<Search>) -> Self {
        let start = Start {
            token: "0".parse().unwrap(),
            position: StartFrom::Beginning,
            continuation: None,
            attempts: 0,
            search,
            confirmed: BEGIN,
            facts: Facts::default(),
        };
        let mut driver = Self { state: LeaseState::new(Arc::new(settings), start), now: BEGIN };
        assert_eq!(driver.on(Event::Tick), ["Read"]);
        driver
    }

    /// The names of the effects.
    fn on(&mut self, event: Event) -> Vec<String> {
        let name = |item: usize| Some(format!("{item}:x"));
        let moment = Moment { now: self.now, random: 512, name: &name };
        let effects = self.state.on(event, moment);
        effects.iter().map(name_of).collect()
    }

    fn page(&mut self, count: usize) -> Vec<String> {
        let continuation = Continuation::from_token(format!("\"{}\"", self.state.feed.page + 1));
        self.on(Event::Read(Page::Changes { count, continuation, last: false }))
    }

    fn done(&mut self) -> Vec<String> {
        self.on(Event::Called(CallEnd::Returned(Ok(Returned { result: BatchResult::Done, unparsed: None }))))
    }

    fn fail(&mut self) -> Vec<String> {
        self.on(Event::Called(CallEnd::Returned(Err(DelegateError::new("down")))))
    }

    fn wrote(&mut self, facts: Facts) -> Vec<String> {
        self.on(Event::Wrote(Written::Owned(facts)))
    }

    fn pass(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.on(Event::Tick)
    }

    /// A state with this activity under way and no write in flight.
    fn doing(activity: Activity) -> Self {
        let mut driver = Self::new(settings(Some(2)));
        match activity {
            Activity::Reading => {}
            Activity::Calling => assert_eq!(driver.page(1), ["Call", "Read"]),
            Activity::Pausing => {
                driver.page(1);
                driver.fail();
            }
            Activity::DeadLettering => {
                driver.page(1);
                driver.fail();
                driver.pass(2 * SECOND);
                driver.wrote(Facts::default());
                assert!(driver.fail().contains(&"DeadLetter".to_owned()));
            }
            Activity::Splitting => {
                driver.on(Event::Read(Page::Gone));
                assert_eq!(driver.on(Event::SplitReady(Ok(()))), ["Replace"]);
            }
        }
        assert_eq!(driver.state.activity(), activity);
        driver
    }
}

/// The name of an effect; for writes with how they end the ownership.
fn name_of(effect: &Effect) -> String {
    match effect {
        Effect::Write(LeaseUpdate { transfer: Some(transfer), progress, .. }) => {
            format!("{transfer:?}{}", if progress.is_some() { " with progress" } else { "" })
        }
        Effect::Write(LeaseUpdate { read_first: true, .. }) => "ReadAndWrite".to_owned(),
        Effect::End(release) => format!("End({release:?})"),
        Effect::Notify(Notification::Error(report)) => format!("Error({})", report.failure),
        other => {
            let text = format!("{other:?}");
            text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

fn requested() -> Facts {
    Facts { requested_by: Some("b".into()), ..Facts::default() }
}

fn paused() -> Facts {
    Facts { paused: true, ..Facts::default() }
}

#[test]
fn a_stop_drops_what_is_not_a_call_and_waits_for_a_call_and_a_dead_letter() {
    let mut reading = Driver::doing(Activity::Reading);
    assert_eq!(reading.on(Event::Stop), ["DropPages", "Release"]);
    let mut calling = Driver::doing(Activity::Calling);
    assert_eq!(calling.on(Event::Stop), ["CancelCall"]);
    assert_eq!(calling.done(), ["DropPage", "DropPages", "Release with progress"]);
    let mut pausing = Driver::doing(Activity::Pausing);
    assert_eq!(pausing.on(Event::Stop), ["DropPages", "Release"]);
    let mut letter = Driver::doing(Activity::DeadLettering);
    assert_eq!(letter.on(Event::Stop), Vec::<String>::new());
    assert_eq!(letter.on(Event::DeadLettered(Ok(()))), ["DropPage", "DropPages", "Release with progress"]);
    let mut splitting = Driver::doing(Activity::Splitting);
    assert_eq!(splitting.on(Event::Stop), Vec::<String>::new());
    assert_eq!(splitting.on(Event::Replaced(Replacement::Interrupted(Facts::default()))), ["DropPages", "Release"]);
}

#[test]
fn a_call_that_fails_during_a_stop_is_not_repeated() {
    let mut calling = Driver::doing(Activity::Calling);
    calling.on(Event::Stop);
    let effects = calling.fail();
    assert_eq!(effects.last().unwrap(), "Release");
    assert!(!effects.contains(&"Call".to_owned()), "{effects:?}");
}

#[test]
fn an_abort_cuts_a_call_and_releases_without_its_progress() {
    let mut calling = Driver::doing(Activity::Calling);
    calling.on(Event::Stop);
    let effects = calling.on(Event::Abort);
    assert!(effects.contains(&"DropCall".to_owned()) && effects.contains(&"Interrupted".to_owned()), "{effects:?}");
    assert_eq!(calling.on(Event::Called(CallEnd::Dropped)), ["DropPages", "Release"]);
    // A call that blocks its thread is not waited for.
    let mut blocked = Driver::doing(Activity::Calling);
    blocked.on(Event::Abort);
    assert!(blocked.pass(2 * SECOND).contains(&"Release".to_owned()));
    let mut letter = Driver::doing(Activity::DeadLettering);
    assert!(letter.on(Event::Abort).contains(&"DropDeadLetter".to_owned()));
}

#[test]
fn a_pause_takes_effect_while_a_batch_fails() {
    let mut pausing = Driver::doing(Activity::Pausing);
    pausing.on(Event::Refresh);
    assert_eq!(pausing.wrote(paused()), ["DropPages", "Release"]);
    assert_eq!(pausing.on(Event::Wrote(Written::Transferred(None))).last().unwrap(), "End(Paused)");
}

#[test]
fn a_request_is_granted_after_the_call_however_long_it_takes() {
    let mut calling = Driver::doing(Activity::Calling);
    assert_eq!(calling.on(Event::Refresh), ["ReadAndWrite"], "a write without a read would be refused");
    assert_eq!(calling.wrote(requested()), ["CancelCall"]);
    for _ in 0..100 {
        // It is renewed all the time.
        assert_eq!(calling.pass(2 * SECOND).last().unwrap(), "Write");
        calling.wrote(requested());
    }
    assert_eq!(calling.done(), ["DropPage", "DropPages", "Grant with progress"]);
    let effects = calling.on(Event::Wrote(Written::Transferred(Some("b".into()))));
    assert_eq!(effects.last().unwrap(), "End(HandedOver(\"b\"))");
}

#[test]
fn a_lease_stays_if_nobody_asks_for_it_any_more() {
    let mut reading = Driver::doing(Activity::Reading);
    reading.on(Event::Refresh);
    assert_eq!(reading.wrote(requested()), ["DropPages", "Grant"]);
    assert_eq!(reading.wrote(Facts::default()), ["Read"]);
}

#[test]
fn after_a_loss_nothing_is_written_and_no_call_begins() {
    for (activity, end) in [
        (Activity::Reading, true),
        (Activity::Pausing, true),
        (Activity::DeadLettering, true),
        (Activity::Calling, false),
    ] {
        let mut driver = Driver::doing(activity);
        driver.on(Event::Refresh);
        let effects = driver.on(Event::Wrote(Written::Lost(Loss::Deleted)));
        assert_eq!(effects.last().is_some_and(|last| last == "End(Lost(Deleted))"), end, "{activity:?} {effects:?}");
        if activity == Activity::Calling {
            assert_eq!(effects, ["CancelCall"]);
            let effects = driver.done();
            assert_eq!(effects.last().unwrap(), "End(Lost(Deleted))");
            assert!(!effects.iter().any(|effect| effect == "Write"), "{effects:?}");
        }
    }
}

#[test]
fn past_the_deadline_nothing_begins_until_a_renewal_has_succeeded() {
    let mut driver = Driver::doing(Activity::Reading);
    assert_eq!(driver.pass(3 * SECOND), ["Write"]);
    driver.now += 6 * SECOND;
    assert_eq!(driver.page(1), Vec::<String>::new(), "fenced: the page waits");
    // The renewal counts from its beginning, so the next one is due at once.
    assert_eq!(driver.wrote(Facts::default()), ["Call", "Read", "Write"]);
}

#[test]
fn past_the_deadline_a_failed_renewal_ends_the_lease_unless_a_call_is_running() {
    let mut idle = Driver::doing(Activity::Reading);
    idle.pass(3 * SECOND);
    idle.now += 6 * SECOND;
    assert_eq!(idle.on(failed()).last().unwrap(), "End(Lost(Expired))");
    let mut calling = Driver::doing(Activity::Calling);
    calling.pass(3 * SECOND);
    calling.now += 6 * SECOND;
    assert!(!calling.on(failed()).iter().any(|effect| effect.starts_with("End")));
    assert_eq!(calling.pass(2 * SECOND), ["Write"], "tried again while the call runs");
    calling.on(failed());
    // The result counts only if the lease is still owned: a write tells.
    assert_eq!(calling.done(), ["Write"]);
    let taken = Loss::Taken { by: Some("b".into()) };
    let effects = calling.on(Event::Wrote(Written::Lost(taken)));
    assert!(effects.last().unwrap().starts_with("End(Lost(Taken"), "{effects:?}");
}

fn failed() -> Event {
    Event::Wrote(Written::Failed(LeaseUpdate::default(), Error::new(ErrorKind::Unavailable, "away")))
}

#[test]
fn a_call_that_finished_while_the_store_was_away_is_stored_when_it_is_back() {
    let mut driver = Driver::doing(Activity::Calling);
    driver.pass(3 * SECOND);
    driver.now += 6 * SECOND;
    driver.on(failed());
    assert_eq!(driver.done(), ["Write"]);
    for _ in 0..20 {
        let effects = driver.on(failed());
        assert!(!effects.iter().any(|effect| effect.starts_with("End") || effect == "Call"), "{effects:?}");
        assert_eq!(driver.pass(2 * SECOND), ["Write"]);
    }
    let facts = Facts { confirmed: driver.now, ..Facts::default() };
    assert!(!driver.wrote(facts).contains(&"DropPages".to_owned()), "the lease is still owned");
    driver.pass(SECOND);
    assert_eq!(driver.state.writes.begin(driver.now).progress.map(|progress| progress.page), Some(1));
}

#[test]
fn a_page_of_which_nothing_is_handled_does_not_outlive_the_deadline() {
    for activity in [Activity::Reading, Activity::Pausing] {
        let mut driver = Driver::doing(activity);
        driver.now += 10 * SECOND;
        let effects = driver.on(failed());
        assert_eq!(effects.last().unwrap(), "End(Lost(Expired))", "{activity:?} {effects:?}");
    }
}

#[test]
fn progress_that_waits_to_be_stored_outlives_the_deadline_but_not_an_abort() {
    let mut driver = Driver::doing(Activity::Calling);
    driver.done();
    driver.pass(SECOND);
    driver.now += 9 * SECOND;
    let effects = driver.on(failed());
    assert!(!effects.iter().any(|effect| effect.starts_with("End")), "{effects:?}");
    assert_eq!(driver.on(Event::Stop), Vec::<String>::new(), "past the deadline nothing else is decided");
    assert_eq!(driver.pass(2 * SECOND), ["Write"], "a stop waits for the progress");
    assert!(driver.on(Event::Abort).contains(&"DropPages".to_owned()));
    let effects = driver.on(failed());
    assert_eq!(effects.last().unwrap(), "End(Lost(Expired))", "{effects:?}");
}

#[test]
fn no_page_is_read_after_the_last_one_until_something_changes() {
    let mut driver = Driver::new(settings(None));
    driver.on(Event::Read(Page::Empty(Continuation::from_token("\"0\""))));
    assert_eq!(driver.on(Event::Changed), ["StopWaiting", "Read"]);
    let last = || Page::Changes { count: 1, continuation: Continuation::from_token("\"1\""), last: true };
    assert_eq!(driver.on(Event::Read(last())), ["Call"]);
    assert_eq!(driver.done(), ["DropPage", "Notify", "Wait"]);
    assert_eq!(driver.on(Event::Changed), ["StopWaiting", "Read"]);
    // A page that is given up is read again, and what comes after it is not known any more.
    driver.on(Event::Read(last()));
    driver.on(Event::CheckRange);
    assert!(driver.on(Event::Called(CallEnd::Dropped)).contains(&"PrepareSplit".to_owned()));
    assert!(driver.state.feed.end.is_none());
}

#[test]
fn a_slow_read_is_not_abandoned_while_the_lease_is_renewed() {
    let mut driver = Driver::doing(Activity::Reading);
    for _ in 0..100 {
        assert_eq!(driver.pass(2 * SECOND), ["Write"]);
        assert_eq!(driver.wrote(Facts::default()), Vec::<String>::new());
    }
    assert_eq!(driver.page(1), ["Call", "Read"]);
}

#[test]
fn a_call_without_a_timeout_is_renewed_and_reported_again_and_again() {
    let mut driver = Driver::doing(Activity::Calling);
    let mut reports = 0;
    for _ in 0..300 {
        let effects = driver.pass(2 * SECOND);
        reports += effects.iter().filter(|effect| *effect == "Notify").count();
        if effects.iter().any(|effect| effect == "Write") {
            driver.wrote(Facts::default());
        }
    }
    assert_eq!(reports, 5, "after 30, 60, 120, 240 and 480 s");
}

#[test]
fn a_call_that_blocks_its_thread_after_its_timeout_ends_the_renewal() {
    let mut driver = Driver::new(Settings { delegate_timeout: Some(5 * SECOND), ..settings(None) });
    driver.page(1);
    driver.pass(3 * SECOND);
    driver.wrote(Facts::default());
    assert!(driver.pass(3 * SECOND).contains(&"DropCall".to_owned()));
    driver.wrote(Facts::default());
    assert!(driver.pass(2 * SECOND).iter().any(|effect| effect.contains("blocks its thread")));
    for _ in 0..20 {
        let effects = driver.pass(SECOND);
        assert!(!effects.iter().any(|effect| effect == "Write"), "{effects:?}");
        if effects.last().is_some_and(|last| last == "End(Lost(Blocked))") {
            return;
        }
    }
    panic!("still owned one expiration after the timeout");
}

#[test]
fn a_timeout_is_a_failed_attempt() {
    let mut driver = Driver::new(Settings { delegate_timeout: Some(SECOND), ..settings(None) });
    driver.page(1);
    assert_eq!(driver.pass(SECOND), ["DropCall"]);
    let effects = driver.on(Event::Called(CallEnd::Dropped));
    assert!(effects.iter().any(|effect| effect.contains("did not return within 1s")), "{effects:?}");
    assert_eq!(driver.state.activity(), Activity::Pausing);
}

#[test]
fn a_split_waits_for_the_call_and_stores_its_progress() {
    let mut calling = Driver::doing(Activity::Calling);
    assert!(calling.on(Event::Read(Page::Gone)).is_empty(), "the call is not asked to end early");
    let effects = calling.done();
    assert!(effects.ends_with(&["PrepareSplit".to_owned()]), "{effects:?}");
    let effects = calling.on(Event::SplitReady(Ok(())));
    assert_eq!(effects, ["Replace"]);
    let effects = calling.on(Event::Replaced(Replacement::Done(vec!["1".parse().unwrap()])));
    assert_eq!(effects.last().unwrap(), "End(RangeGone)");
}

#[test]
fn a_page_of_which_a_part_was_handled_is_finished_before_a_split_unless_it_fails() {
    // In isolation each item of a page is delivered alone.
    let crashed = Search { first: Some("9:x".into()), window: 1, crashes: 1, remaining: 9, dead: vec![] };
    let begun = || {
        let mut driver = Driver::resuming(settings(Some(2)), Some(crashed.clone()));
        assert_eq!(driver.page(2), ["TakeTurn"]);
        assert_eq!(driver.on(Event::TurnTaken), ["Write"]);
        assert_eq!(driver.wrote(Facts::default()), ["Call"]);
        assert_eq!(driver.done(), ["Write"]);
        assert!(driver.on(Event::CheckRange).is_empty());
        assert_eq!(driver.wrote(Facts::default()), ["Call"]);
        driver
    };
    assert_eq!(begun().done(), ["DropPage", "EndTurn", "DropPages", "PrepareSplit", "Write"]);
    let effects = begun().fail();
    assert!(effects.ends_with(&["DropPages".to_owned(), "PrepareSplit".to_owned()]), "{effects:?}");
    // Also if each call waits for the host's permit.
    let limited = Settings { limits_calls: true, ..settings(Some(2)) };
    let mut waiting = Driver::resuming(limited, Some(crashed.clone()));
    waiting.page(2);
    waiting.on(Event::TurnTaken);
    assert_eq!(waiting.wrote(Facts::default()), ["AwaitPermit"]);
    assert_eq!(waiting.on(Event::CallPermitted), ["Call"]);
    assert_eq!(waiting.done(), ["Write"]);
    assert_eq!(waiting.wrote(Facts::default()), ["AwaitPermit"]);
    assert!(waiting.on(Event::CheckRange).is_empty(), "it waits on");
    assert_eq!(waiting.on(Event::CallPermitted), ["Call"]);
    assert_eq!(waiting.done(), ["DropPage", "EndTurn", "DropPages", "PrepareSplit", "Write"]);
    // Nothing of it was handled yet: the children read it again.
    let mut unhandled = Driver::resuming(settings(Some(2)), Some(crashed.clone()));
    unhandled.page(2);
    unhandled.on(Event::TurnTaken);
    unhandled.on(Event::CheckRange);
    let effects = unhandled.wrote(Facts::default());
    assert!(effects.contains(&"PrepareSplit".to_owned()), "{effects:?}");
}

#[test]
fn a_split_that_fails_is_repeated_with_a_pause_and_reported() {
    let mut driver = Driver::doing(Activity::Splitting);
    let failed = Replacement::Failed(LeaseUpdate::default(), Error::new(ErrorKind::Throttled, "wait"));
    let effects = driver.on(Event::Replaced(failed));
    assert!(effects.iter().any(|effect| effect.starts_with("Error(replace a split lease")), "{effects:?}");
    assert!(driver.pass(SECOND).contains(&"PrepareSplit".to_owned()));
}

#[test]
fn the_write_before_a_split_that_fails_counts_as_a_renewal() {
    let mut driver = Driver::doing(Activity::Splitting);
    let before = driver.state.writes.deadline();
    let facts = Facts { confirmed: driver.now + SECOND, ..Facts::default() };
    driver.on(Event::Replaced(Replacement::Incomplete(facts, Error::new(ErrorKind::Throttled, "wait"))));
    assert!(driver.state.writes.deadline() >= before + SECOND);
}

#[test]
fn a_range_that_is_unchanged_is_read_again_after_a_pause() {
    let mut driver = Driver::doing(Activity::Splitting);
    driver.on(Event::Replaced(Replacement::Stays(Facts::default())));
    assert_eq!(driver.state.activity(), Activity::Reading);
    assert_eq!(driver.pass(SECOND), ["Read"]);
}

#[test]
fn checkpoints_of_the_user_are_answered_when_they_are_stored() {
    let mut driver = Driver::new(Settings { policy: Policy { manual: true, ..Policy::default() }, ..settings(None) });
    driver.page(1);
    let progress = || crate::lease::signals::Progress { page: 1, continuation: "\"1\"".into() };
    assert_eq!(driver.on(Event::Checkpoint(progress(), 7)), ["Write"]);
    assert_eq!(driver.wrote(Facts::default()), ["Reply"]);
    assert_eq!(driver.on(Event::Checkpoint(progress(), 8)), ["Reply"], "stored already");
}

#[test]
fn a_call_begins_when_the_host_permits_it() {
    let limited = || Driver::new(Settings { limits_calls: true, ..settings(Some(2)) });
    let mut driver = limited();
    assert_eq!(driver.page(1), ["AwaitPermit"]);
    assert_eq!(driver.state.activity(), Activity::Pausing);
    assert_eq!(driver.on(Event::CallPermitted), ["Call", "Read"]);
    let effects = driver.fail();
    assert!(!effects.iter().any(|effect| effect == "AwaitPermit"), "a pause has no permit: {effects:?}");
    assert!(driver.pass(SECOND).contains(&"AwaitPermit".to_owned()), "each attempt asks again");
    let mut stopped = limited();
    stopped.page(1);
    assert_eq!(stopped.on(Event::Stop), ["DropPermit", "DropPages", "Release"]);
    assert!(stopped.on(Event::CallPermitted).is_empty(), "too late");
    // Permitted past the own deadline, it waits until the lease is known to be owned.
    let mut fenced = limited();
    fenced.page(1);
    assert_eq!(fenced.pass(2 * SECOND), ["Write"]);
    fenced.now += 7 * SECOND;
    assert!(fenced.on(Event::CallPermitted).is_empty(), "fenced");
    let facts = Facts { confirmed: fenced.now, ..Facts::default() };
    assert!(fenced.wrote(facts).contains(&"Call".to_owned()));
}

#[test]
fn after_isolation_no_call_begins_before_the_lease_says_that_it_is_over() {
    let mut settings = settings(Some(2));
    settings.policy.manual = true;
    let crashed = Search { first: Some("0:x".into()), window: 1, crashes: 2, remaining: 1, dead: vec![] };
    let mut driver = Driver::resuming(settings, Some(crashed));
    assert_eq!(driver.page(1), ["TakeTurn"]);
    assert_eq!(driver.on(Event::TurnTaken), ["DeadLetter"]);
    let effects = driver.on(Event::DeadLettered(Ok(())));
    assert!(effects.contains(&"Write".to_owned()), "{effects:?}");
    // A crash in this call would otherwise count against the dead letter again, without end.
    let effects = driver.page(2);
    assert!(!effects.contains(&"Call".to_owned()), "{effects:?}");
    assert!(driver.wrote(Facts::default()).contains(&"Call".to_owned()));
}
