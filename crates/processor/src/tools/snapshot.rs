//! A processor as its documents show it, for tools that look from outside: needs no host, writes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use changefeed_core::{
    Container, ContainerIdentity, Error, ErrorKind, FeedRange, Lsn, Mode, PhysicalRange, ReadChanges, Result,
    StartFrom, Timestamp,
};
use parking_lot::Mutex;

use crate::{
    lease::{
        account_host,
        coverage::{self, NewLease},
        document::{InfoDocument, LeaseDocument, LeaseVersion, StartPosition, StartPositions},
        listing::{Listing, StoredLease},
        prefix::{LeasePrefix, LeaseToken},
        ranges::{live_from, uncovered},
        replaced_store,
        store::LeaseStore,
    },
    metrics::requests::StoreRole,
    runtime::Runtime,
    store::replacement::{Replacements, is_missing},
};

/// How often ranges may split or merge while one lease is being measured.
const LAYOUT_TRIES: u32 = 4;

/// The name of a processor and its two containers.
#[derive(Clone, Debug)]
pub(crate) struct ProcessorRef {
    pub(crate) name: String,
    /// Shared by clones: once one of them has found the containers that have the names now, all use them.
    containers: Arc<Mutex<Containers>>,
    runtime: Option<Arc<dyn Runtime>>,
}

/// The containers of a processor.
#[derive(Clone, Debug)]
struct Containers {
    monitored: Container,
    leases: Container,
}

/// Everything that is stored about a processor, read at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) store: LeaseStore,
    pub(crate) monitored: Container,
    pub(crate) listing: Listing,
    pub(crate) start_positions: StartPositions,
    /// Why positions mean nothing: they are of another store.
    foreign: Option<Error>,
    /// In key order.
    pub(crate) live: Vec<PhysicalRange>,
    /// The live ranges, by the token of a lease that names one.
    named: BTreeSet<LeaseToken>,
    /// The ranges of old leases that do not say theirs.
    resolved: BTreeMap<LeaseToken, FeedRange>,
}

/// Keys that are read from one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeFrom {
    pub(crate) range: FeedRange,
    /// None if nobody knows where these keys began.
    pub(crate) start: Option<StartFrom>,
}

/// What lies behind a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// How many changes.
    pub(crate) changes: u64,
    /// Whether that was counted, not estimated.
    pub(crate) estimated: bool,
    /// When the first of them was written.
    pub(crate) oldest: Option<Timestamp>,
    /// Whether the container, or this part of it, has never had a change.
    pub(crate) untouched: bool,
}

impl ProcessorRef {
    pub(crate) fn new(name: &str, monitored: &Container, leases: &Container) -> Self {
        let containers = Containers { monitored: monitored.clone(), leases: leases.clone() };
        Self { name: name.to_owned(), containers: Arc::new(Mutex::new(containers)), runtime: None }
    }

    /// The same, with another clock for time limits.
    pub(crate) fn with_runtime(&self, runtime: &Arc<dyn Runtime>) -> Self {
        Self { runtime: Some(Arc::clone(runtime)), ..self.clone() }
    }

    /// The containers as they are known now.
    fn containers(&self) -> Containers {
        self.containers.lock().clone()
    }

    /// The monitored container as it is known now.
    pub(crate) fn monitored(&self) -> Container {
        self.containers.lock().monitored.clone()
    }

    /// The lease store; if it is in the process of `runtime`, its listings tell which owners have ended without releasing
    /// their leases.
    pub(crate) fn store_seen_from(&self, runtime: &dyn Runtime) -> Result<LeaseStore> {
        self.containers().store(&self.name, Some(runtime))
    }

    /// Looks at everything, to compare positions with the feed.
    ///
    /// # Errors
    /// As for [`ProcessorRef::snapshot`]; `ForeignContinuation` if the positions are of another store.
    pub(crate) async fn snapshot_of_positions(&self) -> Result<Snapshot> {
        self.snapshot().await?.with_own_positions()
    }

    /// Looks at everything: in the containers that have these names now, if one was deleted and created again. They are
    /// remembered. A host that has followed them deletes the leases of the old one.
    ///
    /// # Errors
    /// `ItemNotFound` if no host of this processor was ever started, `InvalidArgument` if it was started under another
    /// account host, and those of the stores.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_with(None).await
    }

    /// Looks at everything, with owners that are known to have ended.
    ///
    /// # Errors
    /// As for [`ProcessorRef::snapshot`].
    pub(crate) async fn snapshot_seen_from(&self, runtime: &dyn Runtime) -> Result<Snapshot> {
        self.snapshot_with(Some(runtime)).await
    }

    /// Looks at everything in the containers as they are known, also if others have their names now.
    ///
    /// # Errors
    /// As for [`ProcessorRef::snapshot`], and `ContainerNotFound`.
    pub(crate) async fn snapshot_here(&self, runtime: &dyn Runtime) -> Result<Snapshot> {
        let containers = self.containers();
        match containers.snapshot(&self.name, Some(runtime)).await? {
            Some(snapshot) => Ok(snapshot),
            None => Err(containers.unknown(&self.name).await?),
        }
    }

    async fn snapshot_with(&self, runtime: Option<&dyn Runtime>) -> Result<Snapshot> {
        let known = self.containers();
        let missing = match known.snapshot(&self.name, runtime).await {
            Ok(Some(snapshot)) => return Ok(snapshot),
            Ok(None) => None,
            Err(error) if is_missing(error.kind()) => Some(error),
            Err(error) => return Err(error),
        };
        let Some(now) = known.replaced(&Replacements::with_defaults(self.runtime.as_ref())).await? else {
            return Err(match missing {
                Some(error) => error,
                None => known.unknown(&self.name).await?,
            });
        };
        match now.snapshot(&self.name, runtime).await? {
            Some(snapshot) => {
                *self.containers.lock() = now;
                Ok(snapshot)
            }
            None => Err(now.not_followed(&self.name)),
        }
    }
}

impl Containers {
    fn store(&self, name: &str, runtime: Option<&dyn Runtime>) -> Result<LeaseStore> {
        let store = LeaseStore::new(self.leases.clone(), LeasePrefix::new(name, self.monitored.identity())?)?;
        let in_process = self.leases.capabilities().in_process;
        Ok(store.of_process(runtime.filter(|_| in_process).and_then(Runtime::process)))
    }

    /// Those that have these names now, if one of them was deleted and created again.
    async fn replaced(&self, replacements: &Replacements) -> Result<Option<Self>> {
        // Without another one the first error tells more.
        let or_missing = |found: Result<_>| match found {
            Err(error) if is_missing(error.kind()) => Ok(None),
            found => found,
        };
        let monitored = or_missing(replacements.of(&self.monitored, StoreRole::Monitored).await)?;
        let leases = or_missing(replacements.of(&self.leases, StoreRole::Leases).await)?;
        Ok((monitored.is_some() || leases.is_some()).then(|| Self {
            monitored: monitored.unwrap_or_else(|| self.monitored.clone()),
            leases: leases.unwrap_or_else(|| self.leases.clone()),
        }))
    }

    /// What is stored about a processor; none if nothing is.
    async fn snapshot(&self, name: &str, runtime: Option<&dyn Runtime>) -> Result<Option<Snapshot>> {
        let store = self.store(name, runtime)?;
        let listing = store.list().await?;
        let info = read_info(&store).await?;
        if info.is_none() && listing.leases.is_empty() && listing.broken.is_empty() {
            return Ok(None);
        }
        let foreign = info.as_ref().and_then(|info| replaced_store::check(info, self.monitored.identity()).err());
        let start_positions = info.map(|info| info.start_positions()).unwrap_or_default();
        let live = self.monitored.feed_ranges().await?;
        let named = live.iter().map(|physical| LeaseToken::from(&physical.id)).collect();
        let resolved = listing.resolved(&live);
        let monitored = self.monitored.clone();
        Ok(Some(Snapshot { store, monitored, listing, start_positions, foreign, live, named, resolved }))
    }

    /// The error for a processor that does not exist, with those that do.
    async fn unknown(&self, name: &str) -> Result<Error> {
        let Self { monitored, leases } = self;
        account_host::check(name, monitored.identity(), &self.store(name, None)?).await?;
        let mut message = format!(
            "processor {name:?} has no leases in {}: it was never started on {}",
            place(leases.identity()),
            place(monitored.identity())
        );
        let existing = processors(monitored, leases).await?;
        match existing.as_slice() {
            [] => message.push_str(", and neither was any other processor"),
            names => message.push_str(&format!("; existing processors are: {}", names.join(", "))),
        }
        Ok(Error::new(ErrorKind::ItemNotFound, message))
    }

    /// The error for containers that were created again, before a host has created leases there.
    fn not_followed(&self, name: &str) -> Error {
        let message = format!(
            "processor {name:?} has no leases in {} for {}, one of which was deleted and created again: a host that runs \
             creates them, and reports what prevents it",
            place(self.leases.identity()),
            place(self.monitored.identity())
        );
        Error::new(ErrorKind::ItemNotFound, message)
    }
}

fn place(identity: &ContainerIdentity) -> String {
    format!("{}/{}", identity.database_name, identity.container_name)
}

/// Returns the names of all processors of `monitored` that have documents in `leases`, in order.
///
/// # Errors
/// Those of the store.
pub async fn processors(monitored: &Container, leases: &Container) -> Result<Vec<String>> {
    let ending = LeasePrefix::new("", monitored.identity())?.info_id();
    let items = leases.list("").await?;
    let mut names: Vec<String> =
        items.iter().filter_map(|item| item.id.strip_suffix(&ending)).map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// The marker of a processor, if it was ever started.
pub(crate) async fn read_info(store: &LeaseStore) -> Result<Option<InfoDocument>> {
    let id = store.prefix().info_id();
    let field = store.partition_key_field(&id);
    let Some(item) = store.read_raw(&id, field.as_deref()).await? else { return Ok(None) };
    InfoDocument::parse(&item.body).map(Some).map_err(|error| {
        let message =
            format!("document {id} cannot be read: {error}; replace it by importing leases that were exported");
        Error::new(ErrorKind::Corrupt, message)
    })
}

impl Snapshot {
    /// # Errors
    /// `ForeignContinuation` if the positions are of another store.
    pub(crate) fn with_own_positions(mut self) -> Result<Self> {
        match self.foreign.take() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// The mode of the processor: all its leases have the same.
    pub(crate) fn mode(&self) -> Mode {
        self.listing.leases.first().and_then(|lease| lease.document.mode).unwrap_or_default()
    }

    /// Leases that a host works or could work on: all but tombstones.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &StoredLease> {
        self.listing.leases.iter().filter(|lease| !lease.document.is_gone())
    }

    /// Keys that no lease covers; none as long as documents cannot be read, since theirs are not known.
    pub(crate) fn missing(&self) -> Vec<NewLease> {
        if !self.listing.broken.is_empty() || !self.listing.unresolved(&self.live).is_empty() {
            return Vec::new();
        }
        coverage::missing(&self.live, &self.listing.range_leases(&self.live))
    }

    /// The keys of a lease. An old lease without a range names a physical range, which may have been split.
    pub(crate) fn ranges(&self, lease: &LeaseDocument) -> Vec<FeedRange> {
        if let Some(range) = lease.range() {
            return vec![range];
        }
        self.resolved.get(&lease.token).cloned().into_iter().collect()
    }

    /// Whether the lease waits for a host to replace it, because its range was split or merged.
    pub(crate) fn is_split(&self, lease: &LeaseDocument) -> bool {
        match lease.version {
            LeaseVersion::Range => !self.named.contains(&lease.token),
            LeaseVersion::FeedRange => {
                let lives = |range: &FeedRange| {
                    live_from(range, &self.live).next().is_some_and(|physical| physical.range.contains_range(range))
                };
                !self.ranges(lease).iter().all(lives)
            }
        }
    }

    /// The keys of a lease, cut so that each piece lies in one physical range and has one position.
    pub(crate) fn ranges_from(&self, lease: &LeaseDocument) -> Vec<RangeFrom> {
        let start = match (&lease.continuation, lease.start()) {
            (Some(token), _) => Some(StartPosition::Continuation(token.clone()).to_start()),
            (None, start) => start.map(|start| start.to_start()),
        };
        let begun = self.ranges(lease).into_iter().flat_map(|range| match &start {
            Some(start) => vec![RangeFrom { range, start: Some(start.clone()) }],
            None => self.beginnings(&range),
        });
        self.cut_all(begun)
    }

    /// Where the keys of a lease began when it was created, cut in the same way.
    pub(crate) fn beginnings_of(&self, lease: &LeaseDocument) -> Vec<RangeFrom> {
        self.cut_all(self.ranges(lease).into_iter().flat_map(|range| self.beginnings(&range)))
    }

    fn cut_all(&self, ranges: impl Iterator<Item = RangeFrom>) -> Vec<RangeFrom> {
        ranges.flat_map(|range_from| cut(&range_from, &self.live)).collect()
    }

    /// A range cut where its start position changes; keys without one have no start.
    pub(crate) fn beginnings(&self, range: &FeedRange) -> Vec<RangeFrom> {
        let known = self.start_positions.pieces(range);
        let bare = uncovered(range, known.iter().map(|(range, _)| range));
        let bare = bare.into_iter().map(|range| RangeFrom { range, start: None });
        let begun =
            known.iter().map(|(range, position)| RangeFrom { range: range.clone(), start: Some(position.to_start()) });
        begun.chain(bare).collect()
    }

    /// What lies behind a position, over whatever ranges live by now.
    pub(crate) async fn backlog(&self, mode: Mode, range_from: &RangeFrom) -> Result<Backlog> {
        let Some(start) = &range_from.start else { return Ok(Backlog::unknown()) };
        let mut pieces = vec![range_from.clone()];
        for attempt in 0.. {
            match self.measure(mode, start, &pieces).await {
                Err(error) if error.kind() == ErrorKind::RangeGone && attempt < LAYOUT_TRIES => {
                    let live = self.monitored.feed_ranges().await?;
                    pieces = cut(range_from, &live);
                }
                other => return other,
            }
        }
        Ok(Backlog::unknown())
    }

    async fn measure(&self, mode: Mode, start: &StartFrom, pieces: &[RangeFrom]) -> Result<Backlog> {
        let mut total = Backlog { untouched: true, ..Backlog::default() };
        for piece in pieces {
            let request = ReadChanges::new(piece.range.clone(), start.clone()).mode(mode).max_items(1);
            let page = self.monitored.read_changes(request.count_remaining()).await?;
            let read = page.changes.len() as u64;
            let first = page.changes.first();
            let (changes, estimated) = match (page.remaining, first) {
                (Some(remaining), _) => (read + remaining, false),
                (None, None) => (0, false),
                // One LSN is one transaction, of this range or, where a store counts them together, of another: the best
                // guess without counting.
                (None, Some(first)) => (page.newest_lsn.get().saturating_sub(first.lsn.get()) + 1, true),
            };
            total.add(Backlog {
                changes,
                estimated,
                oldest: first.map(|change| change.timestamp),
                untouched: changes == 0 && self.is_untouched(piece, page.newest_lsn).await?,
            });
        }
        Ok(total)
    }

    /// Whether nothing was ever written. Stores count from 1 or, as Azure Cosmos DB, from 2.
    async fn is_untouched(&self, piece: &RangeFrom, newest: Lsn) -> Result<bool> {
        if newest.get() > 1 {
            return Ok(false);
        }
        let beginning = ReadChanges::new(piece.range.clone(), StartFrom::Beginning).max_items(1);
        Ok(self.monitored.read_changes(beginning).await?.changes.is_empty())
    }
}

impl Backlog {
    /// Nobody knows where the keys began: .NET answers 1 then, so that scalers wake up, and so do we.
    fn unknown() -> Self {
        Self { changes: 1, estimated: true, ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.changes += other.changes;
        self.estimated |= other.estimated;
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
        self.untouched &= other.untouched;
    }
}

/// The parts of a range_from on the physical ranges that live.
fn cut(range_from: &RangeFrom, live: &[PhysicalRange]) -> Vec<RangeFrom> {
    let parts = live_from(&range_from.range, live).map_while(|physical| physical.range.intersection(&range_from.range));
    parts.map(|range| RangeFrom { range, start: range_from.start.clone() }).collect()
}
