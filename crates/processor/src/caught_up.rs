//! Running a processor until it has caught up, for jobs that live shortly.

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use changefeed_core::{ETag, Result};

use crate::{
    health::{Health, LeaseHealth},
    launch::Takeover,
    lease::{
        coverage,
        document::LeaseSummary,
        listing::{Listing, StoredLease},
        prefix::{LeasePrefix, LeaseToken},
        store::LeaseStore,
    },
    processor::Processor,
    runtime::TokioRuntime,
    store::retry::RetryBackend,
};

impl Processor {
    /// Delivers everything there is, then stops: for jobs and functions that live shortly. Returns when every lease has
    /// caught up that this host could acquire; leases of other hosts that are alive, and paused leases, are left to them.
    ///
    /// A predecessor that was killed need not be watched for a whole expiration interval: the time of its last write and
    /// the current time are compared, both by the clock of the lease store. Writes one small document `<prefix>.time`.
    ///
    /// Waits without limit while a batch keeps failing: set a dead-letter container, or bound it with a timeout. Dropping
    /// the future ends the host at once, as dropping [`Running`](crate::Running) does.
    ///
    /// ```
    /// # async fn example(processor: changefeed::Processor) -> changefeed::core::Result<()> {
    /// processor.run_until_caught_up().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Processor::start`], [`Running::join`](crate::Running::join) and [`Running::stop`](crate::Running::stop).
    pub async fn run_until_caught_up(&self) -> Result<()> {
        self.run_until_caught_up_unless(std::future::pending()).await.map(drop)
    }

    /// Does what [`Processor::run_until_caught_up`] does, but stops in good order as soon as `stop` ends: leases are
    /// released with what was delivered. Returns whether everything had been delivered by then.
    ///
    /// # Errors
    /// As for [`Processor::run_until_caught_up`].
    pub async fn run_until_caught_up_unless(&self, stop: impl Future<Output = ()>) -> Result<bool> {
        let mut stop = pin!(stop);
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let leases = RetryBackend::container(&self.leases, &runtime, self.options.start_timeout);
        let prefix = || LeasePrefix::new(&self.name, self.monitored().identity());
        let mut store = LeaseStore::new(leases.clone(), prefix()?)?;
        let Some(running) = self.start_host_unless(Takeover::ByStoreTime, stop.as_mut()).await? else {
            return Ok(false);
        };
        let mut first = None;
        loop {
            // A lease that is listed as another's after this may have been this host's own.
            let health = running.health();
            let prefix = prefix()?;
            if prefix != *store.prefix() {
                // The monitored container was created again.
                (store, first) = (LeaseStore::new(leases.clone(), prefix)?, None);
            }
            let listing = store.list().await?;
            let first = first.get_or_insert_with(|| versions(&listing));
            if is_caught_up(&listing, &self.instance, first, &health) {
                return running.stop().await.map(|()| true);
            }
            tokio::select! {
                biased;
                ended = running.join() => return ended.map(|()| true),
                () = stop.as_mut() => return running.stop().await.map(|()| false),
                () = runtime.sleep(self.options.timing.acquire / 4) => {}
            }
        }
    }
}

/// A version of a lease, and what its owner last wrote.
type Version = (ETag, Arc<LeaseSummary>);

fn versions(listing: &Listing) -> BTreeMap<LeaseToken, Version> {
    let version = |(lease, summary): (&StoredLease, &Arc<LeaseSummary>)| {
        (lease.document.token.clone(), (lease.etag.clone(), Arc::clone(summary)))
    };
    listing.summarised().map(version).collect()
}

/// Whether nothing is left to do for the host `instance`. The owner of a lease that it has written since the `first`
/// listing is alive and does its own work; a request of another host proves nothing.
fn is_caught_up(listing: &Listing, instance: &str, first: &BTreeMap<LeaseToken, Version>, health: &Health) -> bool {
    let is_done = |(lease, summary): (&StoredLease, &Arc<LeaseSummary>)| {
        let document = &lease.document;
        if let Some(own) = health.leases.iter().find(|own| own.lease == document.token) {
            return own.health == LeaseHealth::CaughtUp;
        }
        let of_another = document.owner.as_deref().is_some_and(|owner| owner != instance);
        let written = first
            .get(&document.token)
            .is_none_or(|(etag, before)| lease.etag != *etag && !summary.is_only_asked(before));
        of_another && written
    };
    if is_missing_leases(listing) {
        return false;
    }
    let available = |lease: &StoredLease| !lease.document.is_gone() && !lease.document.is_paused();
    listing.summarised().filter(|(lease, _)| available(lease)).all(is_done)
}

/// Whether leases are missing that a host has yet to create, in a container that was created again. Beside documents whose
/// ranges are not known none is created: those that cannot be read, and old leases of .NET, which do not say theirs.
fn is_missing_leases(listing: &Listing) -> bool {
    let unknown = !listing.broken.is_empty() || listing.leases.iter().any(|lease| lease.document.has_no_range());
    !unknown && !coverage::audit(&listing.range_leases(&[])).holes.is_empty()
}
