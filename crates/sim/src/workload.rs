//! The writer: items under several keys. Every change is recorded in the oracle at the moment of its commit.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{Batch, ItemId, PartitionKey, Write};
use serde_json::json;

use crate::{coverage::Sometimes, oracle::WrittenChange, rng::Rng, scenario::Store, simulation::Simulation};

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

/// The writer of a run.
#[derive(Debug)]
pub struct Writer {
    sim: Arc<Simulation>,
    rng: Rng,
    killers: u32,
    /// Which items exist.
    exists: Vec<bool>,
    numbers: u64,
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new(sim: &Arc<Simulation>) -> Self {
        let plan = &sim.scenario.workload;
        let items = plan.keys * plan.items_per_key;
        let exists = vec![false; items as usize];
        Self {
            sim: Arc::clone(sim),
            rng: Rng::new(sim.scenario.seed, "writer"),
            killers: plan.killers,
            exists,
            numbers: 0,
        }
    }

    /// Writes until the given moment, in microseconds.
    pub async fn run_until(&mut self, end: u64) {
        let plan = self.sim.scenario.workload.clone();
        loop {
            let pause = self.rng.below(plan.pause * 2000 + 1);
            if self.sim.exec.now() + pause >= end {
                return self.sim.exec.sleep_until(end).await;
            }
            self.sim.exec.sleep(Duration::from_micros(pause)).await;
            let count = if self.rng.chance(plan.burst_per_mille) { BURST } else { 1 };
            for _ in 0..count {
                self.write().await;
            }
        }
    }

    /// Overwrites items whose newest change does not parse: what a user does who has no dead-letter container.
    pub async fn repair(&mut self) {
        let items = self.sim.oracle.lock().unparsable_items();
        for item in items {
            self.write_items(item / self.sim.scenario.workload.items_per_key, vec![item]).await;
        }
    }

    /// Writes one item, or several under one key together.
    pub async fn write(&mut self) {
        let plan = self.sim.scenario.workload.clone();
        let key = u32::try_from(self.rng.below(u64::from(plan.keys))).unwrap_or_default();
        let first = key * plan.items_per_key;
        let together = plan.items_per_key > 1 && self.rng.chance(plan.batch_per_mille);
        let items: Vec<u32> = if together {
            (first..first + plan.items_per_key).collect()
        } else {
            vec![first + u32::try_from(self.rng.below(u64::from(plan.items_per_key))).unwrap_or_default()]
        };
        self.write_items(key, items).await;
    }

    async fn write_items(&mut self, key: u32, items: Vec<u32>) {
        let mut writes = Vec::new();
        let mut changes = Vec::new();
        for item in items {
            let (write, change) = self.one(item, key);
            writes.push(write);
            changes.push(change);
        }
        let pk = PartitionKey::from(format!("k{key}"));
        let backend = Arc::clone(self.sim.stores.monitored.backend());
        let epk = backend.identity().partition_key.epk(&pk).expect("invariant: a text is a partition key");
        let batch = Batch { partition_key: Some(pk), writes, return_items: false };
        let written = backend.write(batch).await.expect("invariant: the writer writes what the store accepts");
        let lsn = written.first().map_or(0, |written| written.lsn.get());
        let now = self.sim.exec.now();
        let mut oracle = self.sim.oracle.lock();
        for change in changes {
            let mark = if change.killer {
                " killer"
            } else if change.poison {
                " poison"
            } else if change.unparsable {
                " unparsable"
            } else {
                ""
            };
            let verb = if change.deleted { "deletes" } else { "writes" };
            self.sim.log(format_args!("writer {verb} i{} of k{key} at {lsn}{mark}", change.item));
            let epk = epk.as_bytes().to_vec();
            oracle.wrote(WrittenChange { lsn, epk, written_at: now, ..change });
        }
        drop(oracle);
        self.sim.wake(Store::Feed, |range| range.contains(&epk));
    }

    fn one(&mut self, item: u32, key: u32) -> (Write, WrittenChange) {
        let plan = &self.sim.scenario.workload;
        let chaos = *self.sim.chaos.lock();
        self.numbers += 1;
        let existed = self.exists.get(item as usize).copied().unwrap_or_default();
        let deleted = existed && self.rng.chance(plan.delete_per_mille);
        let killer = chaos && !deleted && self.killers > 0 && self.numbers > 20 && self.rng.chance(50);
        let poison = chaos && !deleted && !killer && self.rng.chance(plan.poison_per_mille);
        let unparsable = chaos
            && !deleted
            && !killer
            && !poison
            && plan.unparsable_per_mille > 0
            && self.rng.chance(plan.unparsable_per_mille);
        self.killers -= u32::from(killer);
        if let Some(exists) = self.exists.get_mut(item as usize) {
            *exists = !deleted;
        }
        let id = item_id(item);
        let write = if deleted {
            Write::Delete { id: ItemId::new(id).expect("invariant: a good id"), if_match: None }
        } else {
            let n = if unparsable { json!("not a number") } else { json!(self.numbers) };
            let body = json!({"id": id, "pk": format!("k{key}"), "n": n});
            Write::Upsert { body: Bytes::from(body.to_string()), if_match: None }
        };
        if unparsable {
            self.sim.cover(Sometimes::Unparsable);
        }
        let number = self.numbers;
        let change =
            WrittenChange { number, item, key, deleted, poison, killer, unparsable, ..WrittenChange::default() };
        (write, change)
    }
}
