//! Writers: items under several keys, whose every change is told to the truth in the moment it is committed.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{Batch, ItemId, PartitionKey, Write};
use serde_json::json;

use crate::{rng::Rng, scenario::Store, truth::Written, world::World};

/// How many writes a burst has.
const BURST: u64 = 30;

/// The id of an item.
fn item_id(item: u32) -> String {
    format!("i{item}")
}

/// The item with this id.
pub fn item_number(id: &str) -> Option<u32> {
    id.strip_prefix('i')?.parse().ok()
}

/// The one who writes.
#[derive(Debug)]
pub struct Writer {
    world: Arc<World>,
    rng: Rng,
    killers: u32,
    /// Items that exist.
    alive: Vec<bool>,
    numbers: u64,
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new(world: &Arc<World>) -> Self {
        let plan = &world.scenario.workload;
        let items = plan.keys * plan.items_per_key;
        let alive = vec![false; items as usize];
        Self {
            world: Arc::clone(world),
            rng: Rng::new(world.scenario.seed, "writer"),
            killers: plan.killers,
            alive,
            numbers: 0,
        }
    }

    /// Writes until the given moment, in microseconds.
    pub async fn run_until(&mut self, end: u64) {
        let plan = self.world.scenario.workload.clone();
        loop {
            let pause = self.rng.below(plan.pause * 2000 + 1);
            if self.world.exec.now() + pause >= end {
                return self.world.exec.sleep_until(end).await;
            }
            self.world.exec.sleep(Duration::from_micros(pause)).await;
            let count = if self.rng.chance(plan.burst_per_mille) { BURST } else { 1 };
            for _ in 0..count {
                self.write().await;
            }
        }
    }

    /// Writes one item, or several under one key together.
    pub async fn write(&mut self) {
        let plan = self.world.scenario.workload.clone();
        let key = u32::try_from(self.rng.below(u64::from(plan.keys))).unwrap_or_default();
        let first = key * plan.items_per_key;
        let together = plan.items_per_key > 1 && self.rng.chance(plan.batch_per_mille);
        let items: Vec<u32> = if together {
            (first..first + plan.items_per_key).collect()
        } else {
            vec![first + u32::try_from(self.rng.below(u64::from(plan.items_per_key))).unwrap_or_default()]
        };
        let mut writes = Vec::new();
        let mut changes = Vec::new();
        for item in items {
            let (write, change) = self.one(item, key);
            writes.push(write);
            changes.push(change);
        }
        let pk = PartitionKey::from(format!("k{key}"));
        let backend = Arc::clone(self.world.stores.monitored.backend());
        let epk = backend.identity().partition_key.epk(&pk).expect("invariant: a text is a partition key");
        let batch = Batch { partition_key: Some(pk), writes, return_items: false };
        let written = backend.write(batch).await.expect("invariant: the writer writes what the store accepts");
        let lsn = written.first().map_or(0, |written| written.lsn.get());
        let mut truth = self.world.truth.lock();
        for change in changes {
            let mark = if change.killer {
                " killer"
            } else if change.poison {
                " poison"
            } else {
                ""
            };
            let verb = if change.deleted { "deletes" } else { "writes" };
            self.world.log(format_args!("writer {verb} i{} of k{key} at {lsn}{mark}", change.item));
            truth.wrote(Written { lsn, epk: epk.clone(), ..change });
        }
        drop(truth);
        self.world.news(Store::Feed, |range| range.contains(&epk));
    }

    fn one(&mut self, item: u32, key: u32) -> (Write, Written) {
        let plan = &self.world.scenario.workload;
        let chaos = *self.world.chaos.lock();
        self.numbers += 1;
        let exists = self.alive.get(item as usize).copied().unwrap_or_default();
        let deleted = exists && self.rng.chance(plan.delete_per_mille);
        let killer = chaos && !deleted && self.killers > 0 && self.numbers > 20 && self.rng.chance(50);
        let poison = chaos && !deleted && !killer && self.rng.chance(plan.poison_per_mille);
        self.killers -= u32::from(killer);
        if let Some(alive) = self.alive.get_mut(item as usize) {
            *alive = !deleted;
        }
        let id = item_id(item);
        let write = if deleted {
            Write::Delete { id: ItemId::new(id).expect("invariant: a good id"), if_match: None }
        } else {
            let body = json!({"id": id, "pk": format!("k{key}"), "n": self.numbers});
            Write::Upsert { body: Bytes::from(body.to_string()), if_match: None }
        };
        let change = Written {
            lsn: 0,
            item,
            key,
            epk: changefeed_core::Epk::MIN,
            deleted,
            poison,
            killer,
            superseded: false,
            handled: 0,
            claimed: false,
            asked: 0,
            dead: false,
            deaths: 0,
        };
        (write, change)
    }
}
