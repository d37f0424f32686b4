//! How a .NET host writes a lease: under the etag of the copy at hand, then again after reading it. `spec/dotnet-cfp.md`
//! §2.4 and §2.5.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use changefeed_core::{Batch, Error, ErrorKind, Result, Write};
use serde_json::{Value, json};

use super::super::{Neighbour, Seen, timestamp};
use crate::{checks::lease_document::DocumentKey, coverage::Sometimes, runtime::wall_at};

/// How often a write is tried while others change the document.
const ATTEMPTS: u32 = 6;

/// How often the SDK sends a request again that was throttled.
const THROTTLED_TRIES: u32 = 9;

/// Between two such tries.
const THROTTLED_PAUSE: Duration = Duration::from_millis(500);

/// Why a lease was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// Its owner is another than was expected, or it is gone.
    Lost,
    /// The store refused or did not answer: it may have been written nevertheless.
    Failed,
}

impl Neighbour {
    /// Changes a lease that has this owner, from the copy at hand on. The etag of the answer is ignored, so a copy that was
    /// written once is outdated.
    async fn dotnet_update(
        &self,
        copy: &Seen,
        owner: Option<&str>,
        change: impl Fn(&mut Value),
    ) -> Result<Seen, Unwritten> {
        let mut copy = copy.clone();
        for _ in 0..ATTEMPTS {
            if copy.document.owner.as_deref() != owner {
                return Err(Unwritten::Lost);
            }
            let mut body = copy.body.clone();
            change(&mut body);
            body["timestamp"] = json!(timestamp::format(wall_at(self.now()).as_millis()));
            let seen = Seen::of_body(body, copy.etag.clone()).ok_or(Unwritten::Failed)?;
            match self.dotnet_replace(&seen).await {
                Ok(()) => return Ok(seen),
                Err(error) if error.kind() == ErrorKind::PreconditionFailed => {
                    self.sim.cover(Sometimes::DotNetStale);
                    copy = self.dotnet_read(&copy).await?;
                }
                Err(error) if error.kind() == ErrorKind::ItemNotFound => return Err(Unwritten::Lost),
                Err(_) => return Err(Unwritten::Failed),
            }
        }
        Err(Unwritten::Lost)
    }

    async fn dotnet_replace(&self, seen: &Seen) -> Result<()> {
        let body = Bytes::from(seen.body.to_string());
        let key = self.item_key(&seen.document).map(|key| key.partition_key);
        let write = || Write::Replace { body: body.clone(), if_match: seen.etag.clone() };
        let backend = self.leases.backend();
        self.sent(|| backend.write(Batch::single(key.clone(), write()))).await.map(drop)
    }

    async fn dotnet_read(&self, seen: &Seen) -> Result<Seen, Unwritten> {
        let key = self.item_key(&seen.document).ok_or(Unwritten::Failed)?;
        match self.sent(|| self.leases.backend().read_item(&key)).await {
            Ok(item) => Seen::of_class(&item).ok_or(Unwritten::Failed),
            Err(error) if error.kind() == ErrorKind::ItemNotFound => Err(Unwritten::Lost),
            Err(_) => Err(Unwritten::Failed),
        }
    }

    /// Sends a request, and again while it is throttled.
    pub(in crate::neighbours) async fn sent<T, F: Future<Output = Result<T>>>(
        &self,
        mut send: impl FnMut() -> F,
    ) -> Result<T> {
        let throttled = |error: &Error| error.kind() == ErrorKind::Throttled;
        let mut sent = send().await;
        for _ in 0..THROTTLED_TRIES {
            if !sent.as_ref().is_err_and(throttled) {
                break;
            }
            self.sim.exec.sleep(THROTTLED_PAUSE).await;
            sent = send().await;
        }
        sent
    }

    /// Writes this host into a lease that has the owner it was seen with, whether that is alive by now or not, with the
    /// properties that it was seen with, older ones perhaps than those in the document. The copy of a lease that this host has
    /// created has no etag, now and at later checkpoints: it overwrites whatever is there.
    pub(super) async fn dotnet_acquire(&self, seen: &Seen) -> Option<Seen> {
        let mut seen = seen.clone();
        if seen.feed_range().is_none()
            && let Some(range) = self.physical_range(&seen.document.token).await
        {
            let (min, max) = (range.min_inclusive().to_string(), range.max_exclusive().to_string());
            seen.body["FeedRange"] = json!({"Range": {"min": min, "max": max}});
        }
        let properties = &seen.body["properties"];
        let change = |body: &mut Value| {
            body["Owner"] = json!(self.name);
            body["properties"] = properties.clone();
        };
        match self.dotnet_update(&seen, seen.document.owner.as_deref(), change).await {
            Ok(acquired) => {
                if acquired.document.is_gone() {
                    self.sim.cover(Sometimes::DotNetTombstone);
                }
                Some(acquired)
            }
            Err(_) => {
                // It may have been written.
                self.dotnet_release(&seen).await;
                None
            }
        }
    }

    /// Writes the properties of a lease of its own that was listed as expired.
    pub(super) async fn dotnet_update_properties(&self, seen: &Seen) {
        let properties = &seen.body["properties"];
        let change = |body: &mut Value| body["properties"] = properties.clone();
        drop(self.dotnet_update(seen, Some(&self.name), change).await);
    }

    /// Renews a lease: reads it, and writes the time. What goes wrong is ignored, unless it has another owner. The copy that
    /// the next checkpoint starts from stays as it is.
    pub(in crate::neighbours) async fn dotnet_renew(&mut self, key: &DocumentKey) {
        let now = self.now();
        let Some(owned) = self.owned.get_mut(key) else { return };
        owned.renewed = now;
        let seen = owned.seen.clone();
        let Ok(copy) = self.dotnet_read(&seen).await else { return };
        if self.dotnet_update(&copy, Some(&self.name), |_| ()).await.is_err_and(|why| why == Unwritten::Lost) {
            self.dotnet_lost(key);
        }
    }

    /// Stores the position that this host has read to.
    pub(in crate::neighbours) async fn dotnet_checkpoint(&mut self, key: &DocumentKey) {
        let Some(owned) = self.owned.get(key) else { return };
        let position = owned.position.clone();
        let change = |body: &mut Value| body["ContinuationToken"] = json!(position);
        match self.dotnet_update(&owned.seen, Some(&self.name), change).await {
            Err(Unwritten::Lost) => self.dotnet_lost(key),
            Err(Unwritten::Failed) => self.dotnet_end(key).await,
            Ok(written) => {
                if let Some(owned) = self.owned.get_mut(key) {
                    owned.seen = written;
                }
            }
        }
    }

    fn dotnet_lost(&mut self, key: &DocumentKey) {
        if let Some(owned) = self.owned.remove(key) {
            self.sim.log(format_args!("{} lost lease {}", self.name, owned.seen.document.token));
        }
    }

    /// Ends the work on a lease, and releases it.
    pub(in crate::neighbours) async fn dotnet_end(&mut self, key: &DocumentKey) {
        if let Some(owned) = self.owned.remove(key) {
            self.dotnet_release(&owned.seen).await;
        }
    }

    /// Releases a lease if it is in this host's name: reads it, and writes that nobody owns it.
    pub(super) async fn dotnet_release(&self, seen: &Seen) {
        if let Ok(copy) = self.dotnet_read(seen).await {
            drop(self.dotnet_update(&copy, Some(&self.name), |body| body["Owner"] = Value::Null).await);
        }
    }
}
