//! What a .NET host does when the range of a lease is gone. `spec/dotnet-cfp.md` §4.5.

use bytes::Bytes;
use changefeed_core::{Batch, ErrorKind, FeedRange, PhysicalRange, Result, Write};

use super::super::{Neighbour, Seen};
use crate::{checks::lease_document::DocumentKey, coverage::Sometimes};

impl Neighbour {
    /// The physical range with this id as the server knows it; none if it is gone.
    pub(super) async fn physical_range(&self, id: &str) -> Option<FeedRange> {
        let live = self.sim.stores.monitored.feed_ranges().await.ok()?;
        live.into_iter().find(|physical| physical.id.as_str() == id).map(|physical| physical.range)
    }

    /// Creates leases for the ranges that follow that of a lease, at the position that this host has read to, acquires
    /// those that were not there, and deletes the lease without a condition. Then the lease is released, as after all
    /// work: it is there still if it goes on, if something failed, or if the delete was refused.
    pub(in crate::neighbours) async fn dotnet_split(&mut self, key: &DocumentKey) {
        let Some(owned) = self.owned.remove(key) else { return };
        let (parent, position) = (owned.seen, owned.position);
        if let Some(children) = self.successors(&parent, position.as_deref()).await
            && let Ok(mut created) = self.create_all(children).await
        {
            self.sim.cover(Sometimes::DotNetSplit);
            self.sim.log(format_args!("{} replaces lease {}", self.name, parent.document.token));
            for child in &mut created {
                child.body["properties"] = parent.body["properties"].clone();
            }
            let ((), acquired) = tokio::join!(self.delete(&parent), self.acquire_all(&created));
            for lease in acquired {
                self.own(lease);
            }
        }
        self.dotnet_release(&parent).await;
    }

    /// The leases that follow one whose range is gone; none if it goes on, or if nobody can tell.
    async fn successors(&self, parent: &Seen, position: Option<&str>) -> Option<Vec<Seen>> {
        let live = self.sent(|| self.feed.feed_ranges()).await.ok()?;
        let own = parent.feed_range()?;
        let parts: Vec<&PhysicalRange> = live.iter().filter(|physical| physical.range.overlaps(&own)).collect();
        let of_range = |range: &FeedRange| parent.child(1, &range.to_string(), range, position);
        match (parent.is_version_1(), parts.as_slice()) {
            (_, []) | (true, [_]) => None,
            (false, [_]) => Some(vec![of_range(&own)?]),
            // Also beyond the keys of the parent, where a range was split and a part of it merged.
            (false, parts) => {
                parts.iter().map(|part| parent.child(0, part.id.as_str(), &part.range, position)).collect()
            }
            (true, parts) => parts.iter().map(|part| of_range(&part.range.intersection(&own)?)).collect(),
        }
    }

    /// Creates leases; those that did not exist.
    async fn create_all(&self, children: Vec<Seen>) -> Result<Vec<Seen>> {
        let mut created = Vec::new();
        for child in children {
            let key = self.item_key(&child.document).map(|key| key.partition_key);
            let body = Bytes::from(child.body.to_string());
            let create = || Batch::single(key.clone(), Write::Create { body: body.clone() });
            match self.sent(|| self.leases.backend().write(create())).await {
                Ok(_) => created.push(child),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(created)
    }

    async fn acquire_all(&self, created: &[Seen]) -> Vec<Seen> {
        let mut acquired = Vec::new();
        for child in created {
            acquired.extend(self.dotnet_acquire(child).await);
        }
        acquired
    }

    /// Deletes a lease, whoever owns it; whatever the store answers.
    async fn delete(&self, parent: &Seen) {
        let Some(key) = self.item_key(&parent.document) else { return };
        let delete = || Write::Delete { id: key.id.clone(), if_match: None };
        let write = || self.leases.backend().write(Batch::single(Some(key.partition_key.clone()), delete()));
        drop(self.sent(write).await);
    }
}
