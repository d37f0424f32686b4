//! When each process could read leases: time in which it could not proves nothing about their owners.

use std::collections::{BTreeMap, VecDeque};

use crate::exec::ProcessId;

/// A host that fails to read leases for so many cycles in a row has lost its store.
const OUTAGE_CYCLES: u64 = 4;

/// How many outages of a process are remembered.
const REMEMBERED: usize = 64;

/// When processes could read leases.
#[derive(Debug, Default)]
pub struct Observations(BTreeMap<ProcessId, Reads>);

/// The reads of one process, in microseconds.
#[derive(Debug, Default)]
struct Reads {
    last: Option<u64>,
    failed: bool,
    /// Since when the process stalls.
    stalls_since: Option<u64>,
    /// For how long it stalled since the last read.
    stalled: u64,
    outages: VecDeque<Outage>,
}

/// From the last read before a failure to the next one that succeeded.
#[derive(Debug)]
struct Outage {
    from: u64,
    to: u64,
    /// For how long of it the process itself did not run.
    stalled: u64,
}

impl Observations {
    /// A process listed leases or read their feed, or failed to.
    pub fn read(&mut self, process: ProcessId, now: u64, succeeded: bool) {
        let reads = self.0.entry(process).or_default();
        if !succeeded {
            reads.failed = true;
            return;
        }
        let (before, stalled) = (reads.last.replace(now), std::mem::take(&mut reads.stalled));
        if let (true, Some(from)) = (std::mem::take(&mut reads.failed), before) {
            if reads.outages.len() == REMEMBERED {
                reads.outages.pop_front();
            }
            reads.outages.push_back(Outage { from, to: now, stalled });
        }
    }

    /// A process stalls, or continues.
    pub fn stall(&mut self, process: ProcessId, now: u64, stalls: bool) {
        let reads = self.0.entry(process).or_default();
        if stalls {
            reads.stalls_since.get_or_insert(now);
        } else if let Some(since) = reads.stalls_since.take() {
            reads.stalled += now - since;
        }
    }

    /// For how long a process could not read leases after `since`. Outages in which it ran for less than some cycles of
    /// length `acquire` are left out: others than the balancer read leases, too, and fail on their own.
    pub fn unobserved(&self, process: ProcessId, since: u64, acquire: u64) -> u64 {
        let Some(reads) = self.0.get(&process) else { return 0 };
        let long = reads.outages.iter().filter(|one| one.to - one.from - one.stalled >= acquire * OUTAGE_CYCLES);
        long.map(|one| one.to.saturating_sub(since.max(one.from))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_last_read_before_it_to_the_first_after_it() {
        let mut reads = Observations::default();
        for (now, succeeded) in [(5, false), (10, true), (20, true), (30, false), (40, false), (50, true), (60, true)] {
            reads.read(7, now, succeeded);
        }
        assert_eq!(reads.unobserved(7, 0, 7), 30);
        assert_eq!(reads.unobserved(7, 45, 7), 5);
        assert_eq!(reads.unobserved(7, 0, 8), 0);
        assert_eq!(reads.unobserved(8, 0, 0), 0);
    }
    #[test]
    fn a_request_that_a_stall_has_cut_is_no_outage() {
        let mut reads = Observations::default();
        reads.read(7, 10, true);
        reads.stall(7, 12, true);
        reads.stall(7, 50, false);
        reads.stall(7, 51, false);
        reads.read(7, 50, false);
        reads.read(7, 52, true);
        assert_eq!(reads.unobserved(7, 0, 1), 42, "it ran for four cycles of one");
        assert_eq!(reads.unobserved(7, 0, 2), 0);
    }
}
