//! Checks at every write to a lease: S2 to S5, S10, S14, and what a takeover was.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use changefeed::lease::document::LeaseDocument;
use changefeed_core::FeedRange;

use crate::{exec::ProcessId, reach::Sometimes, truth::Truth};

/// How many confirmed writes of a lease are remembered.
const CONFIRMED: usize = 64;

/// A broken promise: its number and a sentence.
pub type Broken = (&'static str, String);

/// How an ownership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By the owner itself: released, granted or deleted.
    Graceful,
    /// By another host, after the owner had been silent.
    Expired,
    /// By another host, although the owner was alive.
    Abrupt,
}

/// A lease as the store has it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The document.
    pub document: Arc<LeaseDocument>,
    /// When it was last written.
    pub written: u64,
    /// When its owner last wrote it.
    pub renewed: u64,
    /// Since when somebody asks for it.
    pub asked: Option<u64>,
    /// When it was created.
    pub created: u64,
    /// Whether it was created by a request that had been under way since before the lease around it existed. Nobody
    /// can prevent that, but nothing may be delivered in its name.
    pub undead: bool,
}

/// What is known about the writer of a lease.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The process; 0: an operator.
    pub process: ProcessId,
    /// Its instance name.
    pub name: &'a str,
    /// The time.
    pub now: u64,
    /// When it sent the request.
    pub sent: u64,
    /// The expiration interval, in microseconds.
    pub expiration: u64,
}

/// A lease that an operator deleted. Others may have covered its range at that moment, as the parent of a split does.
#[derive(Debug)]
struct Damage {
    range: FeedRange,
    /// Whether a lease was made there since.
    repaired: bool,
}

/// All leases, and who had them.
#[derive(Debug, Default)]
pub struct Ledger {
    leases: BTreeMap<String, Lease>,
    sessions: BTreeMap<String, ProcessId>,
    /// The checkpoint that a process last took a lease with.
    taken: BTreeMap<(ProcessId, String), Option<u64>>,
    ends: BTreeMap<(ProcessId, String), (u64, End)>,
    /// When a process began its last writes of a lease of its own, and when it heard that they were done.
    confirmed: BTreeMap<(ProcessId, String), VecDeque<(u64, u64)>>,
    /// Whether the first leases are complete.
    pub complete: bool,
    /// Whether a lease was created, deleted or given another range since the cover was checked.
    reshaped: bool,
    /// What operators deleted, until it is whole again.
    damages: Vec<Damage>,
    /// Tokens whose successors were being created, and by whom.
    splitters: BTreeMap<String, ProcessId>,
    /// How often a lease changed hands.
    pub moves: u64,
    /// The newest position of the lease container.
    pub newest: u64,
}

/// The number in a continuation of our own stores.
pub fn position(continuation: Option<&str>) -> Option<u64> {
    continuation?.trim_matches('"').parse().ok()
}

impl Ledger {
    /// All leases, by id.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// A lease by its token.
    pub fn by_token(&self, token: &str) -> Option<&Lease> {
        self.leases.values().find(|lease| lease.document.token.as_str() == token)
    }

    /// The id and document of one of the leases.
    pub fn pick(&self, number: u64) -> Option<(&String, &Lease)> {
        let count = self.leases.len() as u64;
        self.leases.iter().nth(usize::try_from(number % count.max(1)).unwrap_or_default())
    }

    /// The process that holds a lease.
    pub fn holder(&self, lease: &Lease) -> Option<ProcessId> {
        self.sessions.get(lease.document.session()?).copied()
    }

    /// The checkpoint that a process last took a lease with. Others may have taken it since.
    pub fn taken_at(&self, process: ProcessId, token: &str) -> Option<u64> {
        self.taken.get(&(process, token.to_owned())).copied().flatten()
    }

    /// How a process lost a lease, and when.
    pub fn end_of(&self, process: ProcessId, token: &str) -> Option<(u64, End)> {
        self.ends.get(&(process, token.to_owned())).copied()
    }

    /// A process hears that a write it began at `begun` was done. Asking another host for its lease renews nothing, even
    /// if that host has the same instance name.
    pub fn confirm(&mut self, process: ProcessId, lease: &LeaseDocument, begun: u64, heard: u64) {
        if lease.session().and_then(|session| self.sessions.get(session)) != Some(&process) {
            return;
        }
        let writes = self.confirmed.entry((process, lease.token.as_str().to_owned())).or_default();
        if writes.len() == CONFIRMED {
            writes.pop_front();
        }
        writes.push_back((begun, heard));
    }

    /// When a process began the last write of which it had heard before this moment.
    pub fn confirmed_before(&self, process: ProcessId, token: &str, moment: u64) -> Option<u64> {
        let writes = self.confirmed.get(&(process, token.to_owned()))?;
        writes.iter().rev().find(|(_, heard)| *heard < moment).map(|(begun, _)| *begun)
    }

    /// A lease was written or created.
    ///
    /// # Errors
    /// The promise that this breaks.
    pub fn wrote(
        &mut self,
        new: Arc<LeaseDocument>,
        writer: Writer<'_>,
        truth: &Truth,
        reached: &mut dyn FnMut(Sometimes),
    ) -> Result<(), Broken> {
        let old = self.leases.get(&new.id).cloned();
        let mut lease = match &old {
            Some(old) => self.replaced(old, &new, writer, reached)?,
            None => self.created(&new, writer, reached)?,
        };
        self.check_position(old.as_ref().map(|old| &*old.document), &new, truth)?;
        lease.written = writer.now;
        let shape = |document: &LeaseDocument| (document.range(), document.is_gone());
        self.reshaped |= old.as_ref().is_none_or(|old| shape(&old.document) != shape(&new));
        self.leases.insert(new.id.clone(), lease);
        self.check_cover()
    }

    fn created(
        &mut self,
        new: &Arc<LeaseDocument>,
        writer: Writer<'_>,
        reached: &mut dyn FnMut(Sometimes),
    ) -> Result<Lease, Broken> {
        self.note_taker(new, writer);
        let mut undead = false;
        if let Some(parent) = self.parent_of(new) {
            let (token, at) = (&parent.document.token, &parent.document.continuation);
            let damaged =
                new.range().is_some_and(|range| self.damages.iter().any(|damage| damage.range.overlaps(&range)));
            let differs = *at != new.continuation && !damaged;
            undead = differs && writer.sent < parent.created;
            if differs && !undead {
                let message = format!(
                    "lease {} begins at {:?}, but its parent {token} has the checkpoint {at:?}",
                    new.token, new.continuation
                );
                return Err(("S10", message));
            }
            let splitter = self.splitters.insert(token.as_str().to_owned(), writer.process);
            if splitter.is_some_and(|splitter| splitter != writer.process) {
                reached(Sometimes::TwoSplitters);
            }
        }
        if let Some(range) = new.range() {
            let repaired = self.damages.iter_mut().filter(|damage| damage.range.overlaps(&range));
            repaired.for_each(|damage| damage.repaired = true);
        }
        Ok(Lease {
            document: Arc::clone(new),
            written: writer.now,
            renewed: writer.now,
            asked: None,
            created: writer.now,
            undead,
        })
    }

    /// Who writes a lease with a session takes it.
    fn note_taker(&mut self, new: &LeaseDocument, writer: Writer<'_>) {
        if let Some(session) = new.session() {
            self.sessions.insert(session.to_owned(), writer.process);
            let taken_at = position(new.continuation.as_deref());
            self.taken.insert((writer.process, new.token.as_str().to_owned()), taken_at);
        }
    }

    /// The narrowest lease that the new one lies in; of two with the same range the younger, which replaces the other.
    fn parent_of(&self, new: &LeaseDocument) -> Option<&Lease> {
        let range = new.range()?;
        let alive = self.leases.values().filter(|lease| !lease.document.is_gone());
        let around = alive.filter_map(|lease| Some((lease.document.range()?, lease)));
        let around = around.filter(|(parent, _)| parent.contains_range(&range));
        let narrower = around.reduce(|a, b| {
            let (inside, around) = (a.0.contains_range(&b.0), b.0.contains_range(&a.0));
            if inside && (!around || a.1.created <= b.1.created) { b } else { a }
        });
        narrower.map(|(_, lease)| lease)
    }

    fn replaced(
        &mut self,
        old: &Lease,
        new: &Arc<LeaseDocument>,
        writer: Writer<'_>,
        reached: &mut dyn FnMut(Sometimes),
    ) -> Result<Lease, Broken> {
        let (before, token) = (&old.document, new.token.as_str().to_owned());
        let holder = self.holder(old);
        let mut lease = old.clone();
        lease.document = Arc::clone(new);
        lease.asked = match (before.hand_over(), new.hand_over()) {
            (Some(a), Some(b)) if a == b => old.asked,
            (_, Some(_)) => Some(writer.now),
            (_, None) => None,
        };
        // A host that had given a lease up takes it back under a new epoch.
        let again = new.epoch() == before.epoch() + 1 && holder == Some(writer.process);
        if (new.owner.as_ref(), new.session()) == (before.owner.as_ref(), before.session()) && !again {
            if new.epoch() != before.epoch() {
                let message = format!("lease {token} kept its owner, but not its epoch {}", before.epoch());
                return Err(("S5", message));
            }
            if holder == Some(writer.process) {
                lease.renewed = writer.now;
            } else if new.continuation != before.continuation || new.timestamp != before.timestamp {
                let message = format!(
                    "{} wrote lease {token} of {:?}, epoch {}, without holding it",
                    writer.name,
                    before.owner,
                    before.epoch()
                );
                return Err(("S4", message));
            }
            return Ok(lease);
        }
        if new.epoch() != before.epoch() + 1 {
            let message = format!(
                "lease {token} went from {:?} to {:?}, and its epoch from {} to {}",
                before.owner,
                new.owner,
                before.epoch(),
                new.epoch()
            );
            return Err(("S5", message));
        }
        self.moves += 1;
        let end = self.judge_move(old, new, holder, writer, reached)?;
        if let Some(holder) = holder {
            self.ends.insert((holder, token), (writer.now, end));
        }
        self.note_taker(new, writer);
        lease.renewed = writer.now;
        Ok(lease)
    }

    /// What a change of owner was, and whether it was allowed.
    fn judge_move(
        &self,
        old: &Lease,
        new: &LeaseDocument,
        holder: Option<ProcessId>,
        writer: Writer<'_>,
        reached: &mut dyn FnMut(Sometimes),
    ) -> Result<End, Broken> {
        let (before, token) = (&old.document, &new.token);
        if new.session().is_none() {
            // A release or a grant: only the holder may, or the one that a lease was granted to and that has not taken it.
            let granted = before.session().is_none() && before.owner.as_deref() == Some(writer.name);
            if holder != Some(writer.process) && !granted {
                let message = format!("{} gave lease {token} of {:?} away", writer.name, before.owner);
                return Err(("S4", message));
            }
            if new.owner.is_some() {
                reached(Sometimes::Granted);
            }
            if new.is_gone() {
                reached(Sometimes::Tombstone);
            }
            return Ok(End::Graceful);
        }
        if new.owner.as_deref() != Some(writer.name) {
            return Err(("S4", format!("{} made {:?} the owner of lease {token}", writer.name, new.owner)));
        }
        let silent = writer.now - old.written;
        if self.splitters.contains_key(token.as_str()) {
            reached(Sometimes::TakeoverDuringSplit);
        }
        // No clock may be more than five percent wrong.
        if before.owner.is_none() || before.session().is_none() && before.owner.as_deref() == Some(writer.name) {
            Ok(End::Graceful)
        } else if silent >= writer.expiration * 9 / 10 {
            reached(Sometimes::ExpiryTakeover);
            Ok(End::Expired)
        } else if holder == Some(writer.process) {
            Ok(End::Graceful)
        } else if before.owner.as_deref() == Some(writer.name) {
            Ok(End::Abrupt)
        } else if old.asked.is_some_and(|asked| writer.now - asked >= writer.expiration * 4 / 10) {
            reached(Sometimes::Forced);
            Ok(End::Abrupt)
        } else {
            let message = format!(
                "{} took lease {token} from {:?}, which had written it {} ms before",
                writer.name,
                before.owner,
                silent / 1000
            );
            Err(("S5", message))
        }
    }

    /// S2 and S3: what a checkpoint may say.
    fn check_position(&self, old: Option<&LeaseDocument>, new: &LeaseDocument, truth: &Truth) -> Result<(), Broken> {
        let before = old.and_then(|old| position(old.continuation.as_deref()));
        let after = position(new.continuation.as_deref());
        if let Some(old) = old
            && old.generation() == new.generation()
            && after < before
        {
            let message = format!("checkpoint of lease {} went back from {before:?} to {after:?}", new.token);
            return Err(("S3", message));
        }
        let (Some(after), Some(range)) = (after, new.range()) else { return Ok(()) };
        match truth.undone(&range, before.unwrap_or(0), after) {
            None => Ok(()),
            Some(change) => {
                let message = format!(
                    "checkpoint {after} of lease {} passes the change of item {} at {}, which was not handled",
                    new.token, change.item, change.lsn
                );
                Err(("S2", message))
            }
        }
    }

    /// A lease was deleted; by an operator if the writer is the world.
    ///
    /// # Errors
    /// The promise that this breaks.
    pub fn deleted(&mut self, id: &str, writer: Writer<'_>) -> Result<(), Broken> {
        let Some(old) = self.leases.remove(id) else { return Ok(()) };
        self.reshaped = true;
        let token = old.document.token.as_str().to_owned();
        let holder = self.holder(&old);
        self.splitters.remove(&token);
        if let Some(holder) = holder {
            let end = if holder == writer.process { End::Graceful } else { End::Abrupt };
            self.ends.insert((holder, token.clone()), (writer.now, end));
        }
        if writer.process == crate::exec::WORLD {
            self.damaged(&old);
            return Ok(());
        }
        let abandoned = old.document.owner.is_none() || writer.now - old.written >= writer.expiration * 9 / 10;
        if holder != Some(writer.process) && !old.document.is_gone() && !abandoned {
            let message = format!("{} deleted lease {token} of {:?}", writer.name, old.document.owner);
            return Err(("S4", message));
        }
        self.check_cover()
    }

    /// Notes what an operator deleted, unless its successors do its work already.
    fn damaged(&mut self, old: &Lease) {
        let Some(range) = old.document.range() else { return };
        let younger = self.leases.values().filter(|lease| lease.created > old.created && !lease.document.is_gone());
        let successors: Vec<FeedRange> = younger.filter_map(|lease| lease.document.range()).collect();
        if !changefeed::lease::coverage::uncovered(&range, successors.iter()).is_empty() {
            self.damages.push(Damage { range, repaired: false });
        }
    }

    /// S10: every key has a lease, and two leases have keys in common only if one lies inside the other.
    fn check_cover(&mut self) -> Result<(), Broken> {
        if !self.complete || !std::mem::take(&mut self.reshaped) {
            return Ok(());
        }
        let ranges: Vec<(&str, FeedRange)> = self.ranges().collect();
        let holes = changefeed::lease::coverage::uncovered(&FeedRange::full(), ranges.iter().map(|(_, range)| range));
        let damaged = |hole: &&FeedRange| self.damages.iter().any(|damage| damage.range.overlaps(hole));
        if let Some(hole) = holes.iter().find(|hole| !damaged(hole)) {
            return Err(("S10", format!("no lease covers {hole}")));
        }
        for (at, (token, range)) in ranges.iter().enumerate() {
            for (other_token, other) in ranges.iter().skip(at + 1) {
                let nested = range.contains_range(other) || other.contains_range(range);
                if range.overlaps(other) && !nested {
                    return Err(("S10", format!("leases {token} and {other_token} cross each other")));
                }
            }
        }
        self.damages.retain(|damage| !damage.repaired || holes.iter().any(|hole| hole.overlaps(&damage.range)));
        Ok(())
    }

    fn ranges(&self) -> impl Iterator<Item = (&str, FeedRange)> {
        let alive = self.leases.values().filter(|lease| !lease.document.is_gone());
        alive.filter_map(|lease| Some((lease.document.token.as_str(), lease.document.range()?)))
    }

    /// Whether the leases tile the key space, nothing is left over and nobody waits for anything.
    ///
    /// # Errors
    /// What is not so.
    pub fn is_tidy(&self) -> Result<(), String> {
        let mut ranges: Vec<(&str, FeedRange)> = self.ranges().collect();
        ranges.sort_by(|a, b| a.1.cmp(&b.1));
        if let Some(lease) = self.leases.values().find(|lease| lease.document.is_gone()) {
            return Err(format!("the tombstone of lease {} is left", lease.document.token));
        }
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1.overlaps(&pair[1].1)) {
            return Err(format!("leases {} and {} overlap", pair[0].0, pair[1].0));
        }
        let holes = changefeed::lease::coverage::uncovered(&FeedRange::full(), ranges.iter().map(|(_, range)| range));
        if let Some(hole) = holes.first() {
            return Err(format!("no lease covers {hole}"));
        }
        match self.leases.values().find(|lease| lease.document.hand_over().is_some()) {
            Some(lease) => Err(format!("lease {} is still asked for", lease.document.token)),
            None => Ok(()),
        }
    }
}
