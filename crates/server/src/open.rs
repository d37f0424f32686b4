//! Open containers: found by name or resource id, kept until the store says that they are gone.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use changefeed_core::{
    Catalog, Clock, Container, ContainerIdentity, Epk, Error, ErrorKind, FeedRange, Item, ItemId, ListItems,
    PhysicalRange, RangeId, ReadChanges, ResourceId, Result, StartFrom, Timestamp,
};
use hyper::header::HeaderValue;
use parking_lot::{Mutex, RwLock};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use crate::{
    charges, session,
    unique_keys::{UNIQUE_KEY_POLICY, UniqueBackend, UniqueKeys},
};

/// How old the known ranges of a container may be, in milliseconds. Splits through this server are known at once.
const RANGES_AGE_MILLIS: u64 = 1000;

/// How many ids of items are remembered by resource id.
const REMEMBERED_RIDS: usize = 10_000;

/// So many partition keys can be patched at once; two that fall together wait for each other.
const PATCH_TURNS: usize = 64;

/// A container and what answers about it need.
#[derive(Debug)]
pub(crate) struct Open {
    /// The container; every response has a charge.
    pub(crate) container: Container,
    /// The container as the store has it, for calls of the contract itself.
    pub(crate) store: Container,
    /// Its resource id, as text.
    pub(crate) rid: String,
    /// `dbs/{rid}/colls/{rid}/`.
    pub(crate) link: String,
    /// `dbs/{name}/colls/{name}`.
    pub(crate) name_link: String,
    /// Both as headers.
    pub(crate) rid_header: Option<HeaderValue>,
    pub(crate) name_header: Option<HeaderValue>,
    newest: AtomicU64,
    place: Mutex<Option<Arc<Place>>>,
    ranges: Mutex<Option<(Timestamp, Arc<[PhysicalRange]>)>>,
    rids: Mutex<BTreeMap<ResourceId, ItemId>>,
    /// Patches of a partition key take turns: each reads an item and writes it back.
    patching: [tokio::sync::Mutex<()>; PATCH_TURNS],
    pub(crate) clock: Arc<dyn Clock>,
}

impl Open {
    fn new(container: Container, clock: Arc<dyn Clock>) -> Self {
        let ContainerIdentity { database_name, container_name, database, container: rid, .. } = container.identity();
        let (text, name_link) = (rid.to_string(), format!("dbs/{database_name}/colls/{container_name}"));
        Self {
            rid_header: HeaderValue::from_str(&text).ok(),
            // As in paths, where a name has characters that cannot stand in a header.
            name_header: HeaderValue::from_str(&utf8_percent_encode(&name_link, CONTROLS).to_string()).ok(),
            rid: text,
            link: format!("dbs/{database}/colls/{rid}/"),
            name_link,
            container: charges::charged(&container),
            store: container,
            newest: AtomicU64::new(0),
            place: Mutex::new(None),
            ranges: Mutex::new(None),
            rids: Mutex::new(BTreeMap::new()),
            patching: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            clock,
        }
    }

    pub(crate) fn identity(&self) -> &ContainerIdentity {
        self.container.identity()
    }

    /// Notes that the container has come at least this far.
    pub(crate) fn saw(&self, lsn: u64) {
        self.newest.fetch_max(lsn, Ordering::Relaxed);
    }

    /// An LSN that the container has reached; it may have gone further.
    pub(crate) fn reached(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// A range and an LSN as headers. The last one is kept: between two writes all answers say the same.
    pub(crate) fn place(&self, range: &RangeId, lsn: u64) -> Arc<Place> {
        if let Some(place) = &*self.place.lock()
            && place.lsn == lsn
            && place.range == *range
        {
            return Arc::clone(place);
        }
        let place = Arc::new(Place::new(range, lsn));
        *self.place.lock() = Some(Arc::clone(&place));
        place
    }

    /// The newest LSN, from the store.
    pub(crate) async fn newest(&self) -> Result<u64> {
        let ranges = self.fresh_ranges().await?;
        let Some(first) = ranges.first() else { return Ok(self.reached()) };
        let page = self.container.read_changes(ReadChanges::new(first.range.clone(), StartFrom::Now)).await?;
        self.saw(page.newest_lsn.get());
        Ok(page.newest_lsn.get())
    }

    /// The live ranges, fresh from the store.
    pub(crate) async fn fresh_ranges(&self) -> Result<Arc<[PhysicalRange]>> {
        let ranges: Arc<[PhysicalRange]> = self.container.feed_ranges().await?.into();
        *self.ranges.lock() = Some((self.clock.wall(), Arc::clone(&ranges)));
        Ok(ranges)
    }

    /// The live ranges as of a moment ago.
    async fn ranges(&self) -> Result<Arc<[PhysicalRange]>> {
        if let Some((at, ranges)) = &*self.ranges.lock() {
            let now = self.clock.wall().as_millis();
            if now.abs_diff(at.as_millis()) < RANGES_AGE_MILLIS {
                return Ok(Arc::clone(ranges));
            }
        }
        self.fresh_ranges().await
    }

    /// The id of the range that holds a key.
    pub(crate) async fn range_of(&self, key: &Epk) -> Result<RangeId> {
        let ranges = self.ranges().await?;
        let at = ranges.partition_point(|range| range.range.max_exclusive() <= key);
        ranges.get(at).map(|range| range.id.clone()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("no range of {} holds the key {key}", self.name_link))
        })
    }

    /// The live range with this id.
    pub(crate) async fn range(&self, id: &RangeId) -> Result<PhysicalRange> {
        let ranges = self.fresh_ranges().await?;
        ranges.iter().find(|range| range.id == *id).cloned().ok_or_else(|| {
            let message = format!("partition key range {id} of {} is gone: read pkranges again", self.name_link);
            Error::new(ErrorKind::RangeGone, message)
        })
    }

    /// Waits for the turn of a patch under this key.
    pub(crate) async fn patch_turn(&self, key: &Epk) -> tokio::sync::MutexGuard<'_, ()> {
        let spread = key.as_bytes().iter().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
        self.patching[spread % PATCH_TURNS].lock().await
    }

    /// Remembers which items have which resource ids, since SDKs send links with such ids back.
    pub(crate) fn remember<'a>(&self, items: impl Iterator<Item = &'a Item>) {
        let mut rids = self.rids.lock();
        for item in items {
            if rids.len() >= REMEMBERED_RIDS {
                rids.pop_first();
            }
            rids.insert(item.rid, item.id.clone());
        }
    }

    /// The id of the item with this resource id among the keys of `range`.
    pub(crate) async fn id_of(&self, rid: ResourceId, range: FeedRange) -> Result<Option<ItemId>> {
        if let Some(id) = self.rids.lock().get(&rid) {
            return Ok(Some(id.clone()));
        }
        let mut request = ListItems { range, rid: Some(rid), ..Default::default() };
        loop {
            let page = self.container.backend().list_items(request.clone()).await?.into_value();
            self.remember(page.items.iter());
            if let Some(item) = page.items.into_iter().find(|item| item.rid == rid) {
                return Ok(Some(item.id));
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(None),
            }
        }
    }
}

/// A range and an LSN, as the headers of an answer tell them.
#[derive(Debug)]
pub(crate) struct Place {
    range: RangeId,
    lsn: u64,
    pub(crate) lsn_header: Option<HeaderValue>,
    pub(crate) range_header: Option<HeaderValue>,
    pub(crate) token_header: Option<HeaderValue>,
}

impl Place {
    fn new(range: &RangeId, lsn: u64) -> Self {
        Self {
            range: range.clone(),
            lsn,
            lsn_header: Some(HeaderValue::from(lsn)),
            range_header: HeaderValue::from_str(range.as_str()).ok(),
            token_header: HeaderValue::from_str(&session::token(range.as_str(), lsn)).ok(),
        }
    }
}

/// All containers that were asked for.
#[derive(Debug)]
pub(crate) struct Containers {
    catalog: Arc<dyn Catalog>,
    clock: Arc<dyn Clock>,
    open: RwLock<BTreeMap<String, BTreeMap<String, Arc<Open>>>>,
    /// Containers with unique keys: writes take turns, under whatever name the container was opened.
    unique: Mutex<BTreeMap<ResourceId, Weak<UniqueBackend>>>,
}

impl Containers {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, clock: Arc<dyn Clock>) -> Self {
        Self { catalog, clock, open: RwLock::new(BTreeMap::new()), unique: Mutex::default() }
    }

    /// The container under these segments of a path: names or resource ids.
    pub(crate) async fn get(&self, database: &str, container: &str) -> Result<Arc<Open>> {
        if let Some(open) = self.open.read().get(database).and_then(|of_database| of_database.get(container)) {
            return Ok(Arc::clone(open));
        }
        let found = match self.catalog.container(database, container).await {
            Err(error) => match self.names_of(database, container).await? {
                Some((database, container)) => self.catalog.container(&database, &container).await?,
                None => return Err(error),
            },
            Ok(found) => found,
        };
        let found = self.with_unique_keys(found).await?;
        let open = Arc::new(Open::new(found, Arc::clone(&self.clock)));
        self.open.write().entry(database.to_owned()).or_default().insert(container.to_owned(), Arc::clone(&open));
        Ok(open)
    }

    /// The container with its unique keys enforced, if it has any.
    async fn with_unique_keys(&self, container: Container) -> Result<Container> {
        let identity = container.identity();
        let all = self.catalog.list_containers(&identity.database_name).await?;
        let info = all.iter().find(|info| info.rid == identity.container);
        let policy = info.and_then(|info| info.spec.extra.get(UNIQUE_KEY_POLICY));
        // One that was stored by other means and cannot be read has no keys.
        let keys = UniqueKeys::parse(policy).unwrap_or_default();
        if keys.is_empty() {
            return Ok(container);
        }
        let mut unique = self.unique.lock();
        unique.retain(|_, backend| backend.strong_count() > 0);
        let known = unique.get(&identity.container).and_then(Weak::upgrade);
        let backend = known.unwrap_or_else(|| {
            let backend = Arc::new(UniqueBackend::new(container.backend(), keys));
            unique.insert(identity.container, Arc::downgrade(&backend));
            backend
        });
        Ok(Container::new(backend))
    }

    /// Forgets a container that turned out to be gone, under whatever name.
    pub(crate) fn forget(&self, rid: &ResourceId) {
        for of_database in self.open.write().values_mut() {
            of_database.retain(|_, open| open.identity().container != *rid);
        }
    }

    /// Forgets everything: databases or containers were deleted.
    pub(crate) fn forget_all(&self) {
        self.open.write().clear();
    }

    /// The name of the database under a segment of a path.
    pub(crate) async fn database_name(&self, segment: &str) -> Result<String> {
        let Ok(rid) = segment.parse::<ResourceId>() else { return Ok(segment.to_owned()) };
        let databases = self.catalog.list_databases().await?;
        if databases.iter().any(|database| database.name == segment) {
            return Ok(segment.to_owned());
        }
        Ok(databases.into_iter().find(|database| database.rid == rid).map_or(segment.to_owned(), |found| found.name))
    }

    async fn names_of(&self, database: &str, container: &str) -> Result<Option<(String, String)>> {
        let database_name = self.database_name(database).await?;
        let Ok(rid) = container.parse::<ResourceId>() else {
            return Ok((database_name != database).then(|| (database_name, container.to_owned())));
        };
        let Ok(containers) = self.catalog.list_containers(&database_name).await else { return Ok(None) };
        let found = containers.into_iter().find(|info| info.rid == rid || info.spec.name == container);
        Ok(found.map(|info| (database_name, info.spec.name)))
    }
}
