//! The first start of a processor: one lease per range, each with its start position, made once, whoever crashes.

use std::{sync::Arc, time::Duration};

use changefeed_core::{
    Container, Effect, Error, ErrorKind, FeedRange, Mode, PhysicalRange, ReadChanges, Result, StartFrom,
};

use super::{
    coverage::{self, Child, Covered},
    document::{Anchor, Anchors, InfoDocument, LeaseDocument, LeaseVersion},
    lock::{self, Lock},
    prefix::LeaseToken,
    store::{LeaseStore, Listing},
};
use crate::{
    backoff::Backoff,
    deployment::{AT_ONCE, together},
    mutant::{self, Mutant},
    runtime::{BoxFuture, Runtime},
};

/// A write whose answer is lost so often in a row will not be answered at all.
const TRIES: u32 = 5;

/// Between two looks at a lock that another host holds.
const LOCK_PAUSE: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(3) };

/// What bootstrapping needs to know.
#[derive(Debug)]
pub struct Bootstrap<'a> {
    /// Where the leases are.
    pub store: &'a LeaseStore,
    /// What is to be processed.
    pub monitored: &'a Container,
    /// Time and chance.
    pub runtime: &'a Arc<dyn Runtime>,
    /// Where a range begins that was never processed.
    pub start: &'a StartFrom,
    /// What the processor wants to see.
    pub mode: Mode,
}

/// Whether all hosts know where a new lease begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// They do: nothing has moved since they started.
    Known,
    /// An operator may have moved it: it is written into the lease.
    Written,
}

impl Bootstrap<'_> {
    /// Makes sure that the processor's leases exist; returns where each range began.
    ///
    /// # Errors
    /// `InvalidArgument` if the leases are of another mode or of Java's dialect, and those of the stores.
    pub async fn run(&self) -> Result<Anchors> {
        let mut waited = 0;
        let mut seen = None;
        loop {
            if let Some(anchors) = self.made().await? {
                return Ok(anchors);
            }
            if let Some(mut lock) = Lock::take(self.store, self.runtime).await? {
                let made = self.make(&mut lock).await;
                let held = lock.holds();
                lock.release().await;
                if made.is_ok() || held {
                    return made;
                }
                // Another host may have taken the lock for dead and made everything: look again.
            } else {
                lock::free_stale(self.store, self.runtime, &mut seen).await?;
            }
            waited += 1;
            self.runtime.sleep(LOCK_PAUSE.after(waited, self.runtime.random())).await;
        }
    }

    /// Where each range began, if the leases were made already.
    async fn made(&self) -> Result<Option<Anchors>> {
        let Some(info) = self.read_info().await? else { return Ok(None) };
        self.check_mode(&self.store.list().await?)?;
        Ok(Some(info.anchors()))
    }

    /// Makes the leases, unless another host has finished between our look and our lock: then a lease that is missing
    /// was lost, and must not begin anew.
    async fn make(&self, lock: &mut Lock<'_>) -> Result<Anchors> {
        match self.made().await? {
            Some(anchors) => Ok(anchors),
            None => self.initialise(lock).await,
        }
    }

    /// Where each range begins, as stored now: an operator may have moved it. None if nothing is stored.
    ///
    /// # Errors
    /// Those of the store, and `Corrupt` if the document cannot be read.
    pub async fn anchors(&self) -> Result<Option<Anchors>> {
        Ok(self.read_info().await?.map(|info| info.anchors()))
    }

    async fn read_info(&self) -> Result<Option<InfoDocument>> {
        let id = self.store.prefix().info_id();
        let field = self.store.partition_key_field(&id);
        let Some(item) = self.store.read_raw(&id, field.as_deref()).await? else { return Ok(None) };
        InfoDocument::parse(&item.body).map(Some).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("{id} cannot be read: {error}; delete it to begin anew"))
        })
    }

    /// Creates the leases that are missing, then the document that says so. Whoever takes the lock after us does the
    /// same, so nothing may be created under a lock that was lost: its range may have been split meanwhile.
    async fn initialise(&self, lock: &mut Lock<'_>) -> Result<Anchors> {
        let listing = self.store.list().await?;
        self.check_mode(&listing)?;
        let ranges = self.monitored.feed_ranges().await?;
        let anchor = |physical: &'_ PhysicalRange| -> BoxFuture<'_, _> {
            let range = physical.range.clone();
            Box::pin(async move { Ok((range.clone(), self.anchor(&range).await?)) })
        };
        let anchors = together(ranges.iter().map(anchor).collect()).await.into_iter().collect::<Result<Vec<_>>>()?;
        let anchors = Anchors::new(if mutant::is(Mutant::StartNotAnchored) { Vec::new() } else { anchors });
        let missing = coverage::missing(&ranges, &covered(&listing, &ranges));
        for some in missing.chunks(AT_ONCE) {
            let until = lock.keep().await?;
            let creating = some
                .iter()
                .map(|child| -> BoxFuture<'_, _> { Box::pin(self.create(child, &anchors, Start::Known, until)) });
            together(creating.collect()).await.into_iter().collect::<Result<()>>()?;
        }
        let id = self.store.prefix().info_id();
        let field = self.store.partition_key_field(&id);
        let info = InfoDocument::new(&id, field.clone(), &anchors);
        let until = lock.keep().await?;
        if self.ensure(&id, field.as_deref(), info.to_json(), until).await? {
            return Ok(anchors);
        }
        Ok(self.read_info().await?.map_or(anchors, |info| info.anchors()))
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
    async fn anchor(&self, range: &FeedRange) -> Result<Anchor> {
        match self.start {
            StartFrom::Beginning => Ok(Anchor::Beginning),
            StartFrom::Time(time) => Ok(Anchor::Time(*time)),
            StartFrom::Continuation(continuation) => Ok(Anchor::Continuation(continuation.token().to_owned())),
            StartFrom::Now => {
                let request = ReadChanges::new(range.clone(), StartFrom::Now).mode(self.mode).max_items(1);
                let page = self.monitored.read_changes(request).await?;
                Ok(Anchor::Continuation(page.continuation.token().to_owned()))
            }
        }
    }

    /// Creates a free lease that begins where its range began; several, if its parts began at different positions. None
    /// at or after `until`.
    ///
    /// # Errors
    /// Those of the store. That it exists already is fine.
    pub async fn create(&self, child: &Child, anchors: &Anchors, start: Start, until: Duration) -> Result<()> {
        let pieces = anchors.pieces(&child.range);
        if pieces.len() <= 1 {
            let anchor = pieces.into_iter().next().map(|(_, anchor)| anchor);
            return self.create_one(child.clone(), anchor, start, until).await;
        }
        for (range, anchor) in pieces {
            let piece = Child { version: LeaseVersion::FeedRange, token: LeaseToken::from(&range), range };
            self.create_one(piece, Some(anchor), start, until).await?;
        }
        Ok(())
    }

    async fn create_one(&self, child: Child, anchor: Option<Anchor>, start: Start, until: Duration) -> Result<()> {
        let Child { version, token, range } = child;
        let id = self.store.lease_id(&token);
        let field = self.store.partition_key_field(&id);
        let mut document = LeaseDocument::new(id, field, version, token, range, self.mode);
        match (anchor, start) {
            (Some(Anchor::Continuation(token)), _) => document.continuation = Some(token),
            (Some(anchor), Start::Written) => document.set_start(&anchor),
            _ => {}
        }
        self.ensure(&document.id, document.partition_key.as_deref(), document.to_json(), until).await.map(drop)
    }

    /// Refuses leases of another mode, and a container that a Java host uses under our name.
    fn check_mode(&self, listing: &Listing) -> Result<()> {
        if let Some((id, error)) = listing.broken.iter().find(|(_, error)| error.is_java()) {
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

/// The leases of a listing, with their ranges. Old leases without a range get that of the physical range they name.
pub fn covered(listing: &Listing, ranges: &[PhysicalRange]) -> Vec<Covered> {
    let of = |document: &LeaseDocument| {
        let named = || {
            ranges.iter().find(|range| range.id.as_str() == document.token.as_str()).map(|range| range.range.clone())
        };
        document.feed_range.clone().or_else(named)
    };
    let leases = listing.leases.iter().filter_map(|lease| {
        let document = &lease.document;
        let (token, gone) = (document.token.clone(), document.is_gone());
        of(document).map(|range| Covered { token, range, gone })
    });
    leases.collect()
}
