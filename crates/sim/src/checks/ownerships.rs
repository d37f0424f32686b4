//! The history of ownership: which process took which lease, when it renewed it, and how it lost it.

use std::collections::{BTreeMap, VecDeque};

use super::{
    key_range::KeyRange,
    lease_document::{DocumentKey, LeaseDocument},
    takeover::End,
};
use crate::exec::ProcessId;

/// How many confirmed writes of a lease are remembered.
const CONFIRMED: usize = 64;

type Key = (ProcessId, String);

/// The history of ownership.
#[derive(Debug, Default)]
pub struct Ownerships {
    sessions: BTreeMap<String, ProcessId>,
    taken: BTreeMap<Key, Taken>,
    ends: BTreeMap<Key, (u64, End)>,
    /// When a process sent its last writes of a lease of its own, and when it received the response.
    confirmed: BTreeMap<Key, VecDeque<(u64, u64)>>,
}

/// A lease as a process last took it.
#[derive(Debug)]
struct Taken {
    /// Which document: there may be two for one token.
    document: DocumentKey,
    range: Option<KeyRange>,
    position: Option<u64>,
}

impl Ownerships {
    /// A process took a lease with these keys, under this session if it writes one.
    pub fn taken(
        &mut self,
        process: ProcessId,
        lease: &LeaseDocument,
        range: Option<&KeyRange>,
        session: Option<&str>,
    ) {
        if let Some(session) = session {
            self.sessions.insert(session.to_owned(), process);
        }
        let taken = Taken { document: lease.key.clone(), range: range.cloned(), position: lease.position() };
        self.taken.insert((process, lease.token.clone()), taken);
    }

    /// Whether a session is that of a process.
    pub fn is_session_of(&self, process: ProcessId, session: &str) -> bool {
        self.sessions.get(session) == Some(&process)
    }

    /// The checkpoint with which a process last took a lease. Others may have taken it since.
    pub fn taken_at(&self, process: ProcessId, token: &str) -> Option<u64> {
        self.last_taken(process, token)?.position
    }

    /// The document that a process works on: of two for one token, the one that it took last.
    pub fn document(&self, process: ProcessId, token: &str) -> Option<&DocumentKey> {
        Some(&self.last_taken(process, token)?.document)
    }

    /// The keys of a lease when a process last took it.
    pub fn range(&self, process: ProcessId, token: &str) -> Option<&KeyRange> {
        self.last_taken(process, token)?.range.as_ref()
    }

    fn last_taken(&self, process: ProcessId, token: &str) -> Option<&Taken> {
        self.taken.get(&(process, token.to_owned()))
    }

    /// A process lost a lease.
    pub fn ended(&mut self, process: ProcessId, token: &str, now: u64, end: End) {
        self.ends.insert((process, token.to_owned()), (now, end));
    }

    /// How a process lost a lease, and when.
    pub fn end_of(&self, process: ProcessId, token: &str) -> Option<(u64, End)> {
        self.ends.get(&(process, token.to_owned())).copied()
    }

    /// A process received the response to a write of a lease of its own.
    pub fn confirm(&mut self, process: ProcessId, token: &str, sent: u64, received: u64) {
        let writes = self.confirmed.entry((process, token.to_owned())).or_default();
        if writes.len() == CONFIRMED {
            writes.pop_front();
        }
        writes.push_back((sent, received));
    }

    /// When a process sent the last write whose response it had received before this moment.
    pub fn confirmed_before(&self, process: ProcessId, token: &str, moment: u64) -> Option<u64> {
        let writes = self.confirmed.get(&(process, token.to_owned()))?;
        writes.iter().rev().find(|(_, received)| *received < moment).map(|(sent, _)| *sent)
    }
}
