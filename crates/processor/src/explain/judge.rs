//! From facts to a sentence. Pure.

use std::time::Duration;

use super::Cause;

/// What is known of one lease.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub(super) owner: Option<&'a str>,
    pub(super) gone: bool,
    pub(super) paused: bool,
    /// Whether its range was split or merged.
    pub(super) split: bool,
    /// Who asks for it.
    pub(super) hand_over: Option<String>,
    /// What the owner says it is doing.
    pub(super) state: Option<&'a str>,
    /// How often the batch after the checkpoint has failed.
    pub(super) failures: u32,
    /// How many changes lie behind the checkpoint.
    pub(super) changes: u64,
    /// Whether the container never had a change.
    pub(super) untouched: bool,
    /// Whether the checkpoint has left the retention.
    pub(super) expired: bool,
    /// Why we could not read the feed ourselves, and whether that was throttling.
    pub(super) unreadable: Option<(bool, String)>,
    pub(super) silence: Silence,
    /// After this long without a sign of life a lease is free.
    pub(super) expiration: Duration,
}

/// What is known of the owner's signs of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The document changed while we watched; the checkpoint may have stayed for all that time.
    Alive { without_progress: Option<Duration> },
    /// The document did not change while we watched.
    Watched(Duration),
    /// The age of the last write, by its own timestamp and our clock; none if it has none.
    ByClock(Option<Duration>),
}

/// The most important thing about a lease, and the sentence that says it.
pub(super) fn judge(facts: &Facts<'_>) -> (Cause, String) {
    let waiting = waiting(facts.changes);
    if facts.gone {
        let text = "its range was split or merged and its successors have leases, but it could not be deleted: delete \
                    the document, or allow hosts to";
        return (Cause::Tombstone, text.to_owned());
    }
    if facts.paused {
        let holder = facts.owner.map(|owner| format!("; {owner} gives it up after its batch")).unwrap_or_default();
        return (Cause::Paused, format!("paused, {waiting}{holder}: resume it to go on"));
    }
    if facts.expired {
        let text =
            format!("its position has left the retention of the feed, {waiting}: changes were lost, seek to now");
        return (Cause::Expired, text);
    }
    let Some(owner) = facts.owner else { return unowned(facts, &waiting) };
    if let Some(sentence) = silent(facts, owner, &waiting) {
        return (Cause::OwnerSilent, sentence);
    }
    if facts.split {
        return (
            Cause::SplitPending,
            format!("its range was split or merged, {waiting}: {owner} is about to replace it"),
        );
    }
    if let Some(to) = facts.hand_over.as_deref().filter(|to| *to != owner) {
        return (Cause::HandOver, format!("{to} asked for it, {waiting}: {owner} hands it over after its batch"));
    }
    working(facts, owner, &waiting)
}

fn unowned(facts: &Facts<'_>, waiting: &str) -> (Cause, String) {
    match facts.split {
        true => {
            (Cause::SplitPending, format!("its range was split or merged and nobody owns it, {waiting}: start a host"))
        }
        false => (
            Cause::Unowned,
            format!("nobody owns it, {waiting}: start a host, or see why those that run do not take it"),
        ),
    }
}

/// The sentence about an owner that gives no sign of life for so long that it must be taken for dead.
fn silent(facts: &Facts<'_>, owner: &str, waiting: &str) -> Option<String> {
    let (age, how) = match facts.silence {
        Silence::Alive { .. } => return None,
        Silence::Watched(age) => (age, "while we watched"),
        Silence::ByClock(age) => (age.filter(|age| *age >= facts.expiration)?, "by the clock of this machine"),
    };
    let (age, expiration) = (seconds(age), seconds(facts.expiration));
    Some(format!(
        "owner {owner} has been silent for {age} {how}, {waiting}: after {expiration} another host takes it, if one runs"
    ))
}

/// The owner lives, and nothing but work is to be done.
fn working(facts: &Facts<'_>, owner: &str, waiting: &str) -> (Cause, String) {
    if let Some((throttled, error)) = &facts.unreadable {
        let cause = if *throttled { Cause::Throttled } else { Cause::FeedFailing };
        return (cause, format!("owned by {owner}; the feed cannot be read: {error}"));
    }
    match facts.state {
        Some(line) if line.starts_with("retry ") => {
            return (Cause::Retrying, format!("{waiting}; the delegate on {owner} fails: {line}"));
        }
        Some(line) if line.starts_with("delegate running ") => {
            return (Cause::DelegateRunning, format!("{waiting}; {owner} says: {line}"));
        }
        Some(line) if line.contains("Throttled") => {
            return (Cause::Throttled, format!("{waiting}; the store throttles {owner}: {line}"));
        }
        Some(line) => return (Cause::FeedFailing, format!("{waiting}; {owner} says: {line}")),
        None => {}
    }
    if facts.failures > 0 && facts.changes > 0 {
        let failures = facts.failures;
        return (
            Cause::Retrying,
            format!("{waiting}; the batch at its checkpoint has failed {failures} times, {owner} tries it again"),
        );
    }
    match (facts.changes, facts.silence) {
        (0, _) if facts.untouched => {
            (Cause::NoData, format!("no data: the container has never had a change; {owner} waits"))
        }
        (0, _) => (Cause::CaughtUp, format!("caught up; {owner} waits for changes")),
        (_, Silence::Alive { without_progress: Some(span) }) => {
            let span = seconds(span);
            (
                Cause::DelegateRunning,
                format!("{waiting}; {owner} is alive but stored no progress for {span}: its delegate is still running"),
            )
        }
        _ => (Cause::Working, format!("{waiting}, {owner} works on them")),
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

    const BUSY: Silence = Silence::Alive { without_progress: None };

    fn facts() -> Facts<'static> {
        Facts {
            owner: Some("a"),
            gone: false,
            paused: false,
            split: false,
            hand_over: None,
            state: None,
            failures: 0,
            changes: 7,
            untouched: false,
            expired: false,
            unreadable: None,
            silence: BUSY,
            expiration: Duration::from_secs(60),
        }
    }

    #[test]
    fn each_situation_has_its_sentence() {
        let secs = Duration::from_secs;
        let free = || Facts { owner: None, ..facts() };
        let table = [
            (facts(), Cause::Working, "7 changes behind, a works on them"),
            (Facts { changes: 1, ..facts() }, Cause::Working, "1 change behind, a works on them"),
            (Facts { changes: 0, ..facts() }, Cause::CaughtUp, "caught up; a waits for changes"),
            (
                Facts { changes: 0, untouched: true, ..facts() },
                Cause::NoData,
                "no data: the container has never had a change; a waits",
            ),
            (
                Facts { silence: Silence::Alive { without_progress: Some(secs(10)) }, ..facts() },
                Cause::DelegateRunning,
                "7 changes behind; a is alive but stored no progress for 10 s: its delegate is still running",
            ),
            (
                Facts { state: Some("retry 3 of 5: smtp: down"), failures: 3, ..facts() },
                Cause::Retrying,
                "7 changes behind; the delegate on a fails: retry 3 of 5: smtp: down",
            ),
            (
                Facts { failures: 2, ..facts() },
                Cause::Retrying,
                "7 changes behind; the batch at its checkpoint has failed 2 times, a tries it again",
            ),
            (
                Facts { state: Some("cannot read the feed: Throttled: wait"), ..facts() },
                Cause::Throttled,
                "7 changes behind; the store throttles a: cannot read the feed: Throttled: wait",
            ),
            (
                Facts { state: Some("cannot read the feed: Io: disk"), ..facts() },
                Cause::FeedFailing,
                "7 changes behind; a says: cannot read the feed: Io: disk",
            ),
            (
                Facts { changes: 0, unreadable: Some((true, "too many requests".to_owned())), ..facts() },
                Cause::Throttled,
                "owned by a; the feed cannot be read: too many requests",
            ),
            (
                free(),
                Cause::Unowned,
                "nobody owns it, 7 changes behind: start a host, or see why those that run do not take it",
            ),
            (
                Facts { split: true, ..free() },
                Cause::SplitPending,
                "its range was split or merged and nobody owns it, 7 changes behind: start a host",
            ),
            (
                Facts { split: true, ..facts() },
                Cause::SplitPending,
                "its range was split or merged, 7 changes behind: a is about to replace it",
            ),
            (
                Facts { hand_over: Some("b".to_owned()), ..facts() },
                Cause::HandOver,
                "b asked for it, 7 changes behind: a hands it over after its batch",
            ),
            (
                Facts { silence: Silence::Watched(secs(40)), ..facts() },
                Cause::OwnerSilent,
                "owner a has been silent for 40 s while we watched, 7 changes behind: after 60 s another host takes it, \
                 if one runs",
            ),
            (
                Facts { silence: Silence::ByClock(Some(Duration::from_millis(90_500))), ..facts() },
                Cause::OwnerSilent,
                "owner a has been silent for 90.5 s by the clock of this machine, 7 changes behind: after 60 s another \
                 host takes it, if one runs",
            ),
            (
                Facts { silence: Silence::ByClock(Some(secs(30))), ..facts() },
                Cause::Working,
                "7 changes behind, a works on them",
            ),
            (Facts { silence: Silence::ByClock(None), ..facts() }, Cause::Working, "7 changes behind, a works on them"),
            (
                Facts { paused: true, ..facts() },
                Cause::Paused,
                "paused, 7 changes behind; a gives it up after its batch: resume it to go on",
            ),
            (Facts { paused: true, changes: 0, ..free() }, Cause::Paused, "paused, nothing waits: resume it to go on"),
            (
                Facts { expired: true, ..facts() },
                Cause::Expired,
                "its position has left the retention of the feed, 7 changes behind: changes were lost, seek to now",
            ),
            (
                Facts { gone: true, changes: 0, ..free() },
                Cause::Tombstone,
                "its range was split or merged and its successors have leases, but it could not be deleted: delete the \
                 document, or allow hosts to",
            ),
        ];
        for (facts, cause, sentence) in table {
            assert_eq!(judge(&facts), (cause, sentence.to_owned()));
        }
    }

    #[test]
    fn a_dead_owner_matters_more_than_what_it_last_said() {
        let silence = Silence::Watched(Duration::from_secs(70));
        let facts =
            Facts { silence, state: Some("retry 3 of 5: x"), hand_over: Some("b".to_owned()), split: true, ..facts() };
        assert_eq!(judge(&facts).0, Cause::OwnerSilent);
    }
}
