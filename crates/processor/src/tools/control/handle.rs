//! The handle to a processor for operators; pause and resume.

use std::sync::Arc;

use changefeed_core::{Container, Result};

use super::{
    scope::{Scope, chosen},
    update::update,
};
use crate::{
    lease::{document::LeaseDocument, prefix::LeaseToken, store::LeaseStore, timing::LeaseTiming},
    runtime::{Runtime, TokioRuntime},
    tools::snapshot::{ProcessorRef, Snapshot},
};

/// Operator commands: seek, reset, pause, resume, release, export, import. Hosts may be running or not: what is written into a lease reaches its
/// owner at the owner's next write. Cheap to clone.
///
/// ```
/// use changefeed::{Control, Scope, SeekTo, core::{Container, Result}};
///
/// # async fn example(orders: &Container, leases: &Container) -> Result<()> {
/// let control = Control::new("mailer", orders, leases);
/// control.pause(Scope::All).await?;
/// let seek = control.seek(SeekTo::Beginning, Scope::All);
/// println!("would move {} leases", seek.dry_run().await?.len());
/// seek.apply().await?;
/// control.resume(Scope::All).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    pub(super) processor: ProcessorRef,
    pub(super) timing: LeaseTiming,
    runtime: Option<Arc<dyn Runtime>>,
}

impl Control {
    /// Creates operator commands for the processor `name`.
    pub fn new(name: &str, monitored: &Container, leases: &Container) -> Self {
        let timing = LeaseTiming::for_container(leases);
        Self { processor: ProcessorRef::new(name, monitored, leases), timing, runtime: None }
    }

    /// Sets the intervals that the hosts use. Default: as for a processor.
    #[must_use]
    pub fn lease_timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Sets where time comes from: for simulations. Default: tokio and the operating system.
    #[doc(hidden)]
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.processor = self.processor.with_runtime(&runtime);
        self.runtime = Some(runtime);
        self
    }

    /// Has no work begin on these leases until they are resumed; owners finish their batch, store progress and let
    /// go. Returns those that were not paused before. Leases that come from a split of a paused one are paused, too.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such processor or lease, `Unavailable` if a lease kept changing, and those of
    /// the store.
    pub async fn pause(&self, scope: Scope) -> Result<Vec<LeaseToken>> {
        self.set_paused(scope, true).await
    }

    /// Lets work go on. Returns the leases that were paused.
    ///
    /// # Errors
    /// As for [`Control::pause`].
    pub async fn resume(&self, scope: Scope) -> Result<Vec<LeaseToken>> {
        self.set_paused(scope, false).await
    }

    async fn set_paused(&self, scope: Scope, paused: bool) -> Result<Vec<LeaseToken>> {
        let snapshot = self.processor.snapshot().await?;
        let mut changed = Vec::new();
        for lease in chosen(&snapshot, &scope)? {
            if lease.document.is_paused() != paused {
                let done = |document: &LeaseDocument| document.is_paused() == paused;
                update(&snapshot.store, lease, done, |document| document.set_paused(paused)).await?;
                changed.push(lease.document.token.clone());
            }
        }
        Ok(changed)
    }

    /// The lease store; if it is in this process, its listings tell which owners died with their processes.
    pub(super) fn lease_store(&self) -> Result<LeaseStore> {
        self.processor.store_seen_from(&*self.clock())
    }

    /// Everything that is stored about the processor, with owners that are known to be dead.
    pub(super) async fn snapshot(&self) -> Result<Snapshot> {
        self.processor.snapshot_seen_from(&*self.clock()).await
    }

    /// The same, with the ages of leases by the store's clock: asking for its time is a write.
    pub(super) async fn snapshot_with_ages(&self) -> Result<Snapshot> {
        let mut snapshot = self.snapshot().await?;
        snapshot.store = snapshot.store.with_store_time().await?;
        snapshot.listing = snapshot.store.list().await?;
        Ok(snapshot)
    }

    pub(super) fn clock(&self) -> Arc<dyn Runtime> {
        self.runtime.clone().unwrap_or_else(TokioRuntime::new)
    }
}
