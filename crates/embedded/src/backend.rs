//! [`Backend`] over the engine: one container.

use std::sync::Arc;

use bytes::Bytes;
use changefeed_core::{
    Backend, Batch, Capabilities, Change, ChangePage, Container, ContainerIdentity, Continuation, Error, ErrorKind,
    FeedRange, Item, ItemId, ItemKey, ItemPage, ListItems, Lsn, MAX_ITEM_BYTES, Mode, PartitionKey, PhysicalRange,
    ReadChanges, ResourceId, Response, Result, StartFrom, TimeToLive, Timestamp, Write, WriteResult, async_trait,
};

use crate::{
    body,
    commit::{Action, Command, Prepared, PreparedWrite},
    descriptor::ContainerDescriptor,
    index::{
        Entry, Key,
        container::{ContainerIndex, History},
        items::ListPosition,
        position::Position,
        range::RangeIndex,
        select::{self, SelectedChange, Selection},
    },
    log::{
        Segments,
        buffers::Buffers,
        reader::{self, Files, RecordRead},
        recent::Search,
    },
    threads::Threads,
};

/// A page of items holds no more bytes than this, one item apart.
const LIST_BYTES: u64 = 4 * 1024 * 1024;

/// How many items are looked at under the lock for one page.
const SCAN_LIMIT: usize = 20_000;

/// What a server puts around each item.
const ITEM_BYTES: u64 = 256;

/// What every container of an engine can do.
const CAPABILITIES: Capabilities =
    Capabilities::new().split_on_demand(true).all_versions(true).wake_ups(true).range_parents(true).in_process(true);

/// One container of an engine.
#[derive(Debug)]
pub(crate) struct EmbeddedContainer {
    threads: Arc<Threads>,
    identity: ContainerIdentity,
    number: u32,
    name: Arc<str>,
}

impl EmbeddedContainer {
    /// Opens the container of this name.
    pub(crate) fn open(threads: &Arc<Threads>, database: &str, name: &str) -> Result<Container> {
        let descriptor = threads.inner().state.read().container_named(database, name).map(Arc::clone)?;
        Ok(Container::new(Arc::new(Self::new(Arc::clone(threads), database, &descriptor))))
    }

    pub(crate) fn new(threads: Arc<Threads>, database: &str, descriptor: &ContainerDescriptor) -> Self {
        let identity = ContainerIdentity {
            store: threads.inner().store.clone(),
            account_host: threads.inner().account_host.clone(),
            database_name: database.to_owned(),
            container_name: descriptor.name.clone(),
            database: ResourceId::database(descriptor.database),
            container: descriptor.rid(),
            partition_key: descriptor.partition_key.clone(),
        };
        let name = format!("{database}/{}", descriptor.name).into();
        Self { threads, identity, number: descriptor.number, name }
    }

    fn now(&self) -> u64 {
        self.threads.inner().clock.wall().as_millis()
    }

    fn key(&self, partition_key: &PartitionKey, id: &ItemId) -> Result<Arc<Key>> {
        Ok(Arc::new(Key::new(self.identity.partition_key.epk(partition_key)?, id.clone())))
    }

    /// Checks a batch as far as possible without the state.
    fn prepare(&self, batch: Batch) -> Result<Prepared> {
        let count = batch.writes.len();
        if count == 0 || count > Batch::MAX_WRITES {
            let most = Batch::MAX_WRITES;
            return Err(Error::new(ErrorKind::BadBatch, format!("a batch has 1 to {most} writes, not {count}")));
        }
        let mut writes = Vec::with_capacity(count);
        for (index, write) in batch.writes.into_iter().enumerate() {
            let prepared = self.prepare_write(write, batch.partition_key.as_ref());
            writes.push(prepared.map_err(|error| if count > 1 { error.with_operation(index) } else { error })?);
        }
        let keys = writes.first().map(|first: &PreparedWrite| first.key.epk.clone());
        if writes.iter().any(|write| Some(&write.key.epk) != keys.as_ref()) {
            let message = "a batch writes under one partition key only: make one batch for each";
            return Err(Error::new(ErrorKind::BadBatch, message));
        }
        let bytes: usize = writes.iter().map(|write| write.body_prefix.len()).sum();
        if bytes > MAX_ITEM_BYTES {
            let message = format!("the batch has {bytes} bytes, but {MAX_ITEM_BYTES} is the most: cut it in two");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        Ok(Prepared {
            container: self.number,
            database: self.identity.database.database_number(),
            writes,
            return_items: batch.return_items,
            name: Arc::clone(&self.name),
        })
    }

    fn prepare_write(&self, write: Write, partition_key: Option<&PartitionKey>) -> Result<PreparedWrite> {
        let (action, body, if_match) = match write {
            Write::Create { body } => (Action::Create, body, None),
            Write::Upsert { body, if_match } => (Action::Upsert, body, if_match),
            Write::Replace { body, if_match } => (Action::Replace, body, if_match),
            Write::Delete { id, if_match } => {
                let partition_key = partition_key.ok_or_else(|| {
                    let message = format!("deleting {id} needs its partition key: pass it with the batch");
                    Error::new(ErrorKind::WrongPartitionKey, message)
                })?;
                let key = self.key(partition_key, &id)?;
                return Ok(PreparedWrite { action: Action::Delete, key, if_match, body_prefix: Bytes::new(), ttl: 0 });
            }
        };
        let checked = body::check(&body, &self.identity.partition_key)?;
        if let Some(wanted) = partition_key
            && wanted.clone().or_undefined() != checked.partition_key.clone().or_undefined()
        {
            let (id, found) = (&checked.id, &checked.partition_key);
            let message = format!("item {id} has the partition key {found}, but {wanted} was given: make them equal");
            return Err(Error::new(ErrorKind::WrongPartitionKey, message));
        }
        let key = self.key(&checked.partition_key, &checked.id)?;
        Ok(PreparedWrite { action, key, if_match, body_prefix: checked.body_prefix, ttl: checked.ttl })
    }

    /// The physical range that a read is about.
    fn locate<'a>(
        &self,
        request: &ReadChanges,
        descriptor: &ContainerDescriptor,
        index: &'a ContainerIndex,
    ) -> Result<&'a RangeIndex> {
        if let Some(id) = &request.physical {
            let near = index.range_of(request.range.min_inclusive()).filter(|range| range.physical.id == *id);
            let live = near.or_else(|| index.ranges().iter().find(|range| range.physical.id == *id));
            let range = live.ok_or_else(|| descriptor.missing_range(id))?;
            return match range.physical.range.overlaps(&request.range) {
                true => Ok(range),
                false => {
                    let message = format!("feed range {} has nothing in common with range {id}", request.range);
                    Err(Error::new(ErrorKind::BadRange, message))
                }
            };
        }
        let range = index.range_of(request.range.min_inclusive());
        range.filter(|range| range.physical.range.contains_range(&request.range)).ok_or_else(|| {
            let message = format!("{} spans several ranges of {}: read them one by one", request.range, self.name);
            Error::new(ErrorKind::RangeGone, message)
        })
    }

    /// Where to begin.
    fn start(&self, request: &ReadChanges, range: &RangeIndex) -> Result<Position> {
        match (&request.start, request.mode) {
            (StartFrom::Now, _) => Ok(Position::after(range.lsn)),
            (StartFrom::Continuation(continuation), _) => {
                let position = Position::parse(continuation, &self.identity.container)?;
                if position.lsn > range.lsn {
                    let (name, id, newest) = (&self.name, &range.physical.id, range.lsn);
                    let message = format!(
                        "continuation {continuation} lies beyond the end of range {id} of {name}, which is {newest}"
                    );
                    return Err(Error::new(ErrorKind::ContinuationBeyondEnd, message));
                }
                Ok(position)
            }
            (StartFrom::Beginning | StartFrom::Time(_), Mode::AllVersions) => Err(Error::new(
                ErrorKind::InvalidArgument,
                "all-versions mode starts now or at a continuation, not at the beginning or at a time",
            )),
            (StartFrom::Beginning | StartFrom::Time(_), Mode::LatestVersion) => Ok(Position::after(0)),
        }
    }

    /// Chooses a page under the lock; `None` after a stretch without any match.
    fn select(&self, request: &ReadChanges, after: &mut Option<Position>) -> Result<Option<SelectedPage>> {
        let state = self.threads.inner().state.read();
        let (descriptor, index) = state.container(self.number, &self.name)?;
        if request.mode == Mode::AllVersions && index.history == History::Off {
            let message = format!("{} keeps no versions: set its all-versions retention first", self.name);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let range = self.locate(request, descriptor, index)?;
        let from = match after.take() {
            Some(after) => after,
            None => self.start(request, range)?,
        };
        let lsn = from.lsn;
        let start_time = if let StartFrom::Time(time) = request.start { time } else { Timestamp::default() };
        let page_request = select::PageRequest {
            range: &request.range,
            after: from,
            mode: request.mode,
            not_before: request.not_before.unwrap_or_default().max(start_time).as_millis(),
            max_items: request.max_items,
            now: self.now(),
        };
        match select::select(index, range, &page_request) {
            Selection::Page(changes, position) => {
                let mut recent = state.recent.search();
                let mut current = Vec::with_capacity(changes.len());
                current.extend(changes.iter().filter_map(|change| {
                    Some(RecordRead::new(self.number, change.change_id, change.current?, &mut recent))
                }));
                let older = changes.iter().filter_map(|change| {
                    let (change_id, location) = change.previous?;
                    Some(RecordRead::new(self.number, change_id, location?, &mut recent))
                });
                let older: Vec<RecordRead> = older.collect();
                let files = files(&state.segments, current.iter().chain(&older));
                let physical = range.physical.id.clone();
                let remaining =
                    if request.count_remaining { select::count(index, range, &page_request, &position) } else { None };
                let newest = range.lsn;
                Ok(Some(SelectedPage { changes, current, older, files, position, newest, remaining, physical }))
            }
            Selection::Unfinished(position) => {
                *after = Some(position);
                Ok(None)
            }
            Selection::Expired => Err(Error::new(
                ErrorKind::ContinuationExpired,
                format!("changes of {} after lsn {lsn} have left its retention: start again from now", self.name),
            )),
        }
    }

    fn item(&self, entry: &Entry, stored: Bytes) -> Result<Item> {
        Ok(Item {
            id: entry.key.id.clone(),
            etag: body::typed_etag(self.number, entry.change_id)?,
            timestamp: Timestamp::from_millis(entry.timestamp),
            lsn: Lsn::new(entry.change_id.lsn),
            rid: ResourceId::document(self.identity.database.database_number(), self.number, entry.document_number)?,
            body: body::without_lsn(stored, entry.change_id.lsn),
        })
    }

    fn record_read(&self, entry: &Entry, recent: &mut Search<'_>) -> RecordRead {
        RecordRead::new(self.number, entry.change_id, entry.location, recent)
    }
}

/// A page before its bodies are read.
struct SelectedPage {
    changes: Vec<SelectedChange>,
    /// The new versions of the changes that have one, and the older ones.
    current: Vec<RecordRead>,
    older: Vec<RecordRead>,
    files: Files,
    position: Position,
    newest: u64,
    remaining: Option<u64>,
    physical: changefeed_core::RangeId,
}

/// The files of what is not in memory.
fn files<'a>(segments: &Segments, reads: impl Iterator<Item = &'a RecordRead>) -> Files {
    let mut files = Files::new();
    for number in reads.filter(|read| read.body.is_none()).map(|read| read.location.segment) {
        if !files.contains_key(&number)
            && let Some(file) = segments.file(number)
        {
            files.insert(number, file);
        }
    }
    files
}

impl SelectedPage {
    fn read(self, container: u32, rid: ResourceId, buffers: &Arc<Buffers>) -> Result<ChangePage> {
        let mut current = reader::read_bodies(&self.files, self.current, buffers)?.into_iter();
        let mut older = reader::read_bodies(&self.files, self.older, buffers)?.into_iter();
        let changes = self.changes.into_iter().map(|selected| Change {
            id: selected.id,
            rid: ResourceId::document(rid.database_number(), container, selected.document_number).ok(),
            lsn: Lsn::new(selected.change_id.lsn),
            timestamp: Timestamp::from_millis(selected.timestamp),
            operation: selected.operation,
            current: selected.current.and_then(|_| current.next()),
            previous: selected.previous.and_then(|(_, location)| location).and_then(|_| older.next()),
            previous_lsn: selected.previous.map(|(change_id, _)| Lsn::new(change_id.lsn)),
        });
        Ok(ChangePage {
            changes: changes.collect(),
            continuation: self.position.print(rid),
            newest_lsn: Lsn::new(self.newest),
            remaining: self.remaining,
            physical: self.physical,
        })
    }
}

#[async_trait]
impl Backend for EmbeddedContainer {
    fn identity(&self) -> &ContainerIdentity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        let state = self.threads.inner().state.read();
        let (_, index) = state.container(self.number, &self.name)?;
        Ok(Response::free(index.ranges().iter().map(|range| range.physical.clone()).collect()))
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        if request.max_items == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_items is 0: ask for at least one change"));
        }
        self.threads.shared.expire_inline();
        let mut after = None;
        loop {
            if let Some(selected) = self.select(&request, &mut after)? {
                let page = selected.read(self.number, self.identity.container, &self.threads.inner().buffers)?;
                return Ok(Response::free(page));
            }
        }
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        let Ok(after) = Position::parse(continuation, &self.identity.container) else { return };
        let receiver = {
            let state = self.threads.inner().state.read();
            let Ok((_, index)) = state.container(self.number, &self.name) else { return };
            let live = index.range_of(range.min_inclusive());
            match live.filter(|live| live.physical.range.contains_range(range)) {
                Some(live) => live.newest.subscribe(),
                None => return,
            }
        };
        let mut receiver = receiver;
        // An error means that the range is gone, which is news as well.
        drop(receiver.wait_for(|newest| *newest > after.complete()).await);
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        let own = self.key(&key.partition_key, &key.id)?;
        let found = {
            let state = self.threads.inner().state.read();
            let (_, index) = state.container(self.number, &self.name)?;
            // Most items never expire: what time it is does not matter then.
            let is_expired = |entry: &Entry| index.expiry.expires_at(entry).is_some_and(|at| at <= self.now());
            let entry = index.item(&own).filter(|entry| !is_expired(entry)).cloned();
            entry.map(|entry| {
                let read = self.record_read(&entry, &mut state.recent.search());
                let file = read.body.is_none().then(|| state.segments.file(entry.location.segment)).flatten();
                (file, read, entry)
            })
        };
        let Some((file, read, entry)) = found else {
            return Err(Error::new(ErrorKind::ItemNotFound, format!("there is no item {} in {}", key.id, self.name)));
        };
        self.item(&entry, reader::read_body(file.as_deref(), read)?).map(Response::free)
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let prepared = self.prepare(batch)?;
        self.threads.shared.ask(|reply| Command::Write(prepared, reply)).await?.map(Response::free)
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        if request.max_items == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_items is 0: ask for at least one item"));
        }
        let after = request.after.as_deref().map(Cursor::parse).transpose()?;
        let (entries, reads, files, next) = {
            let state = self.threads.inner().state.read();
            let (_, index) = state.container(self.number, &self.name)?;
            let (entries, next) = list(index, &request, after, self.now());
            let mut recent = state.recent.search();
            let reads: Vec<RecordRead> =
                entries.iter().map(|(entry, _)| self.record_read(entry, &mut recent)).collect();
            let files = files(&state.segments, reads.iter());
            (entries, reads, files, next)
        };
        let bodies = reader::read_bodies(&files, reads, &self.threads.inner().buffers)?;
        let next = next.map(Cursor::print);
        let cursors = entries.iter().filter(|_| request.cursors).map(|(_, cursor)| cursor.print()).collect();
        let items = entries.iter().zip(bodies).map(|((entry, _), body)| self.item(entry, body));
        Ok(Response::free(ItemPage { items: items.collect::<Result<_>>()?, cursors, next }))
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        let state = self.threads.inner().state.read();
        let (container, _) = state.container(self.number, &self.name)?;
        Ok(Response::free(container.time_to_live()))
    }

    async fn reopen(&self) -> Result<Container> {
        let ContainerIdentity { database_name, container_name, .. } = &self.identity;
        Self::open(&self.threads, database_name, container_name)
    }
}

/// Items in the order of listings, from the cursor on; and where to go on, if there is more. Looks at a limited number of
/// items, so that a filter that few pass does not hold the lock for long.
fn list(
    index: &ContainerIndex,
    request: &ListItems,
    after: Option<Cursor>,
    now: u64,
) -> (Vec<(Entry, Cursor)>, Option<Cursor>) {
    let live = |key: &Arc<Key>| {
        let entry = index.item(key).filter(|entry| entry.is_item() && !index.is_expired(entry, now));
        entry.filter(|_| request.range.contains(&key.epk) && key.id.starts_with(&request.id_prefix)).cloned()
    };
    if let Some(rid) = &request.rid {
        let found = rid.document_number().and_then(|number| Some((index.items.numbered(number)?.0, number)));
        let found = found.filter(|(key, number)| after.is_none_or(|after| after < Cursor::of(&key.epk, *number)));
        let entry = found.and_then(|(key, number)| Some((live(key)?, Cursor::of(&key.epk, number))));
        return (entry.into_iter().collect(), None);
    }
    let mut entries: Vec<(Entry, Cursor)> = Vec::new();
    let mut bytes = 0;
    let mut last = after.unwrap_or(Cursor(ListPosition::before(request.range.min_inclusive())));
    let end = ListPosition::before(request.range.max_exclusive()).head;
    for (scanned, (position, key)) in index.items.after(last.0).enumerate() {
        if position.head > end {
            break;
        }
        if scanned >= SCAN_LIMIT {
            return (entries, Some(last));
        }
        if let Some(entry) = live(key) {
            let needed = u64::from(entry.location.bytes) + ITEM_BYTES;
            if entries.len() >= request.max_items || !entries.is_empty() && bytes + needed > LIST_BYTES {
                return (entries, Some(last));
            }
            bytes += needed;
            entries.push((entry, Cursor(position)));
        }
        last = Cursor(position);
    }
    (entries, None)
}

/// A position in a listing, as text: the first bytes of an EPK in hexadecimal, a dot, the number of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor(ListPosition);

impl Cursor {
    fn of(epk: &changefeed_core::Epk, number: u64) -> Self {
        Self(ListPosition { number, ..ListPosition::before(epk) })
    }

    fn print(self) -> String {
        format!("{:032x}.{:x}", self.0.head, self.0.number)
    }

    fn parse(text: &str) -> Result<Self> {
        let parse = || {
            let (head, number) = text.split_once('.').filter(|(head, _)| head.len() == 32)?;
            let head = u128::from_str_radix(head, 16).ok()?;
            Some(Self(ListPosition { head, number: u64::from_str_radix(number, 16).ok()? }))
        };
        // Text that is not ours in every letter is not ours.
        parse().filter(|cursor| cursor.print() == text).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Error::new(
                ErrorKind::BadContinuation,
                format!("{shown:?} is not where a listing goes on: pass `next` of a page"),
            )
        })
    }
}
