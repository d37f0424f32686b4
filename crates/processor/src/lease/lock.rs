//! The bootstrap lock: one host at a time creates leases, renews its lock meanwhile, and begins nothing more once others
//! may judge it stale.

use std::{sync::Arc, time::Duration};

use changefeed_core::{ContainerIdentity, ETag, Effect, Error, ErrorKind, Item, Result};

use super::{document::LockDocument, store::LeaseStore};
use crate::{backoff::Backoff, runtime::Runtime};

/// A lock that nobody has touched for this long, as far as we saw, is free: its holder died. .NET uses the same span.
pub(crate) const LIFE: Duration = Duration::from_secs(30);

/// After so long without a renewal the holder begins nothing more: what it has begun has time to arrive.
const HOLD: Duration = Duration::from_secs(10);

/// Between two looks at a lock that another host holds.
pub(crate) const LOCK_PAUSE: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(3) };

/// How long a tool waits for the lock: the time in which the lock of a host that died becomes stale, twice.
const PATIENCE: Duration = Duration::from_secs(60);

/// A lock that is ours.
#[derive(Debug)]
pub(crate) struct Lock<'a> {
    item: LockItem<'a>,
    monitored: &'a ContainerIdentity,
    nonce: String,
    etag: ETag,
    /// When its last successful write was begun.
    confirmed: Duration,
    lost: bool,
}

/// The lock of another host, as it was first seen.
#[derive(Debug)]
pub(crate) struct ForeignLock {
    etag: ETag,
    since: Duration,
}

/// The item that is the lock.
#[derive(Debug)]
struct LockItem<'a> {
    store: &'a LeaseStore,
    runtime: &'a Arc<dyn Runtime>,
    id: String,
    field: Option<String>,
}

impl<'a> LockItem<'a> {
    fn new(store: &'a LeaseStore, runtime: &'a Arc<dyn Runtime>) -> Self {
        let id = store.prefix().lock_id();
        let field = store.partition_key_field(&id);
        Self { store, runtime, id, field }
    }

    fn document(&self, monitored: &ContainerIdentity, nonce: &str) -> Vec<u8> {
        let document = LockDocument::new(&self.id, self.field.clone(), nonce);
        document.for_account(monitored.store.as_str(), &monitored.account_host).to_json()
    }

    async fn read(&self) -> Result<Option<Item>> {
        self.store.read_raw(&self.id, self.field.as_deref()).await
    }

    /// The version that has this nonce, after a write whose outcome is unknown.
    async fn version_of(&self, nonce: &str) -> Result<Option<ETag>> {
        let is_ours = |item: &Item| LockDocument::parse(&item.body).is_ok_and(|lock| lock.nonce() == Some(nonce));
        Ok(self.read().await?.filter(is_ours).map(|item| item.etag))
    }

    async fn delete(&self, etag: &ETag) {
        drop(self.store.delete_raw(&self.id, self.field.as_deref(), etag).await);
    }
}

impl<'a> Lock<'a> {
    /// Takes the lock; none if another host has it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn take(
        store: &'a LeaseStore,
        monitored: &'a ContainerIdentity,
        runtime: &'a Arc<dyn Runtime>,
    ) -> Result<Option<Self>> {
        let item = LockItem::new(store, runtime);
        let nonce = format!("{:016x}", runtime.random());
        let confirmed = runtime.monotonic();
        let etag = match store.create_raw(&item.id, item.field.as_deref(), item.document(monitored, &nonce)).await {
            Ok(etag) => etag,
            Err(error) if error.effect() == Effect::Unknown => item.version_of(&nonce).await?,
            Err(error) => return Err(error),
        };
        Ok(etag.map(|etag| Self { item, monitored, nonce, etag, confirmed, lost: false }))
    }

    /// Waits until no other has the lock, and takes it: the one of a holder that died is freed.
    ///
    /// # Errors
    /// `Locked` if a host holds it for a minute, and those of the store.
    pub(crate) async fn wait(
        store: &'a LeaseStore,
        monitored: &'a ContainerIdentity,
        runtime: &'a Arc<dyn Runtime>,
    ) -> Result<Self> {
        let (begun, mut seen, mut waited) = (runtime.monotonic(), None, 0);
        loop {
            if let Some(lock) = Self::take(store, monitored, runtime).await? {
                return Ok(lock);
            }
            if runtime.monotonic().saturating_sub(begun) >= PATIENCE {
                let message =
                    format!("a host is creating leases: {} exists; stop hosts first", store.prefix().lock_id());
                return Err(Error::new(ErrorKind::Locked, message));
            }
            free_stale(store, runtime, &mut seen).await?;
            waited += 1;
            runtime.sleep(LOCK_PAUSE.after(waited, runtime.random())).await;
        }
    }

    /// Returns `true` if no host can have judged the lock stale.
    pub(crate) fn holds(&self) -> bool {
        !self.lost && self.item.runtime.monotonic() < self.deadline()
    }

    /// Renews it if that is due; returns until when something may be begun under it.
    ///
    /// # Errors
    /// Those of the store, and `PreconditionFailed` if another host has taken it for dead.
    pub(crate) async fn keep(&mut self) -> Result<Duration> {
        if self.item.runtime.monotonic() >= self.confirmed + HOLD / 2 {
            self.renew().await?;
        }
        Ok(self.deadline())
    }

    fn deadline(&self) -> Duration {
        self.confirmed + HOLD
    }

    async fn renew(&mut self) -> Result<()> {
        let LockItem { store, runtime, id, field } = &self.item;
        let begun = runtime.monotonic();
        let document = self.item.document(self.monitored, &self.nonce);
        let renewed = match store.replace_raw(id, field.as_deref(), document, &self.etag).await {
            Ok(etag) => Some(etag),
            Err(error) if error.effect() == Effect::Unknown => {
                let found = self.item.version_of(&self.nonce).await?;
                if found.as_ref() == Some(&self.etag) {
                    return Err(error);
                }
                found
            }
            Err(error) => match error.kind() {
                ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound => None,
                _ => return Err(error),
            },
        };
        let Some(etag) = renewed else {
            self.lost = true;
            return Err(Error::new(ErrorKind::PreconditionFailed, "bootstrap lock lost: another host judged it stale"));
        };
        (self.etag, self.confirmed) = (etag, begun);
        Ok(())
    }

    /// Lets others have it. If that fails they wait until it is stale.
    pub(crate) async fn release(self) {
        self.item.delete(&self.etag).await;
    }
}

/// Looks at the lock of another host, and frees it if that has not touched it for long.
///
/// # Errors
/// Those of the store.
pub(crate) async fn free_stale(
    store: &LeaseStore,
    runtime: &Arc<dyn Runtime>,
    seen: &mut Option<ForeignLock>,
) -> Result<()> {
    let item = LockItem::new(store, runtime);
    let Some(Item { etag, .. }) = item.read().await? else { return Ok(()) };
    let now = runtime.monotonic();
    match seen {
        Some(foreign) if foreign.etag == etag => {
            if now.saturating_sub(foreign.since) >= LIFE {
                item.delete(&etag).await;
                *seen = None;
            }
        }
        _ => *seen = Some(ForeignLock { etag, since: now }),
    }
    Ok(())
}
