//! The pull model: reading a container, a feed range or a partition key at the caller's own pace.

mod bookmark;
mod range_position;

use std::{collections::VecDeque, fmt, future::poll_fn, task::Poll};

use changefeed_core::{
    Change, ChangePage, Container, Error, ErrorKind, FeedRange, Mode, PartitionKey, ReadChanges, Result, StartFrom,
};
use serde::{Serialize, Serializer, de::DeserializeOwned};

pub use self::bookmark::Bookmark;
use self::range_position::{RangePosition, fit};
use crate::runtime::BoxFuture;

/// How often ranges may split or merge under one read before it is given up: each look is a request.
const LAYOUT_TRIES: u32 = 8;

/// A reader of changes that goes only when asked. Needs no leases and writes nothing.
///
/// Ranges take turns, one page each; order is kept within a range, hence per partition key. It never ends: an empty
/// page says that a full round over all ranges brought nothing. Splits and merges are followed without gap or repeat.
///
/// ```
/// # async fn example(orders: &changefeed::core::Container) -> changefeed::core::Result<()> {
/// use changefeed::{Bookmark, Pull, core::StartFrom};
///
/// let mut pull = Pull::container(orders, StartFrom::Beginning).max_items(100);
/// loop {
///     let page = pull.next_page().await?;
///     if page.is_empty() {
///         break;
///     }
///     for order in page.parse::<serde_json::Value>()? {
///         assert!(order.is_object());
///     }
/// }
/// let text = pull.bookmark().to_string();
/// let later = Pull::resume(orders, &text.parse::<Bookmark>()?)?;
/// # drop(later);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before `next_page`"]
pub struct Pull {
    container: Container,
    /// The one key that is read, if it is one.
    key: Option<PartitionKey>,
    mode: Mode,
    max_items: usize,
    /// In turn: the first is read next.
    positions: VecDeque<RangePosition>,
    /// Whether starts are fixed and the ranges fit the physical ranges as last seen.
    prepared: bool,
    /// How many ranges in a row had nothing new.
    quiet: usize,
    /// The mode that a bookmark was made in.
    resumed: Option<Mode>,
}

impl Pull {
    /// Reads the whole container.
    pub fn container(container: &Container, start: StartFrom) -> Self {
        Self::range(container, FeedRange::full(), start)
    }

    /// Reads a part of the key space, which may span several physical ranges.
    pub fn range(container: &Container, range: FeedRange, start: StartFrom) -> Self {
        Self::new(container, Mode::default(), [RangePosition { range, start }].into())
    }

    /// Reads one partition key, or all keys with this prefix if the container's key is hierarchical.
    ///
    /// # Errors
    /// `WrongPartitionKey` if it does not fit the container.
    pub fn partition_key(container: &Container, key: impl Into<PartitionKey>, start: StartFrom) -> Result<Self> {
        let (definition, key) = (&container.identity().partition_key, key.into());
        let range = definition.key_range(&key)?;
        // A prefix names several keys.
        let key = definition.epk(&key).is_ok().then_some(key);
        Ok(Self { key, ..Self::range(container, range, start) })
    }

    /// Resumes exactly where the bookmark was made, in the mode it was made in.
    ///
    /// # Errors
    /// `ForeignContinuation` if the bookmark belongs to another container, or to a store that was restored or replaced
    /// since. A bookmark of a version that did not write the store's identity is compared by container only.
    pub fn resume(container: &Container, bookmark: &Bookmark) -> Result<Self> {
        let identity = container.identity();
        if let Some(store) = bookmark.store().filter(|store| **store != identity.store) {
            let (name, own) = (&identity.container_name, &identity.store);
            let message = format!(
                "the bookmark belongs to store {store}, but {name} is in store {own}: the store was restored or \
                 replaced, and the position means nothing there; start again from the beginning, a time or now"
            );
            return Err(Error::new(ErrorKind::ForeignContinuation, message));
        }
        let own = &identity.container;
        if bookmark.container() != own {
            let (name, other) = (&identity.container_name, bookmark.container());
            let message = format!(
                "the bookmark belongs to container {other}, but {name} is {own}: pass the container that it was made \
                 with, or start again from the beginning, a time or now"
            );
            return Err(Error::new(ErrorKind::ForeignContinuation, message));
        }
        let positions = bookmark.positions().iter().cloned().collect();
        let resumed = Some(bookmark.mode());
        Ok(Self { resumed, ..Self::new(container, bookmark.mode(), positions) })
    }

    fn new(container: &Container, mode: Mode, positions: VecDeque<RangePosition>) -> Self {
        let max_items = ReadChanges::DEFAULT_MAX_ITEMS;
        Self {
            container: container.clone(),
            key: None,
            mode,
            max_items,
            positions,
            prepared: false,
            quiet: 0,
            resumed: None,
        }
    }

    /// Sets the page bound. A page may exceed it for a transaction that the store does not cut. Default: 1,000.
    pub fn max_items(mut self, max_items: usize) -> Self {
        self.max_items = max_items;
        self
    }

    /// Sets what to show. A bookmark knows its mode, and cannot go on in another. Default: latest versions.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Returns the changes that come next in one of the ranges; none if a full round over all of them brought nothing.
    /// The first call settles where each range begins, so that nothing written after it is missed.
    ///
    /// After an error the next call goes on with the next range and comes back to this one, at the same position: one
    /// sick range does not block the others.
    ///
    /// # Errors
    /// `BadContinuation` for a bookmark of another mode or a position that the store does not accept, and those of
    /// [`Backend::read_changes`](changefeed_core::Backend::read_changes).
    pub async fn next_page(&mut self) -> Result<PullPage> {
        self.check()?;
        let mut layouts = 0;
        let mut charge = 0.0;
        loop {
            if !self.prepared && !self.prepare().await? {
                layouts += 1;
                if layouts > LAYOUT_TRIES {
                    let message =
                        format!("the ranges changed {LAYOUT_TRIES} times while they were being read: try again");
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                continue;
            }
            let Some(position) = self.positions.front() else { return Ok(PullPage::empty(charge)) };
            let request = ReadChanges::new(position.range.clone(), position.start.clone());
            let request = ReadChanges { partition_key: self.key.clone(), ..request };
            let read = self.container.read_changes(request.mode(self.mode).max_items(self.max_items)).await;
            match read {
                Ok(page) => {
                    charge += page.request_charge;
                    if let Some(page) = self.take(page.into_value(), charge) {
                        return Ok(page);
                    }
                }
                Err(error) if error.kind() == ErrorKind::RangeGone && layouts < LAYOUT_TRIES => {
                    layouts += 1;
                    self.prepared = false;
                }
                Err(error) => {
                    self.positions.rotate_left(1);
                    return Err(error);
                }
            }
        }
    }

    /// Returns the position of this reader: after the last page that it returned. A bookmark made before the first page
    /// holds the start as it was asked for: `Now` then means the moment it is resumed.
    pub fn bookmark(&self) -> Bookmark {
        let mut positions: Vec<RangePosition> = self.positions.iter().cloned().collect();
        positions.sort_by(|a, b| a.range.cmp(&b.range));
        let identity = self.container.identity();
        Bookmark::new(identity.store.clone(), identity.container, self.mode, positions)
    }

    /// Waits until there may be something new. It may return for nothing, and a store that cannot tell never
    /// returns: wait for a timer as well.
    pub async fn changed(&self) {
        let mut waiting: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(self.positions.len());
        for position in &self.positions {
            match &position.start {
                StartFrom::Continuation(continuation) if self.prepared => {
                    waiting.push(self.container.backend().changed(&position.range, continuation));
                }
                _ => return,
            }
        }
        let any = |context: &mut std::task::Context<'_>| match waiting
            .iter_mut()
            .any(|future| future.as_mut().poll(context).is_ready())
        {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        poll_fn(any).await;
    }

    fn check(&self) -> Result<()> {
        match self.resumed {
            Some(made) if made != self.mode => Err(Error::new(
                ErrorKind::BadContinuation,
                format!(
                    "the bookmark was made in {made:?} mode and cannot go on in {:?} mode: leave mode out",
                    self.mode
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Fits the ranges to the physical ranges, and fixes "now" for all of them before anything is returned. False if
    /// the ranges changed meanwhile.
    async fn prepare(&mut self) -> Result<bool> {
        let live = self.container.feed_ranges().await?;
        self.positions = fit(std::mem::take(&mut self.positions).into(), &live).into();
        self.quiet = 0;
        for position in &mut self.positions {
            if position.start == StartFrom::Now {
                let request = ReadChanges::new(position.range.clone(), StartFrom::Now).mode(self.mode).max_items(1);
                let request = ReadChanges { partition_key: self.key.clone(), ..request };
                match self.container.read_changes(request).await {
                    Ok(page) => position.start = page.into_value().continuation.into(),
                    Err(error) if error.kind() == ErrorKind::RangeGone => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        self.prepared = true;
        Ok(true)
    }

    /// Notes the progress of the first range; a page for the caller if there is news, or if nobody had any.
    fn take(&mut self, page: ChangePage, charge: f64) -> Option<PullPage> {
        let mut position = self.positions.pop_front()?;
        position.start = page.continuation.into();
        let range = position.range.clone();
        self.positions.push_back(position);
        if page.changes.is_empty() {
            self.quiet += 1;
            let round = self.quiet >= self.positions.len();
            if round {
                self.quiet = 0;
            }
            return round.then(|| PullPage::empty(charge));
        }
        self.quiet = 0;
        Some(PullPage { changes: page.changes, range: Some(range), request_charge: charge })
    }
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pull({} of {:?})", self.container.identity().container_name, self.positions)
    }
}

/// Changes of one range.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PullPage {
    /// In LSN order per partition key; none if all ranges were asked and had nothing new.
    pub changes: Vec<Change>,
    /// The keys that were read; none for an empty page.
    #[serde(serialize_with = "as_text")]
    pub range: Option<FeedRange>,
    /// What it cost to get it, in request units, empty reads included; zero where nobody charges.
    pub request_charge: f64,
}

fn as_text<S: Serializer>(range: &Option<FeedRange>, serializer: S) -> Result<S::Ok, S::Error> {
    range.as_ref().map(FeedRange::to_string).serialize(serializer)
}

impl PullPage {
    fn empty(request_charge: f64) -> Self {
        Self { changes: Vec::new(), range: None, request_charge }
    }

    /// Returns `true` if everything there is was read.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the items after their changes as values of the caller's type; deletes are left out. To treat an item
    /// that does not fit by itself, use [`Change::parse`] on each change.
    ///
    /// # Errors
    /// `BadJson` at the first item that does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        self.changes.iter().filter_map(|change| change.parse().transpose()).collect()
    }
}
