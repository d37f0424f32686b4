//! Deciding on the writes of one group: what each may do, given the state and the group's earlier writes.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use changefeed_core::{ETag, Epk, Error, ErrorKind, Item, Lsn, ResourceId, Result, TimeToLive, Timestamp, WriteResult};

use crate::{
    body,
    format::record::{self, ChangeId, RecordHeader, RecordKind},
    index::{Entry, Key, Location, container::ContainerIndex, items::ItemState, range::Watermark},
    log::writer::FrameBuffer,
    state::State,
};

/// No group gives out more LSNs than this.
pub(crate) const GROUP_LSNS: u64 = 1 << 16;

/// Writes of one batch, checked as far as possible without the state.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) container: u32,
    pub(crate) database: u32,
    pub(crate) writes: Vec<PreparedWrite>,
    pub(crate) return_items: bool,
    /// For messages.
    pub(crate) name: Arc<str>,
}

impl Prepared {
    pub(crate) fn bytes(&self) -> usize {
        self.writes.iter().map(|write| record::FIXED_BYTES + 256 + write.body_prefix.len()).sum()
    }

    /// Whether it only deletes.
    pub(crate) fn is_deletes(&self) -> bool {
        self.writes.iter().all(|write| write.action == Action::Delete)
    }
}

/// One write.
#[derive(Debug)]
pub(crate) struct PreparedWrite {
    pub(crate) action: Action,
    pub(crate) key: Arc<Key>,
    pub(crate) if_match: Option<ETag>,
    /// See [`body::Checked::body_prefix`]; empty for deletes.
    pub(crate) body_prefix: Bytes,
    pub(crate) ttl: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Upsert,
    Replace,
    Delete,
}

/// Entries by container.
type Staged = BTreeMap<u32, Vec<Entry>>;

/// Writes that will be appended and synced together.
#[derive(Debug)]
pub(crate) struct Group {
    now: Timestamp,
    pub(crate) frame: FrameBuffer,
    /// What to put into the indexes afterwards. Offsets count from the beginning of the frame.
    pub(crate) staged: Staged,
    /// Whom to wake afterwards.
    pub(crate) news: Vec<(u32, Epk, u64)>,
    /// The newest version of each item that this group touches; none if it is deleted.
    overlay: BTreeMap<(u32, Arc<Key>), Option<Version>>,
    /// The newest LSN of each range, by container and position of the range.
    lsns: BTreeMap<(u32, usize), u64>,
    /// The newest document number of each container.
    numbers: BTreeMap<u32, u64>,
}

/// A version of an item.
#[derive(Clone, Copy, Debug)]
struct Version {
    change_id: ChangeId,
    document_number: u64,
}

impl From<&ItemState> for Version {
    fn from(state: &ItemState) -> Self {
        Self { change_id: state.change_id, document_number: state.document_number }
    }
}

/// Where a group stood before a batch, to go back to if the batch is refused.
struct Mark {
    bytes: usize,
    records: u32,
    staged: usize,
}

impl Group {
    pub(crate) fn new(now: Timestamp, mut frame: FrameBuffer) -> Self {
        frame.clear();
        Self {
            now,
            frame,
            staged: Staged::new(),
            news: Vec::new(),
            overlay: BTreeMap::new(),
            lsns: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Whether it only deletes.
    pub(crate) fn is_deletes(&self) -> bool {
        self.staged.values().flatten().all(|entry| entry.kind != RecordKind::Put)
    }

    pub(crate) fn into_buffer(self) -> FrameBuffer {
        self.frame
    }

    /// Adds a batch, or says why not and adds nothing.
    pub(crate) fn plan(&mut self, state: &State, batch: &Prepared) -> Result<Vec<WriteResult>> {
        let (_, index) = state.container(batch.container, &batch.name)?;
        if index.expiry.time_to_live() != TimeToLive::Off {
            self.expire_before(index, batch);
        }
        let epk = batch.writes.first().map_or(Epk::MIN, |write| write.key.epk.clone());
        let (range, lsn) = self.next_lsn(index, batch.container, &epk);
        let mut number = self.numbers.get(&batch.container).copied().unwrap_or(index.number);
        let mark = self.mark(batch.container);
        let mut before = Vec::with_capacity(batch.writes.len());
        let mut written = Vec::with_capacity(batch.writes.len());
        for (op, write) in batch.writes.iter().enumerate() {
            let slot = (batch.container, Arc::clone(&write.key));
            let current = match self.overlay.get(&slot) {
                Some(version) => *version,
                None => index.items.get(&write.key).filter(|state| state.live).map(Version::from),
            };
            let change_id = ChangeId { lsn, op: op as u16 };
            let document_number = current.map_or(number + 1, |version| version.document_number);
            match check(batch, write, current)
                .and_then(|()| self.stage(batch, write, current, change_id, document_number))
            {
                Ok(one) => written.push(one),
                Err(error) => {
                    self.undo(batch.container, mark, before);
                    return Err(if batch.writes.len() > 1 { error.with_operation(op) } else { error });
                }
            }
            number = number.max(document_number);
            let after = (write.action != Action::Delete).then_some(Version { change_id, document_number });
            before.push((slot.clone(), self.overlay.insert(slot, after)));
        }
        self.lsns.insert((batch.container, range), lsn);
        self.numbers.insert(batch.container, number);
        self.news.push((batch.container, epk, lsn));
        Ok(written)
    }

    /// Lets the items that a batch is about to meet expire first, if their time is over.
    fn expire_before(&mut self, index: &ContainerIndex, batch: &Prepared) {
        for write in &batch.writes {
            let expired = index.item(&write.key).filter(|entry| index.is_expired(entry, self.now.as_millis()));
            if let Some(entry) = expired
                && !self.overlay.contains_key(&(batch.container, Arc::clone(&write.key)))
            {
                self.expire_one(index, batch.container, &entry.clone());
            }
        }
    }

    /// The position of the range that holds a key, and its next LSN.
    fn next_lsn(&self, index: &ContainerIndex, container: u32, epk: &Epk) -> (usize, u64) {
        let range = index.range_position(epk);
        let pending = self.lsns.get(&(container, range)).copied();
        let newest = pending.unwrap_or_else(|| index.ranges().get(range).map_or(0, |range| range.lsn));
        (range, newest + 1)
    }

    fn mark(&self, container: u32) -> Mark {
        let staged = self.staged.get(&container).map_or(0, Vec::len);
        Mark { bytes: self.frame.bytes.len(), records: self.frame.records, staged }
    }

    #[expect(clippy::type_complexity, reason = "a list of overlay slots and what they held")]
    fn undo(&mut self, container: u32, mark: Mark, before: Vec<((u32, Arc<Key>), Option<Option<Version>>)>) {
        self.frame.bytes.truncate(mark.bytes);
        self.frame.records = mark.records;
        if let Some(staged) = self.staged.get_mut(&container) {
            staged.truncate(mark.staged);
        }
        for (slot, old) in before.into_iter().rev() {
            match old {
                Some(old) => drop(self.overlay.insert(slot, old)),
                None => drop(self.overlay.remove(&slot)),
            }
        }
    }

    /// Encodes one write that was found good.
    fn stage(
        &mut self,
        batch: &Prepared,
        write: &PreparedWrite,
        current: Option<Version>,
        change_id: ChangeId,
        document_number: u64,
    ) -> Result<WriteResult> {
        let header = RecordHeader {
            kind: if write.action == Action::Delete { RecordKind::Delete } else { RecordKind::Put },
            container: batch.container,
            change_id,
            previous: current.map(|version| version.change_id).unwrap_or_default(),
            document_number,
            timestamp: self.now.as_millis(),
            ttl: write.ttl,
        };
        let mut written = WriteResult {
            id: write.key.id.clone(),
            etag: None,
            lsn: Lsn::new(change_id.lsn),
            timestamp: self.now,
            created: current.is_none(),
            item: None,
        };
        if write.action == Action::Delete {
            self.push(&header, &write.key, &[]);
            return Ok(written);
        }
        let rid = ResourceId::document(batch.database, batch.container, document_number)?;
        let suffix = body::system_suffix(&rid, batch.container, change_id, self.now.as_secs());
        self.push(&header, &write.key, &[&write.body_prefix, suffix.as_bytes()]);
        let etag = body::typed_etag(batch.container, change_id)?;
        if batch.return_items {
            let stored = [&write.body_prefix[..], suffix.as_bytes()].concat();
            let body = body::without_lsn(stored.into(), change_id.lsn);
            let (id, etag) = (write.key.id.clone(), etag.clone());
            written.item = Some(Item { id, etag, timestamp: self.now, lsn: written.lsn, rid, body });
        }
        written.etag = Some(etag);
        Ok(written)
    }

    fn push(&mut self, header: &RecordHeader, key: &Arc<Key>, pieces: &[&[u8]]) {
        let offset = self.frame.bytes.len() as u32;
        let bytes = record::append(&mut self.frame.bytes, header, key.epk.as_bytes(), &key.id, pieces) as u32;
        self.frame.records += 1;
        let location = Location { segment: 0, offset, bytes };
        self.staged.entry(header.container).or_default().push(Entry::new(header, Arc::clone(key), location));
    }

    /// Adds deletes for items whose time is over, until the frame has about `limit` bytes.
    pub(crate) fn expire(&mut self, state: &State, limit: usize) {
        let now = self.now.as_millis();
        for (container, index) in &state.indexes {
            let due = index.expiry.expired(now).filter_map(|key| index.item(key).cloned());
            let due: Vec<Entry> = due.take(10_000).collect();
            for entry in due {
                if self.frame.payload() >= limit {
                    return;
                }
                self.expire_one(index, *container, &entry);
            }
        }
    }

    fn expire_one(&mut self, index: &ContainerIndex, container: u32, entry: &Entry) {
        let (range, lsn) = self.next_lsn(index, container, &entry.key.epk);
        let header = RecordHeader {
            kind: RecordKind::Expire,
            container,
            change_id: ChangeId { lsn, op: 0 },
            previous: entry.change_id,
            document_number: entry.document_number,
            timestamp: self.now.as_millis(),
            ttl: 0,
        };
        self.push(&header, &entry.key, &[]);
        self.overlay.insert((container, Arc::clone(&entry.key)), None);
        self.lsns.insert((container, range), lsn);
        self.news.push((container, entry.key.epk.clone(), lsn));
    }

    /// Adds a note for each range of what is used up in it, though no record says so.
    pub(crate) fn watermarks(&mut self, container: u32, index: &ContainerIndex) {
        for range in index.ranges() {
            for part in range.horizon.parts() {
                let epk = part.range.min_inclusive().clone();
                let watermark = Watermark { epk, lsn: range.lsn, purged: part.lsn, number: index.number };
                append_watermark(&mut self.frame, container, &watermark);
            }
        }
    }

    /// Adds a write to the store's own container, under an LSN of its choice.
    pub(crate) fn put_descriptor(&mut self, change_id: ChangeId, container: u32, key: &Arc<Key>, body: Option<&[u8]>) {
        let header = RecordHeader {
            kind: if body.is_some() { RecordKind::Put } else { RecordKind::Delete },
            container,
            change_id,
            previous: ChangeId::default(),
            document_number: 0,
            timestamp: self.now.as_millis(),
            ttl: 0,
        };
        self.push(&header, key, body.as_slice());
    }
}

/// Appends a note of what is used up and gone, though no record says so.
pub(crate) fn append_watermark(frame: &mut FrameBuffer, container: u32, watermark: &Watermark) {
    let header = RecordHeader {
        kind: RecordKind::Watermark,
        container,
        change_id: ChangeId { lsn: watermark.lsn, op: 0 },
        previous: ChangeId { lsn: watermark.purged, op: 0 },
        document_number: watermark.number,
        timestamp: 0,
        ttl: 0,
    };
    record::append(&mut frame.bytes, &header, watermark.epk.as_bytes(), "", &[]);
    frame.records += 1;
}

/// Whether a write may happen, given the version that it meets.
fn check(batch: &Prepared, write: &PreparedWrite, current: Option<Version>) -> Result<()> {
    let (id, name) = (&write.key.id, &batch.name);
    match (write.action, current) {
        (Action::Create, Some(_)) => {
            let message = format!("item {id} exists already in {name}: replace it, or choose another id");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        (Action::Replace | Action::Delete, None) => {
            return Err(Error::new(ErrorKind::ItemNotFound, format!("there is no item {id} in {name}")));
        }
        _ => {}
    }
    let (Some(wanted), Some(version)) = (&write.if_match, current) else { return Ok(()) };
    let found = body::etag(batch.container, version.change_id);
    if wanted.as_str() == found {
        return Ok(());
    }
    let message = format!("item {id} of {name} has the etag {found}, not {wanted}: read it again");
    Err(Error::new(ErrorKind::PreconditionFailed, message))
}
