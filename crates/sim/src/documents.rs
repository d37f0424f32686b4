//! Lease documents edited by hand: deleted, damaged, duplicated, or rewritten to the form of an old .NET fleet.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{Batch, Database, ErrorKind, Item, ItemId, PartitionKey, Write};
use serde_json::{Value, json};

use crate::{
    checks::{Broken, lease::Writer, lease_checker::LeaseChecker},
    commit::{Server, lease_in},
    coverage::Sometimes,
    exec::ENVIRONMENT,
    host::PROCESSOR,
    oracle::Oracle,
    scenario::{Damage, Store},
    simulation::Simulation,
};

/// Deletes one of the leases.
pub async fn delete(sim: &Arc<Simulation>, pick: u64) {
    let Some(document) = picked(sim, pick).await else { return };
    let Some(id) = document.get("id").and_then(Value::as_str).and_then(|id| ItemId::new(id).ok()) else { return };
    let write = Write::Delete { id, if_match: None };
    match Server::by_hand(sim).commit(Batch::single(Some(partition_key(sim, &document)), write), None).await {
        Ok(_) => sim.cover(Sometimes::DocumentDeleted),
        Err(error) if error.kind() == ErrorKind::ItemNotFound => {}
        Err(error) => sim.log(format_args!("an edit failed: {error:?}")),
    }
}

/// Deletes the lease container, and creates it again after `micros`.
pub async fn recreate(sim: &Arc<Simulation>, micros: u64) {
    let catalog = &sim.stores.catalog;
    let deleted = catalog.delete_container("sim", "leases").await;
    sim.log(format_args!("the lease container is deleted: {deleted:?}"));
    sim.cover(Sometimes::LeasesRecreated);
    let deleted = {
        let mut oracle = sim.oracle.lock();
        all_deleted(&mut sim.leases.lock(), sim.exec.now(), &mut oracle)
    };
    if let Err((check, what)) = deleted {
        return sim.violated(check, what);
    }
    sim.exec.sleep(Duration::from_micros(micros)).await;
    let leases = Database::new(Arc::clone(catalog), "sim").container("leases");
    let leases = if sim.scenario.leases_by_partition_key { leases.partition_key("/partitionKey") } else { leases };
    match leases.create().await {
        Ok(created) => *sim.stores.leases.lock() = created,
        Err(error) => sim.log(format_args!("the lease container is not created: {error:?}")),
    }
    sim.wake(Store::Leases, |_| true);
}

/// No lease is left.
fn all_deleted(leases: &mut LeaseChecker, now: u64, oracle: &mut Oracle) -> Result<(), Broken> {
    let writer = Writer { process: ENVIRONMENT, now, sent: now };
    let keys: Vec<_> = leases.leases().map(|lease| lease.document.key.clone()).collect();
    keys.iter().try_for_each(|key| leases.deleted(key, writer, oracle))
}

/// Damages one of the leases, and restores it after `micros`.
pub async fn damage(sim: &Arc<Simulation>, pick: u64, damage: Damage, micros: u64) {
    let Some(document) = picked(sim, pick).await else { return };
    let mut damaged = document.clone();
    match damage {
        Damage::Unreadable => damaged["LeaseToken"] = json!(5),
        Damage::NoProperties => damaged["properties"] = json!({}),
        Damage::NoFeedRange => {
            damaged.as_object_mut().map(|members| members.remove("FeedRange"));
        }
        Damage::UnknownOwner => damaged["Owner"] = json!("somebody"),
        Damage::BadNumbers => {
            damaged["properties"]["cf.epoch"] = json!("many");
            damaged["properties"]["cf.expiration"] = json!("never");
            damaged["properties"]["cf.attempts"] = json!("?");
        }
    }
    sim.cover(Sometimes::DamagedDocument);
    write(sim, &damaged).await;
    if damage != Damage::Unreadable {
        return;
    }
    sim.exec.sleep(Duration::from_micros(micros)).await;
    // Only if it is still as it was left.
    let same = |other: &Value| other["id"] == damaged["id"] && other["LeaseToken"] == damaged["LeaseToken"];
    if all(sim).await.iter().any(same) {
        let mut restored = document;
        restored["Owner"] = Value::Null;
        write(sim, &restored).await;
    }
}

/// Writes a second document for the token of one of the leases, as .NET 3.20 to 3.58 did in containers partitioned by
/// `/partitionKey`.
pub async fn duplicate(sim: &Arc<Simulation>, pick: u64) {
    let Some(mut document) = picked(sim, pick).await else { return };
    document["Owner"] = Value::Null;
    if sim.scenario.leases_by_partition_key {
        document["partitionKey"] = json!(format!("guid-{pick}"));
    } else {
        document["id"] = json!(format!("{}~{pick}", document["id"].as_str().unwrap_or_default()));
    }
    sim.cover(Sometimes::DuplicateDocument);
    write(sim, &document).await;
}

/// Rewrites all documents as an old .NET fleet would have left them: no ranges, no state of ours, and a checkpoint in
/// every lease.
pub async fn make_legacy(sim: &Arc<Simulation>) {
    for mut document in all(sim).await {
        let Some(members) = document.as_object_mut() else { continue };
        members.remove("properties");
        if let Some(token) = members.get("LeaseToken").cloned() {
            let start = start_of(sim, token.as_str().unwrap_or_default());
            members.remove("FeedRange");
            members.remove("Mode");
            members.insert("PartitionId".to_owned(), token);
            members.insert("properties".to_owned(), json!({}));
            members.insert("Owner".to_owned(), Value::Null);
            if members.get("ContinuationToken").is_none_or(Value::is_null) {
                members.insert("ContinuationToken".to_owned(), json!(format!("\"{start}\"")));
            }
        }
        write(sim, &document).await;
    }
    sim.cover(Sometimes::Legacy);
}

/// Writes the documents that the bootstrap of a .NET host leaves, for all ranges there are.
pub async fn bootstrap_as_dotnet(sim: &Arc<Simulation>) {
    let identity = sim.stores.monitored.identity();
    let prefix = format!("{PROCESSOR}{}_{}_{}", identity.account_host, identity.database, identity.container);
    let mode = if sim.scenario.processor.all_versions { "Full-Fidelity Feed" } else { "Incremental Feed" };
    let new = |id: String| match sim.scenario.leases_by_partition_key {
        true => json!({"id": id, "partitionKey": id}),
        false => json!({"id": id}),
    };
    for physical in sim.stores.monitored.feed_ranges().await.unwrap_or_default() {
        let (min, max) = (physical.range.min_inclusive().to_string(), physical.range.max_exclusive().to_string());
        let mut lease = new(format!("{prefix}..{}", physical.id));
        let members = json!({
            "version": 0, "_etag": null, "LeaseToken": physical.id.as_str(),
            "FeedRange": {"Range": {"min": min, "max": max}}, "Owner": null, "ContinuationToken": null,
            "properties": {}, "timestamp": null, "_ts": 0, "Mode": mode,
        });
        if let (Some(lease), Value::Object(members)) = (lease.as_object_mut(), members) {
            lease.extend(members);
        }
        write(sim, &lease).await;
    }
    write(sim, &new(format!("{prefix}.info"))).await;
    sim.cover(Sometimes::DotNetBootstrap);
}

/// Where the lease with this token stood at the first start.
fn start_of(sim: &Simulation, token: &str) -> u64 {
    let range = sim.leases.lock().by_token(token).and_then(|lease| lease.range.clone());
    range.and_then(|range| sim.oracle.lock().start_position(&range)).unwrap_or_default()
}

/// An operator does what hosts ask for: writes the range into old leases that have none.
pub async fn write_ranges(sim: &Arc<Simulation>) {
    for mut document in all(sim).await {
        // A tombstone has its token in `PartitionId`.
        let token =
            document.get("LeaseToken").or(document.get("PartitionId")).and_then(Value::as_str).map(str::to_owned);
        let (Some(token), None) = (token, document.get("FeedRange")) else { continue };
        let range = sim.leases.lock().by_token(&token).and_then(|lease| lease.range.as_ref().map(ToString::to_string));
        if let (Some((min, max)), Some(members)) =
            (range.as_deref().and_then(|range| range.split_once('-')), document.as_object_mut())
        {
            members.insert("FeedRange".to_owned(), json!({"Range": {"min": min, "max": max}}));
            write(sim, &document).await;
        }
    }
}

async fn all(sim: &Arc<Simulation>) -> Vec<Value> {
    let leases = sim.stores.leases.lock().clone();
    let items = leases.list(PROCESSOR).await.unwrap_or_default();
    items.iter().filter_map(|item: &Item| serde_json::from_slice(&item.body).ok()).collect()
}

async fn picked(sim: &Arc<Simulation>, pick: u64) -> Option<Value> {
    let key = {
        let leases = sim.leases.lock();
        if !leases.tiling.complete {
            return None;
        }
        leases.pick(pick)?.document.key.clone()
    };
    let same = |document: &Value| {
        let partition_key = document.get("partitionKey").and_then(Value::as_str);
        document["id"] == json!(key.0) && partition_key == key.1.as_deref()
    };
    all(sim).await.into_iter().find(same)
}

fn partition_key(sim: &Simulation, document: &Value) -> PartitionKey {
    let member = if sim.scenario.leases_by_partition_key { "partitionKey" } else { "id" };
    PartitionKey::from(document.get(member).and_then(Value::as_str).unwrap_or_default())
}

async fn write(sim: &Arc<Simulation>, document: &Value) {
    let write = Write::Upsert { body: Bytes::from(document.to_string()), if_match: None };
    let batch = Batch::single(Some(partition_key(sim, document)), write);
    let lease = lease_in(Store::Leases, &batch);
    if let Err(error) = Server::by_hand(sim).commit(batch, lease).await {
        sim.log(format_args!("an edit failed: {error:?}"));
    }
}
