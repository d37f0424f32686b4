//! Checks at every delegate call: S6 to S9, S17, S18.

use std::collections::{BTreeMap, BTreeSet};

use super::{Broken, key_range::KeyRange, lease_checker::LeaseChecker, takeover::End};
use crate::{coverage::Sometimes, exec::ProcessId, oracle::Oracle};

/// So many items that were to be retried together may be delivered one by one before it counts as a violation.
const ALONE_AFTER_RETRY: u32 = 6;

/// One lease in one process, from acquired to released.
#[derive(Debug, Default)]
struct Session {
    number: u64,
    open: bool,
    /// The call that is running.
    running: Option<RunningCall>,
    /// The checkpoint that the lease was taken with.
    taken_at: Option<u64>,
    /// The first position of the last call, and how many changes it had.
    last: Option<(u64, usize)>,
    /// Whether a call has failed or was dropped since something was delivered.
    failed: bool,
    /// Changes handled in this session.
    handled: BTreeSet<usize>,
    /// Those of them that the user has not checkpointed, in order.
    unclaimed: Vec<usize>,
    /// Changes that the last call asked for again, all at once.
    retry: BTreeSet<usize>,
    /// How many of them were delivered alone.
    alone: u32,
    /// Dead letters since the last success.
    dead_letters: BTreeSet<(u64, String)>,
    /// Changes of calls that failed, until they are handled or dead letters.
    unsettled: BTreeSet<usize>,
    /// Whether the delegate may not see items that are unsettled, because they do not parse.
    partial: bool,
}

/// A call that is running.
#[derive(Clone, Debug)]
struct RunningCall {
    begun: u64,
    changes: Vec<usize>,
}

/// A call that begins.
#[derive(Debug)]
pub struct Call<'a> {
    /// The process.
    pub process: ProcessId,
    /// The lease.
    pub token: &'a str,
    /// Its range.
    pub range: &'a KeyRange,
    /// The changes, by index; none for one that was never written.
    pub changes: &'a [Option<usize>],
    /// When the task of this call was spawned: the moment of the decision.
    pub decided: u64,
    /// The expiration and renew intervals of the host, in microseconds.
    pub intervals: (u64, u64),
    /// Whether the processor stores progress by itself.
    pub automatic: bool,
    /// Whether no duplicate is allowed in this run.
    pub planned_only: bool,
    /// Whether the delegate may see only a part of its batch, because the rest does not parse.
    pub partial: bool,
    /// Whether the lease store answers every request.
    pub reliable: bool,
    /// How many calls of the host may run at the same time.
    pub most: Option<usize>,
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Deliveries {
    sessions: BTreeMap<(ProcessId, String), Session>,
    numbers: u64,
    /// How many changes were delivered.
    pub delivered: u64,
    /// How many of them had been handled before.
    pub duplicates: u64,
}

impl Deliveries {
    /// A process reports that it acquired a lease.
    ///
    /// # Errors
    /// S9, if it had the lease already.
    pub fn acquired(&mut self, process: ProcessId, token: &str, leases: &LeaseChecker) -> Result<(), Broken> {
        self.numbers += 1;
        let session = self.sessions.entry((process, token.to_owned())).or_default();
        if session.open {
            return Err(("S9", format!("lease {token} was acquired twice by process {process}")));
        }
        let (taken_at, number) = (leases.ownerships.taken_at(process, token), self.numbers);
        *session = Session { number, open: true, taken_at, ..Session::default() };
        Ok(())
    }

    /// A process reports that it released a lease.
    ///
    /// # Errors
    /// S9, if it did not have the lease.
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
        self.sessions.iter().any(|((owner, _), session)| *owner == process && session.running.is_some())
    }

    /// When the running call of a lease began.
    pub fn running_since(&self, process: ProcessId, token: &str) -> Option<u64> {
        self.sessions.get(&(process, token.to_owned()))?.running.as_ref().map(|call| call.begun)
    }

    /// The number of the session in which a process has a lease.
    pub fn session(&self, process: ProcessId, token: &str) -> u64 {
        self.sessions.get(&(process, token.to_owned())).map_or(0, |session| session.number)
    }

    /// A call begins. Returns the indexes of its changes.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn begin(
        &mut self,
        call: &Call<'_>,
        now: u64,
        oracle: &mut Oracle,
        leases: &LeaseChecker,
        cover: &mut dyn FnMut(Sometimes),
    ) -> Result<Vec<usize>, Broken> {
        let token = call.token;
        self.check_concurrency(call)?;
        let session = self.sessions.entry((call.process, token.to_owned())).or_default();
        if !session.open || session.running.is_some() {
            let problem =
                if session.running.is_some() { "while another call of it is running" } else { "after it was released" };
            return Err(("S9", format!("lease {token}: a call begins on process {} {problem}", call.process)));
        }
        check_owner(call, leases, cover)?;
        check_pause(call, leases)?;
        let Some(changes) = call.changes.iter().copied().collect::<Option<Vec<usize>>>() else {
            return Err(("S6", format!("lease {token}: a change was delivered that was never written")));
        };
        session.running = Some(RunningCall { begun: now, changes: changes.clone() });
        session.partial |= call.partial;
        let first = changes.first().and_then(|at| oracle.get(*at)).map_or(0, |change| change.lsn);
        let before = session.last.replace((first, changes.len()));
        if session.failed && before.is_some_and(|(lsn, count)| lsn == first && count > changes.len()) {
            cover(Sometimes::Bisected);
        }
        check_retry(session, &changes, call, leases, oracle)?;
        let mut last = 0;
        for at in &changes {
            let Some(change) = oracle.get(*at) else { continue };
            let (lsn, item) = (change.lsn, change.item);
            if lsn < last {
                return Err(("S6", format!("lease {token}: {lsn} was delivered after {last}")));
            }
            last = lsn;
            if !call.range.contains(&change.epk) {
                return Err(("S6", format!("lease {token}: item {item} does not lie in {}", call.range)));
            }
            if let Some(taken_at) = session.taken_at.filter(|taken_at| lsn <= *taken_at) {
                let message = format!("lease {token}: {lsn} was delivered, which the checkpoint {taken_at} covers");
                return Err(("S8", message));
            }
            if change.handled > 0 {
                self.duplicates += 1;
                cover(Sometimes::Duplicate);
                let again = call.automatic && session.handled.contains(at) && !session.failed && !call.partial;
                if call.planned_only && change.due_since.is_none() || again {
                    return Err(("S8", format!("lease {token}: item {item} at {lsn} is delivered again for nothing")));
                }
            }
            // Where the processor begins after a reset is known when `.info` is there again.
            if let Some(skipped) = oracle.deliver(*at).filter(|_| !leases.is_resetting()) {
                let (item, skipped) = (skipped.item, skipped.lsn);
                return Err(("S6", format!("lease {token}: {lsn} is delivered before item {item} at {skipped}")));
            }
        }
        self.delivered += changes.len() as u64;
        if call.planned_only {
            self.check_overlap(call, &changes)?;
        }
        Ok(changes)
    }

    /// S19: no more calls run at the same time than the user allows.
    fn check_concurrency(&self, call: &Call<'_>) -> Result<(), Broken> {
        let running = self
            .sessions
            .iter()
            .filter(|((process, _), session)| *process == call.process && session.running.is_some());
        match (running.count(), call.most) {
            (running, Some(most)) if running >= most => {
                let (process, token) = (call.process, call.token);
                Err(("S19", format!("lease {token}: a call begins while {running} of process {process} are running")))
            }
            _ => Ok(()),
        }
    }

    /// S8: planned moves do not run a batch on two hosts at once.
    fn check_overlap(&self, call: &Call<'_>, changes: &[usize]) -> Result<(), Broken> {
        for ((process, token), session) in self.sessions.iter().filter(|((process, _), _)| *process != call.process) {
            let same = session
                .running
                .as_ref()
                .is_some_and(|running| running.changes.iter().any(|change| changes.contains(change)));
            if same {
                let message = format!("lease {token}: the batch that process {process} handles begins elsewhere, too");
                return Err(("S8", message));
            }
        }
        Ok(())
    }

    /// These changes were handled.
    pub fn handled(&mut self, process: ProcessId, token: &str, handled: &[usize], oracle: &mut Oracle) {
        let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) else { return };
        let begun = session.running.as_ref().map_or(0, |call| call.begun);
        for at in handled {
            oracle.update(*at, |change| {
                change.handled += 1;
                change.due_since.take_if(|since| *since <= begun);
            });
        }
        if !handled.is_empty() {
            session.dead_letters.clear();
        }
        session.handled.extend(handled);
        session.unclaimed.extend(handled);
        session.unsettled.retain(|at| !handled.contains(at));
    }

    /// A change after a position that a process has handled since it acquired the lease.
    pub fn handled_after(&self, process: ProcessId, token: &str, position: u64, oracle: &Oracle) -> Option<u64> {
        let session = self.sessions.get(&(process, token.to_owned()))?;
        // Progress through a page is stored once all of its items are handled or dead letters.
        if !session.unsettled.is_empty() || session.failed && session.partial {
            return None;
        }
        let lsns = session.handled.iter().filter_map(|at| Some(oracle.get(*at)?.lsn));
        lsns.filter(|lsn| *lsn > position).min()
    }

    /// A call asked for all of these again.
    pub fn retried(&mut self, process: ProcessId, token: &str, changes: &[usize]) {
        if let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) {
            session.retry = changes.iter().copied().collect();
            session.alone = 0;
        }
    }

    /// A call has ended; `failed`: not everything was handled.
    pub fn end(&mut self, process: ProcessId, token: &str, failed: bool) {
        if let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) {
            let changes = session.running.take().map(|call| call.changes).filter(|_| failed).unwrap_or_default();
            session.unsettled.extend(changes.iter().filter(|at| !session.handled.contains(at)));
            session.failed |= failed;
        }
    }

    /// The user says that everything handled up to `last` is done; all of it if none is given. Nothing, if the lease
    /// was acquired again since session `number`.
    pub fn claim(&mut self, process: ProcessId, token: &str, number: u64, last: Option<usize>, oracle: &mut Oracle) {
        let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) else { return };
        if session.number != number {
            return;
        }
        let end = last.map_or(session.unclaimed.len(), |last| {
            session.unclaimed.iter().rposition(|at| *at == last).map_or(0, |at| at + 1)
        });
        for at in session.unclaimed.drain(..end) {
            oracle.update(at, |change| change.claimed = true);
        }
    }

    /// The dead letter of the change `at` was stored by a process; returns how many there were since the last success
    /// of the lease.
    pub fn dead_letter(&mut self, process: ProcessId, token: &str, at: usize, change: (u64, String)) -> usize {
        let Some(session) = self.sessions.get_mut(&(process, token.to_owned())) else { return 0 };
        session.unsettled.remove(&at);
        // One whose answer was lost is written again.
        session.dead_letters.insert(change);
        session.dead_letters.len()
    }
}

/// S7: a host that begins to work must hold the lease, or have lost it abruptly and not know yet. S8: a lease that was
/// replaced stays so.
fn check_owner(call: &Call<'_>, leases: &LeaseChecker, cover: &mut dyn FnMut(Sometimes)) -> Result<(), Broken> {
    let (token, process, expiration) = (call.token, call.process, call.intervals.0);
    if leases.by_token(token).is_some_and(|lease| lease.stale) {
        return Err(("S8", format!("process {process} works on lease {token}, which was replaced before")));
    }
    if let Some(dropped) = leases.dropped_at(process).filter(|dropped| call.decided > dropped + call.intervals.1) {
        let late = (call.decided - dropped) / 1000;
        return Err(("S7", format!("process {process} works on lease {token} {late} ms after it was dropped")));
    }
    if leases.held_by(process, token).is_some() {
        return Ok(());
    }
    let Some((lost, end)) = leases.ownerships.end_of(process, token) else {
        return Err(("S7", format!("process {process} works on lease {token}, which it never had")));
    };
    let late = call.decided.saturating_sub(lost);
    match end {
        _ if late == 0 => Ok(()),
        End::Abrupt if late <= expiration => {
            cover(Sometimes::AbruptZombie);
            Ok(())
        }
        _ => {
            let late = late / 1000;
            Err((
                "S7",
                format!("process {process} begins work on lease {token} {late} ms after it had ended ({end:?})"),
            ))
        }
    }
}

/// S17: no call begins once the owner of a paused lease could have known: at its next renewal, or when it has to stop
/// because it could not renew.
fn check_pause(call: &Call<'_>, leases: &LeaseChecker) -> Result<(), Broken> {
    let Some(lease) = leases.by_token(call.token) else { return Ok(()) };
    let Some(paused) = lease.paused else { return Ok(()) };
    let (expiration, renew) = call.intervals;
    let bound = if call.reliable { 2 * renew } else { expiration * 6 / 5 };
    let late = call.decided.saturating_sub(paused);
    if late <= bound {
        return Ok(());
    }
    let message = format!("lease {} was paused {} ms ago, and a call begins", call.token, late / 1000);
    Err(("S17", message))
}

/// L6: items that are retried together are delivered together.
fn check_retry(
    session: &mut Session,
    changes: &[usize],
    call: &Call<'_>,
    leases: &LeaseChecker,
    oracle: &Oracle,
) -> Result<(), Broken> {
    let isolated = leases.by_token(call.token).is_some_and(|lease| lease.document.isolates());
    let bad = |at: &usize| oracle.get(*at).is_some_and(|change| change.poison || change.killer || change.unparsable);
    match changes {
        [one]
            if session.retry.len() > 1
                && session.retry.contains(one)
                && !isolated
                && !session.retry.iter().any(bad) =>
        {
            session.alone += 1;
        }
        _ => {
            session.retry.clear();
            session.alone = 0;
        }
    }
    if session.alone < ALONE_AFTER_RETRY {
        return Ok(());
    }
    let (count, alone) = (session.retry.len(), session.alone);
    Err(("L6", format!("lease {}: {alone} of {count} items to be retried were delivered one by one", call.token)))
}
