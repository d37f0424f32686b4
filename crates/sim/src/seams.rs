//! Bugs that a wrapper of the lease store can express: what hosts write, and what they read, is changed on the way.

use bytes::Bytes;
use changefeed_core::{Batch, Write};
use serde_json::{Value, json};

use crate::{planted::Seam, simulation::Simulation};

/// Changes a batch of lease writes.
pub fn on_write(sim: &Simulation, mut batch: Batch) -> Batch {
    if sim.has(Seam::LeaseWithoutIfMatch) {
        for write in &mut batch.writes {
            if let Write::Replace { if_match, .. } | Write::Delete { if_match, .. } = write {
                *if_match = None;
            }
        }
    }
    batch
}

/// Changes a lease document that a host reads.
pub fn on_read(sim: &Simulation, host: usize, body: &mut Bytes) {
    let Some(seam @ (Seam::PromiseIgnored | Seam::GenerationIgnored | Seam::PauseIgnored)) = sim.seam else { return };
    let Ok(mut document) = serde_json::from_slice::<Value>(body) else { return };
    let owner = document.get("Owner").cloned().unwrap_or_default();
    let Some(properties) = document.get_mut("properties").and_then(Value::as_object_mut) else { return };
    match seam {
        Seam::GenerationIgnored => drop(properties.remove("cf.generation")),
        Seam::PauseIgnored => drop(properties.remove("cf.paused")),
        // The host believes that every owner promised the host's own interval.
        _ if owner.is_string() => {
            let expiration = sim.scenario.timing(host).expiration;
            properties.insert("cf.owner".to_owned(), owner);
            properties.insert("cf.expiration".to_owned(), json!(expiration.to_string()));
        }
        _ => return,
    }
    *body = Bytes::from(document.to_string());
}
