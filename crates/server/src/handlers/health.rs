//! `/healthz` and `/readyz`: the condition of the store, without a key.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    storage::{Health, Storage},
    wire::http::Reply,
};

pub(crate) const HEALTH_PATH: &str = "/healthz";

/// A server that accepts connections is ready as long as its store is.
pub(crate) const READY_PATH: &str = "/readyz";

/// Reports the condition of the store: 200 also while it is degraded but serves requests.
pub(crate) fn read(storage: Option<&dyn Storage>) -> Reply {
    let (has_stopped, body) = condition(storage);
    Reply::json(if has_stopped { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, &body)
}

/// The same for whoever asks what is wrong: this call succeeds however the store is, and its clients keep the answer.
pub(crate) fn report(storage: Option<&dyn Storage>) -> Reply {
    Reply::json(StatusCode::OK, &condition(storage).1)
}

/// Whether the store has stopped, and what is known of it.
fn condition(storage: Option<&dyn Storage>) -> (bool, Value) {
    let Health { stopped, mut problems } = storage.map(Storage::health).unwrap_or_default();
    let word = match (&stopped, problems.is_empty()) {
        (Some(_), _) => "stopped",
        (None, false) => "degraded",
        (None, true) => "ok",
    };
    let has_stopped = stopped.is_some();
    problems.extend(stopped);
    (has_stopped, json!({ "status": word, "problems": problems }))
}
