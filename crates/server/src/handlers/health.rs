//! `/healthz` and `/readyz`: the condition of the store, without a key.

use hyper::StatusCode;
use serde_json::json;

use crate::{
    storage::{Health, Storage},
    wire::http::Reply,
};

pub(crate) const HEALTH_PATH: &str = "/healthz";

/// A server that accepts connections is ready as long as its store is.
pub(crate) const READY_PATH: &str = "/readyz";

/// Reports the condition of the store: 200 also while it is degraded but serves requests.
pub(crate) fn read(storage: Option<&dyn Storage>) -> Reply {
    let Health { stopped, mut problems } = storage.map(Storage::health).unwrap_or_default();
    let (status, word) = match (&stopped, problems.is_empty()) {
        (Some(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
        (None, false) => (StatusCode::OK, "degraded"),
        (None, true) => (StatusCode::OK, "ok"),
    };
    problems.extend(stopped);
    Reply::json(status, &json!({ "status": word, "problems": problems }))
}
