//! Our own state in the `properties` of a lease: text values only, keys that begin with `cf.`.
//!
//! `docs/lease-lifecycle.md` lists them.

use std::{sync::Arc, time::Duration};

use changefeed_core::Timestamp;

use super::{
    info::StartPosition,
    keys::{
        ATTEMPTS, EPOCH, EXPIRATION, GENERATION, GONE, HAND_OVER, HAND_OVER_EXPIRATION, OWNER, OWNER_EPOCH, PAUSED,
        SEARCH, SESSION, START, STATE, STATUS, SUSPECT, VERSION, VERSION_KEY, parse_flag, parse_number,
    },
    lease::{LeaseDocument, LeaseVersion},
    owner_kind::OwnerKind,
    read_properties::{ReadProperties, Values},
    search::Search,
    status::Status,
};

/// The longest promise that counts: a lease of an owner that died must not wait for longer.
pub(crate) const LONGEST_PROMISE: Duration = Duration::from_secs(600);

/// How long an owner may be silent that promised nothing: .NET, Java and version 1.
const UNPROMISED: Duration = Duration::from_secs(60);

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
    /// Reads the properties once, in a document that will not be changed. Its copies read them each time.
    #[must_use]
    pub(crate) fn read_properties(mut self) -> Self {
        let values = Values {
            epoch: self.epoch(),
            expiration: self.expiration(),
            generation: self.generation(),
            owner_kind: self.owner_kind(),
            session: self.session().map(Box::from),
            hand_over: self.hand_over().map(|request| request.to.into()),
            paused: self.is_paused(),
            gone: self.is_gone(),
        };
        self.read = ReadProperties::new(values);
        self
    }

    /// How often the lease changed hands. Whoever writes must hold the current one.
    pub fn epoch(&self) -> u64 {
        self.read.get().map_or_else(|| self.number(EPOCH), |read| read.epoch)
    }

    /// Sets the epoch, in the same write that sets the owner.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.set_number(EPOCH, epoch);
    }

    /// Tells apart two processes that use one instance name.
    pub fn session(&self) -> Option<&str> {
        match self.read.get() {
            Some(read) => read.session.as_deref(),
            None => self.text(SESSION),
        }
    }

    /// Sets the session.
    pub fn set_session(&mut self, session: Option<&str>) {
        self.set_text(SESSION, session);
    }

    /// The request to hand the lease over, if there is one.
    pub fn hand_over(&self) -> Option<HandOver> {
        let to = match self.read.get() {
            Some(read) => read.hand_over.as_deref(),
            None => self.text(HAND_OVER),
        };
        to.map(|to| HandOver { to: to.to_owned() })
    }

    /// Requests the lease for the instance `to`, or cancels the request.
    pub fn set_hand_over(&mut self, to: Option<&str>) {
        self.set_text(HAND_OVER, to);
        self.set_text(HAND_OVER_EXPIRATION, None);
    }

    /// Requests the lease for an instance that may be silent for `expiration` once it is granted.
    pub fn request(&mut self, to: &str, expiration: Duration) {
        self.set_hand_over(Some(to));
        self.set_number(HAND_OVER_EXPIRATION, u64::try_from(expiration.as_millis()).unwrap_or(u64::MAX));
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

    /// The position of the search for poison items after the checkpoint.
    pub fn search(&self) -> Option<Search> {
        let version_1 = || self.text(SUSPECT).map(Search::parse_version_1);
        self.text(SEARCH).and_then(Search::parse).or_else(version_1)
    }

    /// Sets or clears the position of the search for poison items.
    pub fn set_search(&mut self, search: Option<&Search>) {
        self.set_text(SEARCH, search.map(Search::to_text).as_deref());
        self.set_text(SUSPECT, None);
    }

    /// The owner went without releasing the lease: its process may have crashed because of the batch after the
    /// checkpoint.
    pub fn count_crash(&mut self) {
        let count = self.attempts().count.saturating_add(1);
        self.set_attempts(&Attempts { continuation: self.continuation.clone(), count });
        match self.search() {
            // What version 1 wrote counts this crash already.
            Some(search) if self.text(SEARCH).is_none() => self.set_search(Some(&search)),
            Some(mut search) => {
                search.crashes = search.crashes.saturating_add(1);
                self.set_search(Some(&search));
            }
            None => {}
        }
    }

    /// What the owner says it is doing.
    pub fn status(&self) -> Option<Status> {
        let version_1 = || self.text(STATE).map(|text| Status::Text { text: text.to_owned() });
        self.text(STATUS).and_then(Status::parse).or_else(version_1)
    }

    /// Sets what the owner is doing.
    pub fn set_status(&mut self, status: Option<&Status>) {
        self.set_text(STATUS, status.map(Status::to_text).as_deref());
        self.set_text(STATE, None);
    }

    /// Writes that `owner` may be silent for `expiration` before others may take the lease.
    pub fn set_promise(&mut self, owner: &str, expiration: Duration) {
        self.set_text(OWNER, Some(owner));
        self.set_number(OWNER_EPOCH, self.epoch());
        self.set_number(EXPIRATION, u64::try_from(expiration.as_millis()).unwrap_or(u64::MAX));
        self.set_number(VERSION_KEY, VERSION);
    }

    /// Passes the promise on to the host that a lease is granted to, or ends it.
    pub fn set_promised_by(&mut self, owner: Option<&str>) {
        self.set_text(OWNER, owner);
        match owner {
            Some(_) => {
                self.set_number(OWNER_EPOCH, self.epoch());
                // A host that lists leases rarely must have the time to see that it was granted one.
                let requested = self.number(HAND_OVER_EXPIRATION);
                self.set_number(EXPIRATION, self.number(EXPIRATION).max(requested));
            }
            None => {
                self.set_text(OWNER_EPOCH, None);
                self.set_text(EXPIRATION, None);
            }
        }
    }

    /// What is known of the owner; `None` if there is none.
    pub fn owner_kind(&self) -> Option<OwnerKind> {
        if let Some(read) = self.read.get() {
            return read.owner_kind;
        }
        let owner = self.owner.as_deref()?;
        let promised = self.text(OWNER);
        if promised == Some(owner) {
            return Some(OwnerKind::Current);
        }
        // Both copy what we wrote; only version 1 raises the epoch.
        let raised = promised.is_none() || self.number(OWNER_EPOCH) != self.epoch();
        Some(if self.session().is_some() && raised { OwnerKind::Version1 } else { OwnerKind::Foreign })
    }

    /// How long the owner may be silent before others may take the lease. `own` is the interval of the host that asks.
    pub fn expires_after(&self, own: Duration) -> Duration {
        match (self.owner_kind(), self.expiration()) {
            (Some(OwnerKind::Current), millis) if millis > 0 => Duration::from_millis(millis).min(LONGEST_PROMISE),
            (None, _) => own,
            _ => own.max(UNPROMISED),
        }
    }

    /// What the owner promised, in milliseconds; 0 if nothing.
    pub(super) fn expiration(&self) -> u64 {
        self.read.get().map_or_else(|| self.number(EXPIRATION), |read| read.expiration)
    }

    /// How often an operator moved the lease to another position. A host must drop what it read before.
    pub fn generation(&self) -> u64 {
        self.read.get().map_or_else(|| self.number(GENERATION), |read| read.generation)
    }

    /// Sets the generation, in the same write that moves the position.
    pub fn set_generation(&mut self, generation: u64) {
        self.set_number(GENERATION, generation);
    }

    /// Where an operator wants the lease to begin, while it has no continuation; none: where the processor began.
    pub fn start(&self) -> Option<StartPosition> {
        let start = self.text(START).filter(|_| self.continuation.is_none());
        start.and_then(parse_start)
    }

    /// Sets where the lease begins: a position that no continuation of the store expresses, or one.
    pub fn set_start(&mut self, start: &StartPosition) {
        let (continuation, text) = match start {
            StartPosition::Beginning => (None, Some("beginning".to_owned())),
            StartPosition::Time(moment) => (None, Some(format!("time {}", moment.as_millis()))),
            StartPosition::Continuation(token) => (Some(token.clone()), None),
        };
        self.continuation = continuation;
        self.set_text(START, text.as_deref());
    }

    /// Whether an operator wants no work on this lease for now.
    pub fn is_paused(&self) -> bool {
        self.read.get().map_or_else(|| self.flag(PAUSED), |read| read.paused)
    }

    /// Pauses or resumes the lease.
    pub fn set_paused(&mut self, paused: bool) {
        self.set_flag(PAUSED, paused);
    }

    /// Whether this is the tombstone of a lease that has successors, but could not be deleted.
    pub fn is_gone(&self) -> bool {
        self.read.get().map_or_else(|| self.flag(GONE), |read| read.gone)
    }

    /// Makes the lease a tombstone, or a lease again. The tombstone of a physical range has `PartitionId` instead of
    /// `LeaseToken`.
    pub fn set_gone(&mut self, gone: bool) {
        self.set_flag(GONE, gone);
        if gone && self.version == LeaseVersion::Range {
            self.partition_id = Some(self.token.as_str().to_owned());
        }
    }

    /// Properties of ours that cannot be read and count as absent, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let warning = |(key, value): (&String, &String)| {
            let wanted = match key.as_str() {
                EPOCH | GENERATION | OWNER_EPOCH | EXPIRATION | HAND_OVER_EXPIRATION | VERSION_KEY => {
                    parse_number(value).is_none().then_some("a number")
                }
                PAUSED | GONE => parse_flag(value).is_none().then_some("true or false"),
                ATTEMPTS => parse_attempts(value).is_none().then_some("a count and a continuation"),
                START => parse_start(value).is_none().then_some("beginning, or time and milliseconds"),
                SEARCH => Search::parse(value).is_none().then_some("the position of a search"),
                STATUS => Status::parse(value).is_none().then_some("a status"),
                SESSION | HAND_OVER | OWNER | SUSPECT | STATE => value.is_empty().then_some("a text"),
                _ => None,
            };
            wanted.map(|wanted| {
                let shown: String = value.chars().take(64).collect();
                format!("property {key} of lease {} is {shown:?}, not {wanted}: ignored", self.token)
            })
        };
        self.properties.iter().filter_map(warning).collect()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.properties.get(key).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn set_text(&mut self, key: &str, text: Option<&str>) {
        self.read = ReadProperties::default();
        let text = text.filter(|text| !text.is_empty());
        if self.properties.get(key).map(String::as_str) == text {
            return;
        }
        let properties = Arc::make_mut(&mut self.properties);
        match text {
            Some(text) => drop(properties.insert(key.to_owned(), text.to_owned())),
            None => drop(properties.remove(key)),
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

/// `beginning`, or `time` and milliseconds since the epoch.
fn parse_start(text: &str) -> Option<StartPosition> {
    match text.split_once(' ') {
        None if text == "beginning" => Some(StartPosition::Beginning),
        Some(("time", millis)) => parse_number(millis).map(Timestamp::from_millis).map(StartPosition::Time),
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
