//! From evidence to a sentence. Pure.

use std::time::Duration;

use super::cause::Cause;
use crate::lease::{document::Status, timing::LeaseTiming};

/// What is known of one lease.
#[derive(Clone, Debug)]
pub(super) struct Evidence<'a> {
    pub(super) owner: Option<&'a str>,
    pub(super) gone: bool,
    pub(super) paused: bool,
    /// Whether its range was split or merged.
    pub(super) split: bool,
    /// Who asks for it.
    pub(super) hand_over: Option<String>,
    /// What the owner says it is doing.
    pub(super) status: Option<Status>,
    /// How often the batch after the checkpoint has failed.
    pub(super) failures: u32,
    /// How many changes lie behind the checkpoint.
    pub(super) changes: u64,
    /// Id and LSN of the first of them, if its batch fails.
    pub(super) next: Option<String>,
    /// Whether the container never had a change.
    pub(super) untouched: bool,
    /// Whether the checkpoint has left the retention.
    pub(super) expired: bool,
    /// Why we could not read the feed ourselves, and whether that was throttling.
    pub(super) unreadable: Option<(bool, String)>,
    pub(super) liveness: Liveness,
    /// After this long without a sign of life a lease is free.
    pub(super) expiration: Duration,
}

/// What is known of the owner's signs of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// The document changed while we watched; the checkpoint may have stayed for all that time.
    Alive { without_progress: Option<Duration> },
    /// The document did not change while we watched.
    Watched(Duration),
    /// The age of the last write, by its own timestamp and our clock; none if it has none.
    ByClock(Option<Duration>),
    /// The host has ended: the lease store is in our process, and the owner's session is not.
    Ended,
}

impl Evidence<'_> {
    /// Seconds after which the owner reported a call that has not ended since.
    fn running_call(&self) -> Option<u64> {
        match self.status {
            Some(Status::Calling { seconds }) => Some(seconds),
            _ => None,
        }
    }

    /// The host that waits for the lease.
    fn asked_by(&self, owner: &str) -> Option<&str> {
        self.hand_over.as_deref().filter(|to| *to != owner)
    }
}

/// The most important thing about a lease, and the sentence that says it.
pub(super) fn classify(evidence: &Evidence<'_>) -> (Cause, String) {
    let waiting = waiting(evidence.changes);
    if evidence.gone {
        let text = "its range was split or merged and its successors have leases, but it could not be deleted: delete \
                    the document, or allow hosts to";
        return (Cause::Tombstone, text.to_owned());
    }
    let call = evidence.running_call();
    if evidence.paused {
        let what = call.map_or("its batch".to_owned(), |call| format!("a delegate call that {}", runs_for(call)));
        let holder = evidence.owner.map(|owner| format!("; {owner} gives it up after {what}")).unwrap_or_default();
        return (Cause::Paused, format!("paused, {waiting}{holder}: resume it to go on"));
    }
    if evidence.expired {
        let text =
            format!("its position has left the retention of the feed, {waiting}: changes were lost, seek to now");
        return (Cause::Expired, text);
    }
    let Some(owner) = evidence.owner else { return unowned(evidence, &waiting) };
    if let Some(sentence) = silent(evidence, owner, &waiting) {
        return (Cause::OwnerSilent, sentence);
    }
    if let Some(call) = call.filter(|_| evidence.unreadable.is_none()) {
        return slow(evidence, call, owner, &waiting);
    }
    if evidence.split {
        return (
            Cause::SplitPending,
            format!("its range was split or merged, {waiting}: {owner} is about to replace it"),
        );
    }
    if let Some(to) = evidence.asked_by(owner) {
        return (Cause::HandOver, format!("{to} asked for it, {waiting}: {owner} hands it over after its batch"));
    }
    working(evidence, owner, &waiting)
}

/// Changes that wait without an owner need a host; a lease that has caught up does not.
fn unowned(evidence: &Evidence<'_>, waiting: &str) -> (Cause, String) {
    if let Some((throttled, error)) = &evidence.unreadable {
        return (feed_failure(*throttled), format!("no host owns it; the feed cannot be read: {error}"));
    }
    match (evidence.split, evidence.changes) {
        (true, changes) => {
            let cause = if changes > 0 { Cause::Unowned } else { Cause::SplitPending };
            (cause, format!("its range was split or merged and no host owns it, {waiting}: start a host"))
        }
        (false, 0) if evidence.untouched => {
            (Cause::NoData, "no data: the container has never had a change; no host owns it".to_owned())
        }
        (false, 0) => (Cause::CaughtUp, "caught up; no host owns it: the next host takes it".to_owned()),
        (false, _) => (
            Cause::Unowned,
            format!("no host owns it, {waiting}: start a host, or see why those that run do not take it"),
        ),
    }
}

/// The sentence about an owner that gives no sign of life for so long that it is probably dead.
fn silent(evidence: &Evidence<'_>, owner: &str, waiting: &str) -> Option<String> {
    let expiration = evidence.expiration;
    let (age, how) = match evidence.liveness {
        Liveness::Alive { .. } => return None,
        Liveness::Ended => {
            return Some(format!(
                "its owner {owner} has ended without releasing it, {waiting}: the next host takes it at once"
            ));
        }
        Liveness::Watched(age) => (age, "while we watched"),
        Liveness::ByClock(age) => {
            (age.filter(|age| *age >= overdue_after(expiration))?, "by the clock of this machine")
        }
    };
    let left = match (evidence.liveness, expiration.saturating_sub(age)) {
        (Liveness::ByClock(_), left) if !left.is_zero() => {
            format!("if it stays silent the lease expires in {}, then", seconds(left))
        }
        _ => format!("after {}", seconds(expiration)),
    };
    let age = seconds(age);
    Some(format!("owner {owner} has been silent for {age} {how}, {waiting}: {left} another host takes it, if one runs"))
}

/// When a renewal is overdue: twice the longest renew interval that goes with an expiration interval.
fn overdue_after(expiration: Duration) -> Duration {
    expiration * 2 / LeaseTiming::LEAST_RENEWALS
}

/// The owner lives, and nothing but work is to be done.
fn working(evidence: &Evidence<'_>, owner: &str, waiting: &str) -> (Cause, String) {
    if let Some((throttled, error)) = &evidence.unreadable {
        return (feed_failure(*throttled), format!("owned by {owner}; the feed cannot be read: {error}"));
    }
    let with_next = evidence.next.as_ref().map(|next| format!("{waiting}, the first is {next}"));
    let waiting = with_next.as_deref().unwrap_or(waiting);
    if let Some(status) = &evidence.status {
        return busy(status, owner, waiting);
    }
    if evidence.failures > 0 && evidence.changes > 0 {
        let failures = evidence.failures;
        return (
            Cause::Retrying,
            format!("{waiting}; the batch at its checkpoint has failed {failures} times, {owner} tries it again"),
        );
    }
    match (evidence.changes, evidence.liveness) {
        (0, _) if evidence.untouched => {
            (Cause::NoData, format!("no data: the container has never had a change; {owner} waits"))
        }
        (0, _) => (Cause::CaughtUp, format!("caught up; {owner} waits for changes")),
        (_, Liveness::Alive { without_progress: Some(span) }) => {
            let span = seconds(span);
            (
                Cause::DelegateRunning,
                format!("{waiting}; {owner} is alive but stored no progress for {span}: its delegate is still running"),
            )
        }
        // One look cannot tell an owner that works from one that was killed since it last wrote.
        (_, Liveness::ByClock(Some(age))) => {
            (Cause::Working, format!("{waiting}; its owner {owner} last renewed it {} s ago", age.as_secs()))
        }
        (_, Liveness::ByClock(None)) => (Cause::Working, format!("{waiting}; its owner is {owner}")),
        _ => (Cause::Working, format!("{waiting}, {owner} works on them")),
    }
}

fn feed_failure(throttled: bool) -> Cause {
    if throttled { Cause::Throttled } else { Cause::FeedFailing }
}

/// A call that does not end keeps everything else from happening: a hand-over and a split wait for it.
fn slow(evidence: &Evidence<'_>, call: u64, owner: &str, waiting: &str) -> (Cause, String) {
    let (_, mut text) = busy(&Status::Calling { seconds: call }, owner, waiting);
    if let Some(to) = evidence.asked_by(owner) {
        text.push_str(&format!("; {to} asked for it and waits"));
    }
    if evidence.split {
        text.push_str("; its range was split or merged, and it is not replaced before");
    }
    (Cause::SlowDelegate, text)
}

fn runs_for(seconds: u64) -> String {
    format!("runs for more than {seconds} s")
}

/// What a status of the owner means.
fn busy(status: &Status, owner: &str, waiting: &str) -> (Cause, String) {
    match status {
        Status::Retrying { attempts, of, error } => {
            let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
            (Cause::Retrying, format!("{waiting}; the delegate on {owner} fails, retry {attempts}{of}: {error}"))
        }
        Status::Outage { detected, error } => (
            Cause::Outage,
            format!("{waiting}; all items fail on {owner}, an outage was detected {detected} times: {error}"),
        ),
        Status::Calling { seconds } => {
            (Cause::SlowDelegate, format!("{waiting}; a delegate call on {owner} {}", runs_for(*seconds)))
        }
        Status::ReadFailing { throttled: true, error } => {
            (Cause::Throttled, format!("{waiting}; the store throttles {owner}: {error}"))
        }
        Status::ReadFailing { throttled: false, error } => {
            (Cause::FeedFailing, format!("{waiting}; {owner} cannot read the feed: {error}"))
        }
        Status::DeadLetterFailing { error } => {
            (Cause::DeadLetterFailing, format!("{waiting}; {owner} cannot write to the dead-letter container: {error}"))
        }
        Status::Text { text } => (Cause::Working, format!("{waiting}; {owner} says: {text}")),
    }
}

fn waiting(changes: u64) -> String {
    match changes {
        0 => "nothing waits".to_owned(),
        1 => "1 change behind".to_owned(),
        changes => format!("{changes} changes behind"),
    }
}

fn seconds(span: Duration) -> String {
    match span.subsec_millis() {
        0 => format!("{} s", span.as_secs()),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Liveness = Liveness::Alive { without_progress: None };

    fn retrying() -> Status {
        Status::Retrying { attempts: 3, of: Some(5), error: "smtp: down".to_owned() }
    }

    fn read_failing(throttled: bool, error: &str) -> Status {
        Status::ReadFailing { throttled, error: error.to_owned() }
    }

    fn evidence() -> Evidence<'static> {
        Evidence {
            owner: Some("a"),
            gone: false,
            paused: false,
            split: false,
            hand_over: None,
            status: None,
            failures: 0,
            changes: 7,
            next: None,
            untouched: false,
            expired: false,
            unreadable: None,
            liveness: BUSY,
            expiration: Duration::from_secs(60),
        }
    }

    #[test]
    fn each_situation_has_its_sentence() {
        let secs = Duration::from_secs;
        let free = || Evidence { owner: None, ..evidence() };
        let table = [
            (evidence(), Cause::Working, "7 changes behind, a works on them"),
            (Evidence { changes: 1, ..evidence() }, Cause::Working, "1 change behind, a works on them"),
            (Evidence { changes: 0, ..evidence() }, Cause::CaughtUp, "caught up; a waits for changes"),
            (
                Evidence { changes: 0, untouched: true, ..evidence() },
                Cause::NoData,
                "no data: the container has never had a change; a waits",
            ),
            (
                Evidence { liveness: Liveness::Ended, ..evidence() },
                Cause::OwnerSilent,
                "its owner a has ended without releasing it, 7 changes behind: the next host takes it at once",
            ),
            (
                Evidence { liveness: Liveness::Alive { without_progress: Some(secs(10)) }, ..evidence() },
                Cause::DelegateRunning,
                "7 changes behind; a is alive but stored no progress for 10 s: its delegate is still running",
            ),
            (
                Evidence { status: Some(retrying()), failures: 3, ..evidence() },
                Cause::Retrying,
                "7 changes behind; the delegate on a fails, retry 3 of 5: smtp: down",
            ),
            (
                Evidence { status: Some(retrying()), next: Some("o-1 at lsn 4".to_owned()), ..evidence() },
                Cause::Retrying,
                "7 changes behind, the first is o-1 at lsn 4; the delegate on a fails, retry 3 of 5: smtp: down",
            ),
            (
                Evidence { failures: 2, ..evidence() },
                Cause::Retrying,
                "7 changes behind; the batch at its checkpoint has failed 2 times, a tries it again",
            ),
            (
                Evidence { status: Some(Status::Outage { detected: 2, error: "down".to_owned() }), ..evidence() },
                Cause::Outage,
                "7 changes behind; all items fail on a, an outage was detected 2 times: down",
            ),
            (
                Evidence { status: Some(Status::Calling { seconds: 93 }), ..evidence() },
                Cause::SlowDelegate,
                "7 changes behind; a delegate call on a runs for more than 93 s",
            ),
            (
                Evidence {
                    status: Some(Status::Calling { seconds: 93 }),
                    hand_over: Some("b".to_owned()),
                    split: true,
                    ..evidence()
                },
                Cause::SlowDelegate,
                "7 changes behind; a delegate call on a runs for more than 93 s; b asked for it and waits; its range was \
                 split or merged, and it is not replaced before",
            ),
            (
                Evidence { status: Some(Status::Calling { seconds: 93 }), paused: true, ..evidence() },
                Cause::Paused,
                "paused, 7 changes behind; a gives it up after a delegate call that runs for more than 93 s: resume it to go \
                 on",
            ),
            (
                Evidence { status: Some(Status::DeadLetterFailing { error: "Io: disk".to_owned() }), ..evidence() },
                Cause::DeadLetterFailing,
                "7 changes behind; a cannot write to the dead-letter container: Io: disk",
            ),
            (
                Evidence { status: Some(read_failing(true, "Throttled: wait")), ..evidence() },
                Cause::Throttled,
                "7 changes behind; the store throttles a: Throttled: wait",
            ),
            (
                Evidence { status: Some(read_failing(false, "Io: disk")), ..evidence() },
                Cause::FeedFailing,
                "7 changes behind; a cannot read the feed: Io: disk",
            ),
            (
                Evidence { changes: 0, unreadable: Some((true, "too many requests".to_owned())), ..evidence() },
                Cause::Throttled,
                "owned by a; the feed cannot be read: too many requests",
            ),
            (
                free(),
                Cause::Unowned,
                "no host owns it, 7 changes behind: start a host, or see why those that run do not take it",
            ),
            (Evidence { changes: 0, ..free() }, Cause::CaughtUp, "caught up; no host owns it: the next host takes it"),
            (
                Evidence { changes: 0, untouched: true, ..free() },
                Cause::NoData,
                "no data: the container has never had a change; no host owns it",
            ),
            (
                Evidence { changes: 0, unreadable: Some((false, "disk".to_owned())), ..free() },
                Cause::FeedFailing,
                "no host owns it; the feed cannot be read: disk",
            ),
            (
                Evidence { split: true, ..free() },
                Cause::Unowned,
                "its range was split or merged and no host owns it, 7 changes behind: start a host",
            ),
            (
                Evidence { split: true, changes: 0, ..free() },
                Cause::SplitPending,
                "its range was split or merged and no host owns it, nothing waits: start a host",
            ),
            (
                Evidence { split: true, ..evidence() },
                Cause::SplitPending,
                "its range was split or merged, 7 changes behind: a is about to replace it",
            ),
            (
                Evidence { hand_over: Some("b".to_owned()), ..evidence() },
                Cause::HandOver,
                "b asked for it, 7 changes behind: a hands it over after its batch",
            ),
            (
                Evidence { liveness: Liveness::Watched(secs(40)), ..evidence() },
                Cause::OwnerSilent,
                "owner a has been silent for 40 s while we watched, 7 changes behind: after 60 s another host takes it, \
                 if one runs",
            ),
            (
                Evidence { liveness: Liveness::ByClock(Some(Duration::from_millis(90_500))), ..evidence() },
                Cause::OwnerSilent,
                "owner a has been silent for 90.5 s by the clock of this machine, 7 changes behind: after 60 s another \
                 host takes it, if one runs",
            ),
            (
                Evidence { liveness: Liveness::ByClock(Some(Duration::from_millis(40_500))), ..evidence() },
                Cause::OwnerSilent,
                "owner a has been silent for 40.5 s by the clock of this machine, 7 changes behind: if it stays silent the \
                 lease expires in 19.5 s, then another host takes it, if one runs",
            ),
            (
                Evidence { liveness: Liveness::ByClock(Some(secs(39))), ..evidence() },
                Cause::Working,
                "7 changes behind; its owner a last renewed it 39 s ago",
            ),
            (
                Evidence { liveness: Liveness::ByClock(Some(secs(39))), changes: 0, ..evidence() },
                Cause::CaughtUp,
                "caught up; a waits for changes",
            ),
            (
                Evidence { liveness: Liveness::ByClock(None), ..evidence() },
                Cause::Working,
                "7 changes behind; its owner is a",
            ),
            (
                Evidence { paused: true, ..evidence() },
                Cause::Paused,
                "paused, 7 changes behind; a gives it up after its batch: resume it to go on",
            ),
            (
                Evidence { paused: true, changes: 0, ..free() },
                Cause::Paused,
                "paused, nothing waits: resume it to go on",
            ),
            (
                Evidence { expired: true, ..evidence() },
                Cause::Expired,
                "its position has left the retention of the feed, 7 changes behind: changes were lost, seek to now",
            ),
            (
                Evidence { gone: true, changes: 0, ..free() },
                Cause::Tombstone,
                "its range was split or merged and its successors have leases, but it could not be deleted: delete the \
                 document, or allow hosts to",
            ),
        ];
        for (evidence, cause, sentence) in table {
            assert_eq!(classify(&evidence), (cause, sentence.to_owned()));
        }
    }

    #[test]
    fn a_dead_owner_matters_more_than_what_it_last_said() {
        let liveness = Liveness::Watched(Duration::from_secs(70));
        let evidence =
            Evidence { liveness, status: Some(retrying()), hand_over: Some("b".to_owned()), split: true, ..evidence() };
        assert_eq!(classify(&evidence).0, Cause::OwnerSilent);
    }
}
