//! The session of a host: a random number that tells two hosts with one name apart, and the process that runs it.
//!
//! Hosts with a lease store in their own process know of each other without reading leases: a session that has ended is no
//! longer among the live ones, and its leases need not expire.

use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

/// The sessions of this process that have not ended, of hosts with a lease store in it.
static LIVE: Mutex<BTreeSet<Session>> = Mutex::new(BTreeSet::new());

/// How many of these sessions have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The session of a host. As text 16 hexadecimal digits, after those of the process and a hyphen if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Session {
    process: Option<u64>,
    number: u64,
}

impl Session {
    /// The session of a host that drew `number`. `process` is given only if the lease store is in the same process.
    pub(crate) fn new(process: Option<u64>, number: u64) -> Self {
        Self { process, number }
    }

    /// The process of the host, if the lease store was in it.
    pub(crate) fn process(self) -> Option<u64> {
        self.process
    }

    /// Begins the session. It ends when the last clone of the result is dropped. Other hosts learn of that only if the lease
    /// store is in this process.
    pub(crate) fn begin(self) -> LiveSession {
        LiveSession(self.process.map(|_| {
            LIVE.lock().insert(self);
            Arc::new(EndOnDrop(self))
        }))
    }

    /// Whether a session of this process has not ended.
    pub(crate) fn is_alive(self) -> bool {
        LIVE.lock().contains(&self)
    }
}

/// How many sessions of this process have ended so far: as long as it stays the same, no host of this process has died.
pub(crate) fn ended_sessions() -> u64 {
    ENDED.load(Ordering::Acquire)
}

/// A session that has not ended. Held by everything that acts for its host: the host itself, its lease tasks and the calls
/// of the delegate, which may block a thread longer than the host lives.
#[derive(Clone, Debug)]
pub(crate) struct LiveSession(#[expect(dead_code, reason = "kept to be dropped")] Option<Arc<EndOnDrop>>);

#[derive(Debug)]
struct EndOnDrop(Session);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        LIVE.lock().remove(&self.0);
        ENDED.fetch_add(1, Ordering::Release);
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(process) = self.process {
            write!(f, "{process:016x}-")?;
        }
        write!(f, "{:016x}", self.number)
    }
}

impl FromStr for Session {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| u64::from_str_radix(text, 16);
        Ok(match text.split_once('-') {
            Some((process, session)) => Self { process: Some(number(process)?), number: number(session)? },
            None => Self { process: None, number: number(text)? },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_nothing_acts_for_it_any_more() {
        let session = Session::new(Some(11), 12);
        assert!(!session.is_alive());
        let (host, before) = (session.begin(), ended_sessions());
        let call = host.clone();
        drop(host);
        assert!(session.is_alive(), "a call is running");
        drop(call);
        assert!(!session.is_alive() && ended_sessions() > before);
        let elsewhere = Session::new(None, 12);
        let _running = elsewhere.begin();
        assert!(!elsewhere.is_alive(), "nobody knows of a session whose process is not known");
    }

    #[test]
    fn a_session_is_read_as_it_was_written() {
        for session in [Session::new(None, 7), Session::new(Some(u64::MAX), 0)] {
            assert_eq!(session.to_string().parse(), Ok(session));
        }
        assert_eq!(Session::new(None, 0x0123_4567_89ab_cdef).to_string(), "0123456789abcdef");
        assert!("theirs".parse::<Session>().is_err());
    }
}
