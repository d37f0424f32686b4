//! Our own state in the `properties` of a lease: text values only, keys that begin with `cf.`.

use std::collections::BTreeMap;

use changefeed_core::Timestamp;

use super::{Anchor, LeaseDocument};

const EPOCH: &str = "cf.epoch";
pub(super) const SESSION: &str = "cf.session";
pub(super) const HAND_OVER: &str = "cf.hand-over";
const ATTEMPTS: &str = "cf.attempts";
const SUSPECT: &str = "cf.suspect";
const STATE: &str = "cf.state";
const GENERATION: &str = "cf.generation";
pub(super) const PAUSED: &str = "cf.paused";
pub(super) const GONE: &str = "cf.gone";
const START: &str = "cf.start";

/// What a child takes over from its parent besides the users' properties.
const INHERITED: [&str; 5] = [ATTEMPTS, SUSPECT, GENERATION, PAUSED, START];

/// Larger numbers are damage: nothing counts so far, and adding one must stay possible.
const LARGEST: u64 = 1 << 53;

/// The longest state line, in characters: it may quote an error of any length.
const STATE_CHARS: usize = 300;

/// Somebody asks the owner for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The instance that wants it.
    pub to: String,
}

/// How often the batch after a checkpoint has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// The checkpoint before the batch.
    pub continuation: Option<String>,
    /// How often delivering it was tried without success; 0 if it was never tried.
    pub count: u32,
}

impl LeaseDocument {
    /// How often the lease changed hands. Whoever writes must hold the current one.
    pub fn epoch(&self) -> u64 {
        self.number(EPOCH)
    }

    /// Sets the epoch, in the same write that sets the owner.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.set_number(EPOCH, epoch);
    }

    /// Tells apart two processes that use one instance name.
    pub fn session(&self) -> Option<&str> {
        self.text(SESSION)
    }

    /// Sets the session.
    pub fn set_session(&mut self, session: Option<&str>) {
        self.set_text(SESSION, session);
    }

    /// The request to hand the lease over, if there is one.
    pub fn hand_over(&self) -> Option<HandOver> {
        self.text(HAND_OVER).map(|to| HandOver { to: to.to_owned() })
    }

    /// Asks the owner to hand the lease over to the instance `to`, or withdraws the request.
    pub fn set_hand_over(&mut self, to: Option<&str>) {
        self.set_text(HAND_OVER, to);
    }

    /// How often the batch after the current checkpoint has failed: a count for another checkpoint is over.
    pub fn attempts(&self) -> Attempts {
        let stored = self.text(ATTEMPTS).and_then(parse_attempts);
        let count = stored.filter(|stored| stored.continuation == self.continuation).map_or(0, |stored| stored.count);
        Attempts { continuation: self.continuation.clone(), count }
    }

    /// Sets how often the batch after a checkpoint has failed; a count of 0 forgets it.
    pub fn set_attempts(&mut self, attempts: &Attempts) {
        let text = match (attempts.count, &attempts.continuation) {
            (0, _) => None,
            (count, None) => Some(count.to_string()),
            (count, Some(continuation)) => Some(format!("{count} {continuation}")),
        };
        self.set_text(ATTEMPTS, text.as_deref());
    }

    /// The item that was being delivered alone, because its batch is suspected to kill the process.
    pub fn suspect(&self) -> Option<&str> {
        self.text(SUSPECT)
    }

    /// Sets the item that is about to be delivered alone.
    pub fn set_suspect(&mut self, item: Option<&str>) {
        self.set_text(SUSPECT, item);
    }

    /// What the owner says it is doing.
    pub fn state(&self) -> Option<&str> {
        self.text(STATE)
    }

    /// Sets what the owner is doing: made one line, and cut after 300 characters.
    pub fn set_state(&mut self, line: Option<&str>) {
        let one_line = |text: &str| -> String {
            text.chars().take(STATE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        self.set_text(STATE, line.map(one_line).as_deref());
    }

    /// How often an operator moved the lease to another position. A host must drop what it read before.
    pub fn generation(&self) -> u64 {
        self.number(GENERATION)
    }

    /// Sets the generation, in the same write that moves the position.
    pub fn set_generation(&mut self, generation: u64) {
        self.set_number(GENERATION, generation);
    }

    /// Where an operator wants the lease to begin, while it has no continuation; none: where the processor began.
    pub fn start(&self) -> Option<Anchor> {
        let start = self.text(START).filter(|_| self.continuation.is_none());
        start.and_then(parse_start)
    }

    /// Sets where the lease begins: a position that no continuation of the store expresses, or one.
    pub fn set_start(&mut self, start: &Anchor) {
        let (continuation, text) = match start {
            Anchor::Beginning => (None, Some("beginning".to_owned())),
            Anchor::Time(moment) => (None, Some(format!("time {}", moment.as_millis()))),
            Anchor::Continuation(token) => (Some(token.clone()), None),
        };
        self.continuation = continuation;
        self.set_text(START, text.as_deref());
    }

    /// Whether an operator wants no work on this lease for now.
    pub fn is_paused(&self) -> bool {
        self.flag(PAUSED)
    }

    /// Pauses or resumes the lease.
    pub fn set_paused(&mut self, paused: bool) {
        self.set_flag(PAUSED, paused);
    }

    /// Whether this is the tombstone of a lease that has successors, but could not be deleted.
    pub fn is_gone(&self) -> bool {
        self.flag(GONE)
    }

    /// Makes the lease a tombstone, or a lease again.
    pub fn set_gone(&mut self, gone: bool) {
        self.set_flag(GONE, gone);
    }

    /// Properties of ours that cannot be read and count as absent, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let complain = |(key, value): (&String, &String)| {
            let wanted = match key.as_str() {
                EPOCH | GENERATION => parse_number(value).is_none().then_some("a number"),
                PAUSED | GONE => parse_flag(value).is_none().then_some("true or false"),
                ATTEMPTS => parse_attempts(value).is_none().then_some("a count and a continuation"),
                START => parse_start(value).is_none().then_some("beginning, or time and milliseconds"),
                SESSION | HAND_OVER | SUSPECT | STATE => value.is_empty().then_some("a text"),
                _ => None,
            };
            wanted.map(|wanted| {
                let shown: String = value.chars().take(64).collect();
                format!("property {key} of lease {} is {shown:?}, not {wanted}: ignored", self.token)
            })
        };
        self.properties.iter().filter_map(complain).collect()
    }

    /// What a child of this lease begins with.
    pub(super) fn inheritance(&self) -> BTreeMap<String, String> {
        let inherited = |key: &str| !key.starts_with("cf.") || INHERITED.contains(&key);
        self.properties.iter().filter(|(key, _)| inherited(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.properties.get(key).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn set_text(&mut self, key: &str, text: Option<&str>) {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => drop(self.properties.insert(key.to_owned(), text.to_owned())),
            None => drop(self.properties.remove(key)),
        }
    }

    fn number(&self, key: &str) -> u64 {
        self.text(key).and_then(parse_number).unwrap_or_default()
    }

    fn set_number(&mut self, key: &str, number: u64) {
        self.set_text(key, (number > 0).then(|| number.to_string()).as_deref());
    }

    fn flag(&self, key: &str) -> bool {
        self.text(key).and_then(parse_flag).unwrap_or_default()
    }

    fn set_flag(&mut self, key: &str, flag: bool) {
        self.set_text(key, flag.then_some("true"));
    }
}

fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number <= LARGEST)
}

fn parse_flag(text: &str) -> Option<bool> {
    text.parse().ok()
}

/// `beginning`, or `time` and milliseconds since the epoch.
fn parse_start(text: &str) -> Option<Anchor> {
    match text.split_once(' ') {
        None if text == "beginning" => Some(Anchor::Beginning),
        Some(("time", millis)) => parse_number(millis).map(Timestamp::from_millis).map(Anchor::Time),
        _ => None,
    }
}

/// A count, then the continuation if there is one: `3 "7052"`.
fn parse_attempts(text: &str) -> Option<Attempts> {
    let (count, continuation) = match text.split_once(' ') {
        Some((count, continuation)) => (count, Some(continuation.to_owned())),
        None => (text, None),
    };
    Some(Attempts { continuation, count: count.parse().ok()? })
}
