//! Checks at every delegate call: S6 to S9.

use std::collections::{BTreeMap, BTreeSet};

use changefeed_core::FeedRange;

use super::ledger::{Broken, End, Ledger};
use crate::{exec::ProcessId, reach::Sometimes, truth::Truth};

/// One lease in one process, from acquired to released.
#[derive(Debug, Default)]
struct Session {
    open: bool,
    /// Whether a call is running.
    busy: bool,
    /// The checkpoint that the lease was taken with.
    taken_at: Option<u64>,
    /// The first position of the last call, and how many changes it had.
    last: Option<(u64, usize)>,
    /// Whether a call has failed or was given up since something was delivered.
    failed: bool,
    /// Changes handled in this session.
    handled: BTreeSet<usize>,
    /// Those of them that the user has not checkpointed, in order.
    unclaimed: Vec<usize>,
}

/// A call that begins.
#[derive(Debug)]
pub struct Call<'a> {
    /// The process.
    pub process: ProcessId,
    /// The lease.
    pub token: &'a str,
    /// Its range.
    pub range: &'a FeedRange,
    /// Positions and items.
    pub changes: &'a [(u64, u32)],
    /// When the task of this call was spawned: the moment of the decision.
    pub decided: u64,
    /// The expiration interval, in microseconds.
    pub expiration: u64,
    /// Whether the processor stores progress by itself.
    pub automatic: bool,
    /// Whether no duplicate is allowed in this run.
    pub planned_only: bool,
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Deliveries {
    sessions: BTreeMap<(ProcessId, String), Session>,
    /// How many changes were delivered.
    pub delivered: u64,
    /// How many of them had been handled before.
    pub duplicates: u64,
}

impl Deliveries {
    /// A process says that a lease is its own now.
    ///
    /// # Errors
    /// S9, if it was already.
    pub fn acquired(&mut self, process: ProcessId, token: &str, ledger: &Ledger) -> Result<(), Broken> {
        let session = self.sessions.entry((process, token.to_owned())).or_default();
        if session.open {
            return Err(("S9", format!("lease {token} was acquired twice by process {process}")));
        }
        let taken_at = ledger.taken_at(process, token);
        *session = Session { open: true, taken_at, ..Session::default() };
        Ok(())
    }

    /// A process says that a lease is no longer its own.
    ///
    /// # Errors
    /// S9, if it was not.
    pub fn released(&mut self, process: ProcessId, token: &str) -> Result<(), Broken> {
        match self.sessions.get_mut(&(process, token.to_owned())) {
            Some(session) if session.open => {
                session.open = false;
                Ok(())
            }
            _ => Err(("S9", format!("lease {token} was released by process {process}, which did not have it"))),
        }
    }

    /// Whether a call of the process is running.
    pub fn is_busy(&self, process: ProcessId) -> bool {
        self.sessions.iter().any(|((owner, _), session)| *owner == process && session.busy)
    }

    /// A call begins. Returns the numbers of its changes.
    ///
    /// # Errors
    /// The promise that this breaks.
    pub fn begin(
        &mut self,
        call: &Call<'_>,
        truth: &mut Truth,
        ledger: &Ledger,
        reached: &mut dyn FnMut(Sometimes),
    ) -> Result<Vec<usize>, Broken> {
        let token = call.token;
        let session = self.sessions.entry((call.process, token.to_owned())).or_default();
        if !session.open || session.busy {
            let problem = if session.busy { "while another call of it is running" } else { "after it was released" };
            return Err(("S9", format!("lease {token}: a call begins on process {} {problem}", call.process)));
        }
        session.busy = true;
        let first = call.changes.first().map_or(0, |(lsn, _)| *lsn);
        let before = session.last.replace((first, call.changes.len()));
        if session.failed && before.is_some_and(|(lsn, count)| lsn == first && count > call.changes.len()) {
            reached(Sometimes::Bisected);
        }
        check_owner(call, ledger, reached)?;
        let mut numbers = Vec::with_capacity(call.changes.len());
        let mut last = 0;
        for &(lsn, item) in call.changes {
            let Some(at) = truth.find(lsn, item) else {
                return Err(("S6", format!("lease {token}: item {item} at {lsn} was delivered, but never written")));
            };
            if lsn < last {
                return Err(("S6", format!("lease {token}: {lsn} was delivered after {last}")));
            }
            last = lsn;
            if let Some(change) = truth.get(at) {
                if !call.range.contains(&change.epk) {
                    return Err(("S6", format!("lease {token}: item {item} does not lie in {}", call.range)));
                }
                if session.taken_at.is_some_and(|taken_at| lsn <= taken_at) {
                    let from = session.taken_at;
                    return Err((
                        "S8",
                        format!("lease {token}: {lsn} was delivered, which the checkpoint {from:?} covers"),
                    ));
                }
                if change.handled > 0 {
                    self.duplicates += 1;
                    reached(Sometimes::Duplicate);
                    if call.planned_only || call.automatic && session.handled.contains(&at) && !session.failed {
                        return Err((
                            "S8",
                            format!("lease {token}: item {item} at {lsn} is delivered again for nothing"),
                        ));
                    }
                }
            }
            if let Some(skipped) = truth.deliver(at) {
                let (item, skipped) = (skipped.item, skipped.lsn);
                return Err(("S6", format!("lease {token}: {lsn} is delivered before item {item} at {skipped}")));
            }
            numbers.push(at);
        }
        self.delivered += numbers.len() as u64;
        Ok(numbers)
    }

    /// These changes were handled.
    pub fn handled(&mut self, process: ProcessId, token: &str, handled: &[usize], truth: &mut Truth) {
        for at in handled {
            truth.update(*at, |change| change.handled += 1);
        }
        if let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) {
            session.handled.extend(handled);
            session.unclaimed.extend(handled);
        }
    }

    /// A call has ended; `failed`: not everything was handled.
    pub fn end(&mut self, process: ProcessId, token: &str, failed: bool) {
        if let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) {
            session.busy = false;
            session.failed |= failed;
        }
    }

    /// The user says that everything handled so far is done, without the newest `keep` changes.
    pub fn claim(&mut self, process: ProcessId, token: &str, keep: usize, truth: &mut Truth) {
        if let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) {
            let done = session.unclaimed.len().saturating_sub(keep);
            for at in session.unclaimed.drain(..done) {
                truth.update(at, |change| change.claimed = true);
            }
        }
    }
}

/// S7: who begins to work must hold the lease, or have lost it abruptly and not know yet. S8: a lease that was replaced
/// stays so.
fn check_owner(call: &Call<'_>, ledger: &Ledger, reached: &mut dyn FnMut(Sometimes)) -> Result<(), Broken> {
    let token = call.token;
    let lease = ledger.by_token(token);
    if lease.is_some_and(|lease| lease.undead) {
        return Err(("S8", format!("process {} works on lease {token}, which was replaced before", call.process)));
    }
    let holder = lease.and_then(|lease| ledger.holder(lease));
    if holder == Some(call.process) {
        return Ok(());
    }
    let Some((lost, end)) = ledger.end_of(call.process, token) else {
        return Err(("S7", format!("process {} works on lease {token}, which it never had", call.process)));
    };
    let late = call.decided.saturating_sub(lost);
    match end {
        _ if late == 0 => Ok(()),
        End::Abrupt if late <= call.expiration => {
            reached(Sometimes::AbruptZombie);
            Ok(())
        }
        _ => {
            let message = format!(
                "process {} begins work on lease {token} {} ms after it had ended ({end:?})",
                call.process,
                late / 1000
            );
            Err(("S7", message))
        }
    }
}
