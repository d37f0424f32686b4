//! The history of ownership: which process took which lease, when it renewed it, and how it lost it.

use std::collections::{BTreeMap, VecDeque};

use super::takeover::End;
use crate::exec::ProcessId;

/// How many confirmed writes of a lease are remembered.
const CONFIRMED: usize = 64;

type Key = (ProcessId, String);

/// The history of ownership.
#[derive(Debug, Default)]
pub struct Ownerships {
    sessions: BTreeMap<String, ProcessId>,
    /// The checkpoint with which a process last took a lease.
    taken: BTreeMap<Key, Option<u64>>,
    ends: BTreeMap<Key, (u64, End)>,
    /// When a process sent its last writes of a lease of its own, and when it received the response.
    confirmed: BTreeMap<Key, VecDeque<(u64, u64)>>,
}

impl Ownerships {
    /// A process took a lease, under this session if it writes one, with this checkpoint.
    pub fn taken(&mut self, process: ProcessId, token: &str, session: Option<&str>, position: Option<u64>) {
        if let Some(session) = session {
            self.sessions.insert(session.to_owned(), process);
        }
        self.taken.insert((process, token.to_owned()), position);
    }

    /// Whether a session is that of a process.
    pub fn is_session_of(&self, process: ProcessId, session: &str) -> bool {
        self.sessions.get(session) == Some(&process)
    }

    /// The checkpoint with which a process last took a lease. Others may have taken it since.
    pub fn taken_at(&self, process: ProcessId, token: &str) -> Option<u64> {
        self.taken.get(&(process, token.to_owned())).copied().flatten()
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
