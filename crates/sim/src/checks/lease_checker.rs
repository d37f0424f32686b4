//! Checks at every write to a lease: S2 to S5, S10, S17, and how each ownership ended.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    Broken, dotnet,
    key_range::KeyRange,
    lease::{Lease, Writer, is_outdated, is_tidy, moved_inside, not_held, owned, parent_of, ranges, wrong_epoch},
    lease_document::{DocumentKey, LeaseDocument},
    observations::Observations,
    ownerships::Ownerships,
    position::check_position,
    reset::{Reset, StartPositions},
    seek::{check_ended, target},
    takeover::{End, Process, ProcessKind, Takeover},
    tiling::Tiling,
};
use crate::{coverage::Sometimes, exec::ProcessId, oracle::Oracle};

/// All leases, and which processes had them.
#[derive(Debug, Default)]
pub struct LeaseChecker {
    leases: BTreeMap<DocumentKey, Lease>,
    processes: BTreeMap<ProcessId, Process>,
    /// Ranges by physical range id, for leases that do not name their keys.
    physical: BTreeMap<String, KeyRange>,
    /// What processes did with leases.
    pub ownerships: Ownerships,
    /// When processes could read leases.
    pub observations: Observations,
    /// When processes dropped their running processor.
    dropped: BTreeMap<ProcessId, u64>,
    steals: BTreeMap<ProcessId, u64>,
    /// Tokens whose successors were being created, and by which process.
    splitters: BTreeMap<String, ProcessId>,
    /// Whether the leases tile the key space.
    pub tiling: Tiling,
    /// Whether an operator has reset the processor, and no host has written `.info` since.
    resetting: bool,
    /// Where ranges begin, as `.info` says.
    starts: StartPositions,
    /// The reset under way, of a processor that begins at the beginning.
    reset: Option<Reset>,
    /// Whether forced steals are switched on.
    forced_steal: bool,
    /// The number of changes of owner.
    pub moves: u64,
    /// The newest position of the lease container.
    pub newest: u64,
}

impl LeaseChecker {
    /// A checker before the first lease.
    pub fn new(forced_steal: bool) -> Self {
        Self { forced_steal, ..Self::default() }
    }

    /// Registers a process.
    pub fn register(&mut self, process: ProcessId, facts: Process) {
        self.processes.insert(process, facts);
    }

    /// Registers a physical range.
    pub fn register_range(&mut self, id: &str, range: KeyRange) {
        self.physical.insert(id.to_owned(), range);
    }

    /// A process dropped its running processor.
    pub fn dropped(&mut self, process: ProcessId, now: u64) {
        self.dropped.insert(process, now);
    }

    /// When a process dropped its running processor.
    pub fn dropped_at(&self, process: ProcessId) -> Option<u64> {
        self.dropped.get(&process).copied()
    }

    /// Whether the leases tile the key space, nothing is left over and no request is open; if not, what is wrong.
    pub fn is_tidy(&self) -> Result<(), String> {
        is_tidy(&self.leases)
    }

    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// The lease of a token; of two documents the one with the higher epoch, then with the earlier position.
    pub fn by_token(&self, token: &str) -> Option<&Lease> {
        let documents = self.leases.values().filter(|lease| lease.document.token == token);
        documents.max_by_key(|lease| (lease.document.epoch(), std::cmp::Reverse(lease.document.position())))
    }

    /// The lease of a token if a process holds it: of two documents the one that the process works on.
    pub fn held_by(&self, process: ProcessId, token: &str) -> Option<&Lease> {
        self.leases.get(self.ownerships.document(process, token)?).filter(|lease| lease.holder == Some(process))
    }

    /// One of the leases.
    pub fn pick(&self, number: u64) -> Option<&Lease> {
        let count = self.leases.len() as u64;
        self.leases.values().nth(usize::try_from(number % count.max(1)).unwrap_or_default())
    }

    /// A process received the response to a write. Only writes of the holder renew, not requests by its namesake.
    pub fn confirm(&mut self, process: ProcessId, lease: &LeaseDocument, sent: u64, received: u64) {
        let held = || self.leases.get(&lease.key).is_some_and(|lease| lease.holder == Some(process));
        let own = lease.session().map_or_else(held, |session| self.ownerships.is_session_of(process, session));
        if own {
            self.ownerships.confirm(process, &lease.token, sent, received);
        }
    }

    /// `.info` was written: the first leases are complete.
    pub fn bootstrapped(&mut self, info: &Value, from_beginning: bool, oracle: &mut Oracle) {
        (self.starts, self.reset) = (StartPositions::parse(info), None);
        self.tiling.complete = true;
        self.tiling.changed = true;
        if std::mem::take(&mut self.resetting) {
            oracle.reset(from_beginning);
        }
    }

    /// `.info` was deleted by an operator, at `now`.
    pub fn reset(&mut self, from_beginning: bool, now: u64) {
        (self.resetting, self.tiling.complete) = (true, false);
        let starts = std::mem::take(&mut self.starts);
        self.reset = from_beginning.then_some(Reset { at: now, starts });
    }

    /// Where ranges begin, as `.info` says, or as it said before a reset deleted it.
    pub fn starts(&self) -> &StartPositions {
        self.reset.as_ref().map_or(&self.starts, |reset| &reset.starts)
    }

    /// Whether an operator has reset the processor, and no host has written `.info` since.
    pub fn is_resetting(&self) -> bool {
        self.resetting
    }

    /// What a process is.
    pub fn kind(&self, process: ProcessId) -> ProcessKind {
        self.processes.get(&process).map_or(ProcessKind::Environment, |process| process.kind)
    }

    fn name(&self, process: ProcessId) -> &str {
        self.processes.get(&process).map_or("operator", |process| &process.name)
    }

    fn range_of(&self, document: &LeaseDocument) -> Option<KeyRange> {
        document.range.clone().or_else(|| self.physical.get(&document.token).cloned())
    }

    /// A lease was written or created.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn wrote(
        &mut self,
        new: Arc<LeaseDocument>,
        writer: Writer,
        oracle: &mut Oracle,
        cover: &mut dyn FnMut(Sometimes),
    ) -> Result<(), Broken> {
        let old = self.leases.get(&new.key).cloned();
        let kind = self.kind(writer.process);
        if let Some(old) = old.as_ref().filter(|_| kind == ProcessKind::DotNet) {
            dotnet::overwritten(old, &new, oracle);
        }
        let mut lease = match (&old, kind) {
            (_, ProcessKind::Environment) => self.edited(old.as_ref(), &new, writer),
            (Some(old), ProcessKind::Operator) => self.commanded(old, &new, writer, oracle, cover)?,
            (Some(old), _) if old.follows_parent(&new) => self.commanded(old, &new, writer, oracle, cover)?,
            (Some(old), _) => self.replaced(old, &new, writer, oracle, cover)?,
            (None, _) => self.created(&new, writer, cover)?,
        };
        if matches!(kind, ProcessKind::Host | ProcessKind::Previous) {
            self.check_dropped(&new, writer)?;
            let unaware = old.is_none() && lease.sought.is_some();
            // A lease around it was moved: S17 checks that this one follows before that one ends.
            let outdated = lease.range.as_ref().is_some_and(|range| is_outdated(&self.leases, &new, range));
            if !self.resetting && !unaware && !outdated {
                let before = old.as_ref().map(|old| &*old.document);
                check_position(before, &new, lease.range.as_ref(), oracle)?;
            }
        }
        lease.written = writer.now;
        if old.as_ref().is_none_or(|old| old.is_renewed(&new)) {
            lease.renewed = writer.now;
        }
        lease.paused = new.is_paused().then(|| old.as_ref().and_then(|old| old.paused).unwrap_or(writer.now));
        let shape = |lease: &Lease| (lease.range.clone(), lease.document.is_gone());
        self.tiling.changed |= old.as_ref().is_none_or(|old| shape(old) != shape(&lease));
        if let Some(range) = &lease.range {
            let was_gone = old.as_ref().is_some_and(|old| old.document.is_gone());
            dotnet::marked(&mut self.tiling, &self.leases, (was_gone, &new), range, kind, cover);
        }
        self.leases.insert(new.key.clone(), lease);
        self.check_tiling()
    }

    fn created(
        &mut self,
        new: &Arc<LeaseDocument>,
        writer: Writer,
        cover: &mut dyn FnMut(Sometimes),
    ) -> Result<Lease, Broken> {
        let range = self.range_of(new);
        let (mut stale, mut sought) = (false, None);
        let dotnet = self.kind(writer.process) == ProcessKind::DotNet;
        if dotnet {
            range.iter().for_each(|range| self.tiling.by_others.push(range.clone()));
        }
        if let Some(parent) = range.as_ref().and_then(|range| parent_of(&self.leases, new, range, writer.process)) {
            let (token, at) = (parent.document.token.clone(), parent.document.continuation.clone());
            let undone = new.generation() < parent.document.generation();
            let damaged = range.as_ref().is_some_and(|range| self.tiling.is_damaged(range));
            // A .NET host begins where it has read to, and knows no seeks.
            let differs = (at != new.continuation || undone) && !damaged && !dotnet;
            // A host that has lost the parent, or sent this before, cannot know that an operator has moved it.
            let other = parent.holder != Some(writer.process);
            let unaware = parent.sought.is_some_and(|moved| other || writer.sent < moved);
            // A checkpoint of the parent was under way at the same time: the child repeats a little.
            let raced = writer.sent <= parent.written && new.position() <= parent.document.position() && !undone;
            // Of two documents for the parent, the one that counts may be another than the one that is replaced.
            let raced = raced || self.leases.values().filter(|lease| lease.document.token == token).count() > 1;
            stale = differs && writer.sent < parent.created;
            sought = parent.sought.filter(|_| unaware);
            if differs && !stale && !unaware && !raced {
                let check = if undone { "S17" } else { "S10" };
                let message = format!(
                    "lease {} begins at {:?}, but its parent {token} has the checkpoint {at:?}",
                    new.token, new.continuation
                );
                return Err((check, message));
            }
            let splitter = self.splitters.insert(token, writer.process);
            if splitter.is_some_and(|splitter| splitter != writer.process) {
                cover(Sometimes::TwoSplitters);
            }
        }
        // A .NET host begins where it has read to.
        if let Some(reset) = self.reset.as_ref().filter(|_| self.kind(writer.process) == ProcessKind::Host) {
            reset.check(new, range.as_ref(), writer)?;
        }
        if let Some(range) = &range {
            self.tiling.created(range);
        }
        let holder = (new.owner.as_deref() == Some(self.name(writer.process))).then_some(writer.process);
        self.note_taken(new, range.as_ref(), holder);
        Ok(Lease {
            document: Arc::clone(new),
            holder,
            range,
            written: writer.now,
            renewed: writer.now,
            requested: None,
            paused: None,
            sought,
            created: writer.now,
            stale,
            edited: false,
        })
    }

    fn note_taken(&mut self, new: &LeaseDocument, range: Option<&KeyRange>, holder: Option<ProcessId>) {
        let Some(holder) = holder else { return };
        let session = new.session().filter(|_| self.kind(holder) == ProcessKind::Host);
        self.ownerships.taken(holder, new, range, session);
    }

    fn ended(&mut self, holder: Option<ProcessId>, token: &str, writer: Writer, end: End) {
        if let Some(holder) = holder {
            self.ownerships.ended(holder, token, writer.now, end);
        }
    }

    /// A document was edited by hand.
    fn edited(&mut self, old: Option<&Lease>, new: &Arc<LeaseDocument>, writer: Writer) -> Lease {
        let range = self.range_of(new);
        if let Some(range) = &range {
            self.tiling.created(range);
        }
        let holder = old.filter(|old| old.has_owner_of(new)).and_then(|old| old.holder);
        if let Some(old) = old.filter(|_| holder.is_none()) {
            self.ended(old.holder, &new.token, writer, End::Abrupt);
            self.moves += 1;
        }
        Lease::edited(old, new, range, holder, writer.now)
    }

    /// An operator used `Control`, or a host carries out what an operator did to a parent.
    fn commanded(
        &mut self,
        old: &Lease,
        new: &Arc<LeaseDocument>,
        writer: Writer,
        oracle: &mut Oracle,
        cover: &mut dyn FnMut(Sometimes),
    ) -> Result<Lease, Broken> {
        let (mut lease, before) = (old.clone(), &old.document);
        lease.document = Arc::clone(new);
        if before.is_paused() != new.is_paused() {
            cover(if new.is_paused() { Sometimes::Paused } else { Sometimes::Resumed });
        }
        if new.generation() <= before.generation() {
            let moved = new.continuation != before.continuation || new.owner != before.owner;
            return if moved {
                Err(("S17", format!("a command moved lease {} silently", new.token)))
            } else {
                Ok(lease)
            };
        }
        cover(Sometimes::Sought);
        if self.splitters.contains_key(&new.token) {
            cover(Sometimes::SoughtDuringSplit);
        }
        self.ended(old.holder, &new.token, writer, End::Abrupt);
        self.moves += 1;
        (lease.holder, lease.sought, lease.requested) = (None, Some(writer.now), None);
        if let (Some(range), Some(target)) = (&lease.range, target(new)) {
            oracle.sought(range, &moved_inside(&self.leases, new, range), target, writer.now);
        }
        Ok(lease)
    }

    fn replaced(
        &mut self,
        old: &Lease,
        new: &Arc<LeaseDocument>,
        writer: Writer,
        oracle: &mut Oracle,
        cover: &mut dyn FnMut(Sometimes),
    ) -> Result<Lease, Broken> {
        let (before, token, kind) = (&old.document, new.token.clone(), self.kind(writer.process));
        let mut lease = old.clone();
        lease.document = Arc::clone(new);
        lease.range = self.range_of(new).or_else(|| old.range.clone());
        lease.requested = match (before.requested_by(), new.requested_by()) {
            (Some(a), Some(b)) if a == b => old.requested,
            (_, Some(_)) => Some(writer.sent),
            (_, None) => None,
        };
        if new.generation() != before.generation() && kind != ProcessKind::DotNet {
            return Err(("S17", format!("{} changed the generation of lease {token}", self.name(writer.process))));
        }
        if kind == ProcessKind::Host && before.is_paused() && !new.is_paused() {
            return Err(("S17", format!("{} resumed lease {token}", self.name(writer.process))));
        }
        if new.is_gone() && !before.is_gone() && kind != ProcessKind::DotNet {
            check_ended(old, &self.leases, &self.tiling.by_others, writer, oracle)?;
        }
        let moved = (&before.owner, before.epoch(), before.session()) != (&new.owner, new.epoch(), new.session());
        if !moved {
            if old.holder != Some(writer.process)
                && kind != ProcessKind::DotNet
                && (new.continuation != before.continuation || new.timestamp != before.timestamp)
            {
                return Err(not_held(self.name(writer.process), before));
            }
            return Ok(lease);
        }
        if kind != ProcessKind::DotNet && new.epoch() != before.epoch() + 1 {
            return Err(wrong_epoch(before, new));
        }
        self.moves += 1;
        let end = self.classify_move(old, new, writer, cover)?;
        self.ended(old.holder, &token, writer, end);
        lease.edited = false;
        // A grant to another process with the same instance name ends the session, and begins none.
        let granted = before.session().is_some() && new.session().is_none();
        let own = new.owner.as_deref() == Some(self.name(writer.process)) && !granted;
        lease.holder = own.then_some(writer.process);
        self.note_taken(new, lease.range.as_ref(), lease.holder);
        Ok(lease)
    }

    /// Whether a change of owner was allowed, and what it was.
    fn classify_move(
        &mut self,
        old: &Lease,
        new: &LeaseDocument,
        writer: Writer,
        cover: &mut dyn FnMut(Sometimes),
    ) -> Result<End, Broken> {
        let (before, token) = (&old.document, &new.token);
        let Some(taker) = self.processes.get(&writer.process) else { return Ok(End::Abrupt) };
        if taker.kind == ProcessKind::DotNet {
            let own = old.holder.is_none_or(|holder| holder == writer.process);
            if new.owner.is_some() {
                cover(Sometimes::DotNetTake);
            }
            return Ok(if own { End::Graceful } else { End::Abrupt });
        }
        // A grant may also be to another process with the same instance name.
        let ends = old.holder == Some(writer.process) && before.session().is_some() && new.session().is_none();
        if new.owner.as_deref() != Some(&taker.name) || ends {
            // A release or a grant: by the holder, or by the host that it was granted to.
            let granted = old.holder.is_none() && before.owner.as_deref() == Some(&taker.name);
            if old.holder != Some(writer.process) && !granted {
                let message = format!("{} gave lease {token} of {:?} away", taker.name, before.owner);
                return Err(("S4", message));
            }
            if new.owner.is_some() {
                cover(Sometimes::Granted);
            }
            if new.is_gone() {
                cover(Sometimes::Tombstone);
            }
            return Ok(End::Graceful);
        }
        if before.is_paused() && taker.kind == ProcessKind::Host {
            return Err(("S17", format!("{} took lease {token}, which is paused", taker.name)));
        }
        if taker.kind == ProcessKind::Previous {
            cover(Sometimes::PreviousTake);
        }
        if self.splitters.contains_key(token) {
            cover(Sometimes::TakeoverDuringSplit);
        }
        let holder = old.holder.and_then(|holder| Some((holder, self.processes.get(&holder)?)));
        let takeover = Takeover {
            before,
            holder,
            edited: old.edited,
            silent: writer.now - old.renewed,
            unobserved: self.observations.unobserved(writer.process, old.renewed, taker.acquire),
            requested: old.requested.map(|since| writer.now - since),
            taker: (writer.process, taker),
            counts: (
                owned(&self.leases, before.owner.as_deref(), old.holder),
                owned(&self.leases, Some(&taker.name), Some(writer.process)),
            ),
            last_steal: self.steals.get(&writer.process).map(|sent| writer.sent.abs_diff(*sent)),
            forced_steal: self.forced_steal,
        };
        let end = takeover.classify(cover)?;
        if end == End::Abrupt && holder.is_some_and(|(_, holder)| holder.kind == ProcessKind::DotNet) {
            self.steals.insert(writer.process, writer.sent);
        }
        Ok(end)
    }

    /// A host that was dropped renews nothing, even while its contexts are alive.
    fn check_dropped(&self, new: &LeaseDocument, writer: Writer) -> Result<(), Broken> {
        let renew = self.processes.get(&writer.process).map_or(0, |process| process.renew);
        let late = self.dropped.get(&writer.process).map(|dropped| writer.sent.saturating_sub(*dropped));
        let Some(late) = late.filter(|late| *late > renew) else { return Ok(()) };
        let name = self.name(writer.process);
        Err(("L2", format!("{name} wrote lease {} {} ms after it was dropped", new.token, late / 1000)))
    }

    /// A document was deleted. What an operator sought in it does not count any more if a .NET host deleted it.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn deleted(&mut self, key: &DocumentKey, writer: Writer, oracle: &mut Oracle) -> Result<(), Broken> {
        let Some(old) = self.leases.remove(key) else { return Ok(()) };
        self.tiling.changed = true;
        let (token, kind) = (old.document.token.clone(), self.kind(writer.process));
        self.splitters.remove(&token);
        let end = if old.holder == Some(writer.process) { End::Graceful } else { End::Abrupt };
        self.ended(old.holder, &token, writer, end);
        if matches!(kind, ProcessKind::Environment | ProcessKind::Operator) {
            let younger = self.leases.values().filter(|lease| lease.created > old.created && !lease.document.is_gone());
            let younger: Vec<KeyRange> = younger.filter_map(|lease| lease.range.clone()).collect();
            if let Some(range) = &old.range {
                self.tiling.removed(range, &younger);
            }
            return Ok(());
        }
        if kind == ProcessKind::DotNet {
            dotnet::deleted(&old, &self.leases, &mut self.tiling, oracle);
            return self.check_tiling();
        }
        let duplicate = self.leases.values().any(|lease| lease.document.token == token);
        let own = self.processes.get(&writer.process).map_or(0, |process| process.expiration);
        let expiration = old.document.promise().map_or(own, |millis| millis * 1000);
        let abandoned = old.document.owner.is_none() || writer.now - old.renewed >= expiration * 9 / 10;
        if old.holder != Some(writer.process) && !old.document.is_gone() && !abandoned && !duplicate {
            let message = format!("{} deleted lease {token} of {:?}", self.name(writer.process), old.document.owner);
            return Err(("S4", message));
        }
        // A tombstone was checked when it became one; one that a .NET host made has only the mark of a seek.
        if !duplicate && !old.document.is_gone() {
            check_ended(&old, &self.leases, &self.tiling.by_others, writer, oracle)?;
        }
        self.check_tiling()
    }

    fn check_tiling(&mut self) -> Result<(), Broken> {
        if !self.tiling.changed {
            return Ok(());
        }
        let ranges: Vec<(&str, KeyRange)> = ranges(&self.leases).collect();
        self.tiling.check(&ranges)
    }
}
