//! The first start of a processor: one lease per range, each with its start position, created once, whatever crashes.

use std::{sync::Arc, time::Duration};

use changefeed_core::{
    Container, ETag, Effect, Error, ErrorKind, FeedRange, Mode, PhysicalRange, Result, StartFrom, Timestamp,
};

use super::dotnet_start::{DotNetStart, has_no_position};
use crate::{
    join::{AT_ONCE, join_bounded},
    lease::{
        account_host::{self, ForeignLocks},
        coverage::{self, NewLease},
        document::{InfoDocument, LeaseDocument, LeaseVersion, StartPosition, StartPositions},
        feed_positions::FeedPositions,
        host_context::HostContext,
        listing::{BrokenDocument, Listing},
        lock::{self, LOCK_PAUSE, Lock},
        prefix::LeaseToken,
        ranges::live_from,
        replaced_store,
        store::LeaseStore,
    },
    runtime::{BoxFuture, Runtime},
};

/// A write whose answer is lost so often in a row will not be answered at all.
const TRIES: u32 = 5;

/// What bootstrapping needs to know.
#[derive(Debug)]
pub(crate) struct Bootstrap<'a> {
    /// The processor's name.
    pub(crate) name: &'a str,
    /// Where the leases are.
    pub(crate) store: &'a LeaseStore,
    /// What is to be processed.
    pub(crate) monitored: &'a Container,
    /// Time and chance.
    pub(crate) runtime: &'a Arc<dyn Runtime>,
    /// Where a range begins that was never processed.
    pub(crate) start: &'a StartFrom,
    /// What the processor wants to see.
    pub(crate) mode: Mode,
    /// Whether new leases are paused.
    pub(crate) paused: bool,
}

/// Whether all hosts know where a new lease begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// They do: nothing has moved since they started.
    Known,
    /// An operator may have moved it: it is written into the lease.
    Written,
}

impl<'a> Bootstrap<'a> {
    /// That of a host that runs; leases that it creates are not paused.
    pub(crate) fn of(context: &'a HostContext) -> Self {
        let HostContext { name, store, monitored, runtime, options, mode, .. } = context;
        Self { name, store, monitored, runtime, start: &options.start, mode: *mode, paused: false }
    }

    /// Runs as [`Bootstrap::run`] does, and again while a store is unavailable or throttled, until `timeout` has passed.
    ///
    /// # Errors
    /// Those of the last run.
    pub(crate) async fn run_within(&self, timeout: Duration) -> Result<StartPositions> {
        let begun = self.runtime.monotonic();
        let mut attempt = 0;
        loop {
            let error = match self.run().await {
                Err(error) if error.kind().is_transient() && error.effect() == Effect::None => error,
                ran => return ran,
            };
            attempt += 1;
            let pause = LOCK_PAUSE.after(attempt, self.runtime.random()).max(error.retry_after().unwrap_or_default());
            if self.runtime.monotonic().saturating_sub(begun) + pause > timeout {
                return Err(error);
            }
            tracing::warn!(attempt, ?pause, %error, "start failed, retrying");
            self.runtime.sleep(pause).await;
        }
    }

    /// Makes sure that the processor's leases exist; returns where each range began.
    ///
    /// # Errors
    /// `InvalidArgument` if leases would expire in the container, or are of another mode, of Java's dialect or of another
    /// account host, and those of the stores.
    pub(crate) async fn run(&self) -> Result<StartPositions> {
        self.check_lease_container().await?;
        let mut waited = 0;
        let (mut seen, mut foreign) = (None, ForeignLocks::default());
        loop {
            if let Some(positions) = self.created().await? {
                return Ok(positions);
            }
            if let Some(mut lock) = Lock::take(self.store, self.monitored.identity(), self.runtime).await? {
                let made = self.make_alone(&mut lock, &mut foreign).await;
                let held = lock.holds();
                lock.release().await;
                match made {
                    Ok(Some(positions)) => return Ok(positions),
                    Err(error) if held => return Err(error),
                    // Another host may have taken the lock for dead and made everything: look again.
                    Err(_) => {}
                    // A host that knows the account by another name may have made everything by then: look again.
                    Ok(None) => {}
                }
            } else {
                lock::free_stale(self.store, self.runtime, &mut seen).await?;
            }
            waited += 1;
            self.runtime.sleep(LOCK_PAUSE.after(waited, self.runtime.random())).await;
        }
    }

    /// Refuses what [`run`](Self::run) would refuse, as far as reading tells; writes nothing.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub(crate) async fn check(&self) -> Result<()> {
        self.check_lease_container().await?;
        self.check_leases(&self.store.list().await?)?;
        match self.read_info().await? {
            Some((info, ..)) => replaced_store::check(&info, self.monitored.identity()).map(drop),
            None => Ok(()),
        }
    }

    /// Refuses a container in which leases would expire, or in which they are under another account host.
    async fn check_lease_container(&self) -> Result<()> {
        let leases = self.store.container();
        leases.time_to_live().await?.check_for_leases(leases.identity())?;
        account_host::check(self.name, self.monitored.identity(), self.store).await.map(drop)
    }

    /// Where each range began, if the leases were created already.
    async fn created(&self) -> Result<Option<StartPositions>> {
        if self.read_info().await?.is_none() {
            return Ok(None);
        }
        let listing = self.store.list().await?;
        self.check_leases(&listing)?;
        self.stored_positions(&StartPositions::default(), &listing).await
    }

    /// Where each range begins, as stored now, if anything is. `.info` of a .NET host says nothing of it: then `known` is
    /// stored, and for all other keys the beginning of the leases that those hosts created. Refuses positions of another store:
    /// a store that was restored or replaced has other changes under the same LSNs.
    async fn stored_positions(&self, known: &StartPositions, listing: &Listing) -> Result<Option<StartPositions>> {
        let id = self.store.prefix().info_id();
        let field = self.store.partition_key_field(&id);
        for _ in 0..TRIES {
            let Some((mut info, etag, written)) = self.read_info().await? else { return Ok(None) };
            let same_store = replaced_store::check(&info, self.monitored.identity())?;
            let positions = info.start_positions();
            let is_complete = positions.missing(&FeedRange::full()).is_empty();
            if same_store && is_complete {
                return Ok(Some(positions));
            }
            crate::planted!(DotNetStartNotStored => return Ok(Some(positions)));
            if !is_complete {
                let created = info.dot_net_creation(written);
                info.set_start_positions(&self.dotnet_start().complete(&positions.or(known), created, listing).await?);
            }
            info.set_store(self.monitored.identity().store.as_str());
            match self.store.replace_raw(&id, field.as_deref(), info.to_json(), &etag).await {
                Ok(_) => return Ok(Some(info.start_positions())),
                // Another host or an operator may be faster; the next start notes the store.
                Err(_) if is_complete => return Ok(Some(positions)),
                Err(error) if error.effect() == Effect::Unknown => {}
                Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, format!("{id} kept changing while it was being written")))
    }

    /// Makes the leases under our lock; none while a host that knows the account by another name has its own lock.
    async fn make_alone(&self, lock: &mut Lock<'_>, foreign: &mut ForeignLocks) -> Result<Option<StartPositions>> {
        let others = account_host::check(self.name, self.monitored.identity(), self.store).await?;
        if !foreign.are_stale(&others, self.runtime.monotonic(), lock::LIFE) {
            return Ok(None);
        }
        self.make(lock).await.map(Some)
    }

    /// Makes the leases, unless another host has finished between our look and our lock: then a lease that is missing
    /// was lost, and must not start over.
    async fn make(&self, lock: &mut Lock<'_>) -> Result<StartPositions> {
        match self.created().await? {
            Some(positions) => Ok(positions),
            None => self.initialise(lock).await,
        }
    }

    /// Where each range begins, as stored now: an operator may have moved it, or a .NET host created `.info` again, which does
    /// not say; then `known` counts, and is stored. None if nothing is stored.
    ///
    /// # Errors
    /// Those of the stores, and `Corrupt` if the document cannot be read.
    pub(crate) async fn start_positions(&self, known: &StartPositions) -> Result<Option<StartPositions>> {
        let Some((info, ..)) = self.read_info().await? else { return Ok(None) };
        let positions = info.start_positions();
        if positions.missing(&FeedRange::full()).is_empty() {
            return Ok(Some(positions));
        }
        self.stored_positions(known, &self.store.list().await?).await
    }

    /// Where each range began when an operator reset the processor while hosts ran, if that is stored. Hosts know `.info` only
    /// as they have read it, perhaps before the last seek.
    ///
    /// # Errors
    /// As for [`Bootstrap::start_positions`].
    pub(crate) async fn positions_before_reset(&self) -> Result<Option<StartPositions>> {
        crate::planted!(ResetPositionsIgnored => return Ok(None));
        let Some((kept, ..)) = self.read_document(&self.store.prefix().reset_id()).await? else { return Ok(None) };
        let same_store = kept.store() == Some(self.monitored.identity().store.as_str());
        Ok(Some(kept.start_positions()).filter(|positions| same_store && !positions.is_empty()))
    }

    async fn read_info(&self) -> Result<Option<(InfoDocument, ETag, Timestamp)>> {
        self.read_document(&self.store.prefix().info_id()).await
    }

    /// `.info`, or a document of the same form.
    async fn read_document(&self, id: &str) -> Result<Option<(InfoDocument, ETag, Timestamp)>> {
        let field = self.store.partition_key_field(id);
        let Some(item) = self.store.read_raw(id, field.as_deref()).await? else { return Ok(None) };
        InfoDocument::parse(&item.body).map(|info| Some((info, item.etag, item.timestamp))).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("{id} cannot be read: {error}; delete it to start again"))
        })
    }

    /// Creates the leases that are missing, then the document that says so. Whoever takes the lock after us does the
    /// same, so nothing may be created under a lock that was lost: its range may have been split meanwhile.
    async fn initialise(&self, lock: &mut Lock<'_>) -> Result<StartPositions> {
        let listing = self.store.list().await?;
        self.check_leases(&listing)?;
        let ranges = self.monitored.feed_ranges().await?;
        if let Some((_, reason)) = listing.unresolved(&ranges).into_iter().next() {
            // A new lease could begin past its checkpoint, or work beside its owner.
            return Err(Error::new(ErrorKind::Corrupt, reason));
        }
        let positions = self.standing(&listing, &ranges, self.first_positions(&ranges).await?).await?;
        let missing = coverage::missing(&ranges, &listing.range_leases(&ranges));
        for some in missing.chunks(AT_ONCE) {
            let until = lock.keep().await?;
            let creating = some
                .iter()
                .map(|child| -> BoxFuture<'_, _> { Box::pin(self.create(child, &positions, Start::Known, until)) });
            join_bounded(creating.collect()).await.into_iter().collect::<Result<()>>()?;
        }
        self.write_info(&positions, lock).await
    }

    fn dotnet_start(&self) -> DotNetStart<'a> {
        DotNetStart { monitored: self.monitored, start: self.start, mode: self.mode }
    }

    /// Where ranges begin, with the positions of leases that exist already: a host that failed in the middle of its bootstrap
    /// has created them, perhaps at later positions than this one would, or a .NET host, which begins at its start.
    async fn standing(
        &self,
        listing: &Listing,
        ranges: &[PhysicalRange],
        mut positions: StartPositions,
    ) -> Result<StartPositions> {
        let resolved = listing.resolved(ranges);
        for document in listing.leases.iter().map(|lease| &*lease.document).filter(|document| !document.is_gone()) {
            let Some(range) = document.range().or_else(|| resolved.get(&document.token).cloned()) else { continue };
            let stands = document.continuation.clone().map(StartPosition::Continuation).or_else(|| document.start());
            if let Some(position) = stands {
                positions = positions.moved(&range, &position);
            } else if has_no_position(document) && *self.start == StartFrom::Now {
                // A host of ours would have written where it is now.
                for physical in live_from(&range, ranges).map_while(|physical| physical.range.intersection(&range)) {
                    let position = self.dotnet_start().position(&physical, document.created_at()).await?;
                    positions = positions.moved(&physical, &position);
                }
            }
        }
        Ok(positions)
    }

    /// Where each range begins at a first start.
    pub(crate) async fn first_positions(&self, ranges: &[PhysicalRange]) -> Result<StartPositions> {
        let position = |physical: &'_ PhysicalRange| -> BoxFuture<'_, _> {
            let range = physical.range.clone();
            Box::pin(async move { Ok((range.clone(), self.start_position(&range).await?)) })
        };
        let positions =
            join_bounded(ranges.iter().map(position).collect()).await.into_iter().collect::<Result<Vec<_>>>()?;
        crate::planted!(StartNotStored => return Ok(StartPositions::default()));
        Ok(StartPositions::new(positions))
    }

    /// Writes the document that says that all leases exist, and where they began. Returns what is stored.
    pub(crate) async fn write_info(&self, positions: &StartPositions, lock: &mut Lock<'_>) -> Result<StartPositions> {
        let id = self.store.prefix().info_id();
        let field = self.store.partition_key_field(&id);
        let mut info = InfoDocument::new(&id, field.clone(), positions);
        info.set_store(self.monitored.identity().store.as_str());
        info.set_account_host(&self.monitored.identity().account_host);
        let before_reset = self.store.positions_before_reset_version().await;
        let until = lock.keep().await?;
        let created = self.ensure(&id, field.as_deref(), info.to_json(), until).await?;
        self.store.forget_positions_before_reset(before_reset).await;
        if created {
            return Ok(positions.clone());
        }
        Ok(self.read_info().await?.map_or_else(|| positions.clone(), |(info, ..)| info.start_positions()))
    }

    /// Sees to it that a document exists; false if this may not be the one. What became of a write that was not
    /// answered is found out by reading. No write begins at or after `until`.
    async fn ensure(&self, id: &str, field: Option<&str>, body: Vec<u8>, until: Duration) -> Result<bool> {
        let mut failures = 0;
        loop {
            if self.runtime.monotonic() >= until {
                return Err(Error::new(ErrorKind::Unavailable, format!("the store is too slow to create {id}")));
            }
            match self.store.create_raw(id, field, body.clone()).await {
                Ok(created) => return Ok(created.is_some()),
                Err(error) if error.effect() == Effect::Unknown => {
                    if self.store.read_raw(id, field).await?.is_some() {
                        return Ok(false);
                    }
                    failures += 1;
                    if failures == TRIES {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            self.runtime.sleep(LOCK_PAUSE.after(failures, self.runtime.random())).await;
        }
    }

    /// Where the feed of a range begins, in a form that does not depend on when it is read.
    async fn start_position(&self, range: &FeedRange) -> Result<StartPosition> {
        match self.start {
            StartFrom::Beginning => Ok(StartPosition::Beginning),
            StartFrom::Time(time) => Ok(StartPosition::Time(*time)),
            StartFrom::Continuation(continuation) => Ok(StartPosition::Continuation(continuation.token().to_owned())),
            StartFrom::Now => {
                let feed = FeedPositions { monitored: self.monitored, mode: self.mode };
                feed.end(range).await.map(StartPosition::Continuation)
            }
        }
    }

    /// Creates a free lease that begins where its range began; several, if its parts began at different positions. None
    /// at or after `until`.
    ///
    /// # Errors
    /// Those of the store. That it exists already is fine.
    pub(crate) async fn create(
        &self,
        child: &NewLease,
        positions: &StartPositions,
        start: Start,
        until: Duration,
    ) -> Result<()> {
        let pieces = positions.pieces(&child.range);
        if pieces.len() <= 1 {
            let position = pieces.into_iter().next().map(|(_, position)| position);
            return self.create_one(child.clone(), position, start, until).await;
        }
        for (range, position) in pieces {
            let piece = NewLease { version: LeaseVersion::FeedRange, token: LeaseToken::from(&range), range };
            self.create_one(piece, Some(position), start, until).await?;
        }
        Ok(())
    }

    async fn create_one(
        &self,
        child: NewLease,
        position: Option<StartPosition>,
        start: Start,
        until: Duration,
    ) -> Result<()> {
        let NewLease { version, token, range } = child;
        let id = self.store.lease_id(&token);
        let field = self.store.partition_key_field(&id);
        let mut document = LeaseDocument::new(id, field, version, token, range, self.mode);
        match (position, start) {
            (Some(StartPosition::Continuation(token)), _) => document.continuation = Some(token),
            (Some(position), Start::Written) => document.set_start(&position),
            _ => {}
        }
        if self.paused {
            document.set_paused(true);
        }
        self.ensure(&document.id, document.partition_key.as_deref(), document.to_json(), until).await.map(drop)
    }

    /// Refuses leases of another mode or of a later version, and a container that a Java host uses under this name.
    fn check_leases(&self, listing: &Listing) -> Result<()> {
        if let Some(BrokenDocument { id, error, .. }) = listing.broken.iter().find(|found| found.error.is_future()) {
            let token = self.store.prefix().token_of(id);
            let lease = token.map_or_else(|| id.clone(), |token| token.to_string());
            return Err(Error::new(ErrorKind::UnknownFormat, format!("lease {lease}: {error}")));
        }
        if let Some(BrokenDocument { id, error, .. }) = listing.broken.iter().find(|found| found.error.is_java()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{id}: {error}; a processor cannot share leases with Java hosts: choose another name"),
            ));
        }
        let other = listing.leases.iter().find(|lease| lease.document.mode.unwrap_or_default() != self.mode);
        match other {
            None => Ok(()),
            Some(lease) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "lease {} was made for {:?} mode, this processor asks for {:?}: use another processor name",
                    lease.document.token,
                    lease.document.mode.unwrap_or_default(),
                    self.mode
                ),
            )),
        }
    }
}
