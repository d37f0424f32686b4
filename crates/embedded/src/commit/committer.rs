//! The committer: decides on all writes, appends them to the log in groups that share one sync, and makes them visible.

use std::sync::Arc;

use changefeed_core::{Batch, Error, ErrorKind, Result, WriteResult};
use parking_lot::RwLockWriteGuard;
use tokio::sync::oneshot;

use super::{
    catalog::PendingRelayout,
    plan::{self, Group, Prepared},
};
use crate::{
    descriptor::CATALOG,
    durability::Durability,
    format::frame::{FrameKind, HEADER_BYTES},
    health::HealthReport,
    inner::Inner,
    log::{
        Segment, io_error, is_full, recent,
        writer::{FrameBuffer, LogWriter, RollError},
    },
    metrics::{Stopwatch, Task},
};

/// In relaxed mode there is a sync after this many groups at the latest.
const RELAXED_GROUPS: u32 = 4096;

/// Expired items are deleted in groups of about this many bytes of log.
const EXPIRE_BYTES: usize = 256 * 1024;

/// At most this many records are looked at under the lock at once, to purge them or to list them by their expiry: about a
/// millisecond.
const EXPIRE_RECORDS: usize = 5_000;

/// How often expired items and history out of retention are looked for, in milliseconds.
pub(crate) const EXPIRE_INTERVAL_MS: u64 = 500;

/// Decides on writes, appends them to the log and makes them visible.
#[derive(Debug)]
pub(crate) struct Committer {
    writer: LogWriter,
    durability: Durability,
    unsynced_groups: u32,
    last_expiry: u64,
    /// There are more expired items, or more versions out of retention, than one look takes care of, or settings changed.
    backlog: bool,
    /// Callers that wait until there is no backlog.
    pub(super) waiting_for_expiry: Vec<oneshot::Sender<Result<()>>>,
    /// Splits and merges that are being prepared.
    pub(super) relayouts: Vec<PendingRelayout>,
    buffer: FrameBuffer,
    refusal: Option<Refusal>,
    health: Arc<HealthReport>,
}

/// Why nothing more is written.
#[derive(Debug)]
enum Refusal {
    Closed,
    Failed(String),
}

impl Committer {
    pub(crate) fn new(writer: LogWriter, durability: Durability, health: Arc<HealthReport>) -> Self {
        Self {
            writer,
            durability,
            unsynced_groups: 0,
            last_expiry: 0,
            backlog: false,
            waiting_for_expiry: Vec::new(),
            relayouts: Vec::new(),
            buffer: FrameBuffer::new(),
            refusal: None,
            health,
        }
    }

    pub(super) fn write(&mut self, inner: &Inner, writes: Vec<(Prepared, oneshot::Sender<Result<Vec<WriteResult>>>)>) {
        let refused = self.check_open().err();
        if refused.is_some() {
            for (_, reply) in writes {
                drop(reply.send(Err(self.refused())));
            }
            return;
        }
        let (now, begun) = (inner.clock.wall(), Stopwatch::start());
        let mut group = Group::new(now, std::mem::replace(&mut self.buffer, FrameBuffer::new()));
        let mut replies = Vec::with_capacity(writes.len());
        {
            let state = inner.state.read();
            for (prepared, reply) in writes {
                let result = group.plan(&state, &prepared);
                replies.push((prepared, reply, result));
            }
        }
        let bytes = group.frame.payload();
        let committed = self.commit(inner, &mut group);
        if committed.is_ok() && bytes > 0 {
            let writes = replies.iter().filter(|(.., result)| result.is_ok()).count();
            self.health.metrics.committed(writes, bytes, begun.elapsed());
        }
        match committed {
            Ok(()) => replies.into_iter().for_each(|(_, reply, result)| drop(reply.send(result))),
            Err(error) => {
                // A full disk still takes deletes, which were unlucky to share a group with other writes.
                let is_mixed = is_full(&error) && !group.is_deletes();
                let mut deletes = Vec::new();
                for (prepared, reply, result) in replies {
                    match result {
                        Ok(_) if is_mixed && prepared.is_deletes() => deletes.push((prepared, reply)),
                        result => drop(reply.send(result.and_then(|_| Err(again(&error))))),
                    }
                }
                if !deletes.is_empty() {
                    self.write(inner, deletes);
                }
            }
        }
        self.buffer = group.into_buffer();
    }

    /// Appends a group to the log, syncs it, makes it visible and wakes readers.
    pub(super) fn commit(&mut self, inner: &Inner, group: &mut Group) -> Result<()> {
        if group.frame.is_empty() {
            return Ok(());
        }
        if !self.writer.has_room(&group.frame, || group.is_deletes()) {
            let rolled = self.roll(inner, group);
            self.health.note(Task::Roll, &rolled);
            rolled?;
        }
        let records = HEADER_BYTES..group.frame.bytes.len();
        let (segment, base) = match self.append(group) {
            Ok(location) => location,
            Err(error) => return Err(self.fail("append to the log", error)),
        };
        let is_wanted = inner.state.read().recent.is_wanted();
        let offset = (base + HEADER_BYTES as u64) as u32;
        let recent = if is_wanted { recent::copy(segment, offset, &group.frame.bytes[records]) } else { Vec::new() };
        let mut state = inner.state.write();
        state.recent.extend(recent);
        for (container, entries) in std::mem::take(&mut group.staged) {
            let placed = entries.into_iter().map(|mut entry| {
                entry.location.segment = segment;
                entry.location.offset += base as u32;
                entry
            });
            state.apply(container, placed);
        }
        drop(state);
        let state = inner.state.read();
        for (container, epk, lsn) in group.news.drain(..) {
            if let Some(index) = state.indexes.get(&container) {
                index.wake(&epk, lsn);
            }
        }
        Ok(())
    }

    fn append(&mut self, group: &mut Group) -> std::io::Result<(u32, u64)> {
        let location = self.writer.append(FrameKind::Data, &mut group.frame)?;
        self.unsynced_groups += 1;
        if self.durability == Durability::Durable || self.unsynced_groups >= RELAXED_GROUPS {
            self.sync_log()?;
            self.unsynced_groups = 0;
        }
        Ok(location)
    }

    fn sync_log(&mut self) -> std::io::Result<()> {
        let begun = Stopwatch::start();
        let synced = self.writer.sync();
        self.health.metrics.synced(&synced, begun.elapsed());
        synced
    }

    /// Goes on in a new segment. If there is no room on disk for one, only this group fails.
    fn roll(&mut self, inner: &Inner, group: &Group) -> Result<()> {
        let (span, file) = match self.writer.roll(inner.next_segment_bytes(), &group.frame, || group.is_deletes()) {
            Ok(begun) => begun,
            Err(RollError::NotBegun(error)) => return Err(io_error("make room for a new segment", error)),
            Err(RollError::Halfway(error)) => return Err(self.fail("begin a new segment", error)),
        };
        let mut state = inner.state.write();
        if let Some((_, previous)) = state.segments.0.iter_mut().next_back() {
            previous.sealed = true;
        }
        state.segments.0.insert(span.first, Segment::new(span, file));
        drop(state);
        inner.maintenance_wanted();
        self.unsynced_groups = 0;
        if self.durability == Durability::Relaxed {
            self.mark(FrameKind::Relaxed)?;
        }
        Ok(())
    }

    /// Appends a frame without records, durably.
    pub(crate) fn mark(&mut self, kind: FrameKind) -> Result<()> {
        let written = self.writer.mark(kind);
        self.unsynced_groups = 0;
        written.map_err(|error| self.fail("mark the log", error))
    }

    /// Gives every range an LSN so high that none is given twice after commits were lost. Changes of the catalog
    /// are never lost, and its numbers are too few to skip any.
    pub(crate) fn skip_lost_lsns(&mut self, inner: &Inner) -> Result<()> {
        let mut group = Group::new(inner.clock.wall(), FrameBuffer::new());
        let mut state = inner.state.write();
        for (container, index) in state.indexes.iter_mut().filter(|(container, _)| **container != CATALOG) {
            let lsns = u64::from(RELAXED_GROUPS) * plan::GROUP_LSNS;
            index.skip(lsns, lsns * Batch::MAX_WRITES as u64);
            group.watermarks(*container, index);
        }
        drop(state);
        self.commit(inner, &mut group)?;
        // Ends the relaxed session: what follows is not in doubt.
        self.mark(FrameKind::Closed)
    }

    /// Syncs what relaxed mode has left unsynced.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.check_open()?;
        if self.unsynced_groups > 0 {
            self.sync_log().map_err(|error| self.fail("sync the log", error))?;
            self.unsynced_groups = 0;
        }
        Ok(())
    }

    /// The segment that grows, and where what was committed ends in it.
    pub(crate) fn end(&self) -> (u32, u64) {
        self.writer.end()
    }

    pub(crate) fn has_unsynced(&self) -> bool {
        self.unsynced_groups > 0
    }

    /// Whether expiry goes on at once.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog && self.refusal.is_none()
    }

    pub(super) fn expire_if_due(&mut self, inner: &Inner) {
        let now = inner.clock.wall().as_millis();
        if (self.backlog || now.abs_diff(self.last_expiry) >= EXPIRE_INTERVAL_MS) && self.refusal.is_none() {
            // A failure is reported by `fail`, or met again next time. Without threads nobody would go on later.
            let mut more = self.expire_some(inner);
            while inner.is_inline() && matches!(more, Ok(true)) {
                more = self.expire_some(inner);
            }
            self.backlog = matches!(more, Ok(true));
            if !self.backlog {
                let done = more.map(|_| ());
                for reply in self.waiting_for_expiry.drain(..) {
                    drop(reply.send(done.as_ref().copied().map_err(again)));
                }
            }
        }
    }

    /// Deletes what has expired and lets go of history out of retention, between commits; replies when all is done.
    pub(super) fn expire(&mut self, inner: &Inner, reply: oneshot::Sender<Result<()>>) {
        self.waiting_for_expiry.push(reply);
        self.backlog = true;
        if inner.is_inline() {
            self.expire_if_due(inner);
        }
    }

    /// Refuses callers for whom nobody will do anything any more.
    pub(super) fn refuse_waiting(&mut self) {
        if self.refusal.is_some() {
            for reply in std::mem::take(&mut self.waiting_for_expiry) {
                drop(reply.send(Err(self.refused())));
            }
        }
    }

    /// Lets the indexes follow changed settings: for a while now, the rest between commits. In a store without threads all of
    /// it: nobody would go on later.
    pub(super) fn follow_settings(&mut self, inner: &Inner) {
        let mut more = self.update_indexes(inner);
        while more && inner.is_inline() {
            more = self.update_indexes(inner);
        }
        self.backlog |= more;
    }

    /// Deletes some of what has expired and lets go of some history: not more than writers and readers may wait for. Says
    /// whether there is more.
    fn expire_some(&mut self, inner: &Inner) -> Result<bool> {
        self.check_open()?;
        let now = inner.clock.wall();
        self.last_expiry = now.as_millis();
        let more = self.update_indexes(inner);
        let mut group = Group::new(now, FrameBuffer::new());
        group.expire(&inner.state.read(), EXPIRE_BYTES);
        let expired = !group.frame.is_empty();
        self.commit(inner, &mut group)?;
        Ok(expired || more)
    }

    /// Purges some history out of retention, and lists some items that a new default time to live concerns. Says whether
    /// there may be more.
    fn update_indexes(&mut self, inner: &Inner) -> bool {
        let now = inner.clock.wall().as_millis();
        let mut state = inner.state.write();
        let crate::state::State { indexes, segments, .. } = &mut *state;
        let mut left = EXPIRE_RECORDS;
        let mut found_dead = false;
        for index in indexes.values_mut() {
            let mut on_dead = |location| {
                found_dead = true;
                segments.mark_dead(location);
            };
            left = index.purge(now, left, &mut on_dead);
            left = index.list_expiring(left);
        }
        let sum = |of: fn(&Segment) -> u64| state.segments.0.values().map(of).sum();
        let (used, dead) = (sum(|segment| segment.used), sum(|segment| segment.dead));
        self.health.metrics.log(state.segments.0.len(), used, dead);
        // The next slice may follow soon: readers that wait come first.
        RwLockWriteGuard::unlock_fair(state);
        if found_dead {
            inner.maintenance_wanted();
        }
        left == 0
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.check_open()?;
        self.mark(FrameKind::Closed)?;
        self.refusal = Some(Refusal::Closed);
        Ok(())
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.refusal.as_ref().map_or(Ok(()), |_| Err(self.refused()))
    }

    pub(super) fn refused(&self) -> Error {
        let message = match &self.refusal {
            Some(Refusal::Failed(why)) => format!("the store stopped itself ({why}): open it again"),
            _ => "the store was closed: open it again".to_owned(),
        };
        Error::new(ErrorKind::Closed, message)
    }

    /// After a failed write or sync nobody knows what is on disk, and trying again may hide a loss: stop.
    pub(crate) fn fail(&mut self, what: &str, error: std::io::Error) -> Error {
        let cause = format!("{what}: {error}");
        self.health.stop(&cause);
        self.refusal = Some(Refusal::Failed(cause));
        io_error(what, error).with_unknown_effect()
    }
}

/// The same error once more, for another member of the group.
fn again(error: &Error) -> Error {
    let copy = Error::new(error.kind(), format!("{error:?}"));
    if error.effect() == changefeed_core::Effect::Unknown { copy.with_unknown_effect() } else { copy }
}
