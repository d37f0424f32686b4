//! Calls of our own, under `/_changefeed/`: split, merge, throttle, faults, verify, backup.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Epk, Error, ErrorKind, PhysicalRange, RangeId};
use hyper::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{backup, contract};
use crate::{
    containers::verify,
    error::{ApiError, ApiResult, substatus},
    faults::Fault,
    state::ServerState,
    wire::http::{Reply, Request},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Split {
    container: String,
    range: RangeId,
    at: Option<Epk>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Merge {
    container: String,
    ranges: [RangeId; 2],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Throttle {
    container: Option<String>,
    seconds: f64,
    #[serde(default = "half_a_second")]
    retry_after_ms: u64,
}

fn half_a_second() -> u64 {
    500
}

/// Carries out a call of our own.
pub(crate) async fn call(state: &ServerState, request: &Request<'_>, name: &str) -> ApiResult<Reply> {
    if let Some(target) = changefeed_protocol::Target::parse(name) {
        let ServerState { catalog, containers, watches, .. } = state;
        return contract::call(contract::Parts { catalog, containers, watches }, request, &target).await;
    }
    match (name, &request.method) {
        ("health", &Method::GET) => Ok(super::health::report(state.storage.as_deref())),
        ("split", &Method::POST) => split(state, parse(request)?).await,
        ("merge", &Method::POST) => merge(state, parse(request)?).await,
        ("throttle", &Method::POST) => throttle(state, &parse(request)?),
        ("faults", method) if state.faults_allowed => faults(state, request, method),
        ("faults", _) => {
            let message = "injecting faults is off: start the server with --allow-faults";
            Err(ApiError::new(StatusCode::FORBIDDEN, message))
        }
        ("verify", &Method::POST) => verify(state).await,
        ("backup", &Method::POST) => backup::begin(state).await,
        ("backup-read", &Method::POST) => backup::read(state, request).await,
        ("backup-end", &Method::POST) => backup::end(state, request),
        ("split" | "merge" | "throttle" | "verify" | "backup" | "backup-read" | "backup-end", _) => {
            Err(ApiError::method_not_allowed(&request.method))
        }
        _ => Err(contract::unknown()),
    }
}

fn parse<T: DeserializeOwned>(request: &Request<'_>) -> ApiResult<T> {
    serde_json::from_slice(&request.body)
        .map_err(|error| ApiError::bad_request(format!("the body of this call: {error}")))
}

/// Database and container in `db/name`.
fn names(container: &str) -> ApiResult<(&str, &str)> {
    container
        .split_once('/')
        .filter(|(database, name)| !database.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| ApiError::bad_request(format!("container {container:?} is not of the form database/container")))
}

async fn split(state: &ServerState, call: Split) -> ApiResult<Reply> {
    let (database, name) = names(&call.container)?;
    let split = state.catalog.split(database, name, &call.range, call.at).await;
    let children = split.map_err(|error| ApiError::from_catalog(&error))?;
    refresh(state, database, name).await?;
    Ok(Reply::json(StatusCode::OK, &json!({ "ranges": children.iter().map(shown).collect::<Vec<_>>() })))
}

async fn merge(state: &ServerState, call: Merge) -> ApiResult<Reply> {
    let (database, name) = names(&call.container)?;
    let [a, b] = &call.ranges;
    let merged = state.catalog.merge(database, name, [a, b]).await.map_err(|error| ApiError::from_catalog(&error))?;
    refresh(state, database, name).await?;
    Ok(Reply::json(StatusCode::OK, &json!({ "ranges": [shown(&merged)] })))
}

/// Refreshes the cached ranges.
async fn refresh(state: &ServerState, database: &str, name: &str) -> Result<(), Error> {
    state.containers.get(database, name).await?.fresh_ranges().await.map(drop)
}

fn shown(range: &PhysicalRange) -> Value {
    json!({
        "id": range.id.as_str(), "min": range.range.min_inclusive().to_string(),
        "max": range.range.max_exclusive().to_string(),
        "parents": range.parents.iter().map(RangeId::as_str).collect::<Vec<_>>(),
    })
}

fn throttle(state: &ServerState, call: &Throttle) -> ApiResult<Reply> {
    if let Some(container) = &call.container {
        names(container)?;
    }
    let seconds = Duration::try_from_secs_f64(call.seconds)
        .ok()
        .filter(|duration| duration.as_secs() <= 3600)
        .ok_or_else(|| ApiError::bad_request("seconds must be between 0 and 3600"))?;
    let until = state.clock.wall().saturating_add(seconds);
    state.faults.throttle(call.container.clone(), until, Duration::from_millis(call.retry_after_ms));
    Ok(Reply::json(StatusCode::OK, &json!({ "throttledForSeconds": seconds.as_secs_f64() })))
}

fn faults(state: &ServerState, request: &Request<'_>, method: &Method) -> ApiResult<Reply> {
    match *method {
        Method::POST => {
            let fault: Fault = parse(request)?;
            let shown = json!(fault);
            state.faults.inject(fault).map_err(ApiError::bad_request)?;
            Ok(Reply::json(StatusCode::OK, &shown))
        }
        Method::DELETE => {
            state.faults.clear();
            Ok(Reply::new(StatusCode::NO_CONTENT, ""))
        }
        _ => Err(ApiError::method_not_allowed(method)),
    }
}

async fn verify(state: &ServerState) -> ApiResult<Reply> {
    let (catalog, storage) = (Arc::clone(&state.catalog), state.storage.clone());
    let check = move |_: &_| {
        let bytes = storage.map(|storage| storage.verify()).transpose()?;
        let findings = tokio::runtime::Handle::current().block_on(verify::verify(&catalog))?;
        Ok::<_, Error>((findings, bytes))
    };
    let (findings, bytes) = state.workers.run(check).await?.map_err(|error| match error.kind() {
        ErrorKind::Corrupt => ApiError::from(error).substatus(substatus::DAMAGED),
        _ => error.into(),
    })?;
    let mut found = json!(findings);
    if let (Some(bytes), Some(found)) = (bytes, found.as_object_mut()) {
        found.insert("bytes".to_owned(), bytes.into());
    }
    Ok(Reply::json(StatusCode::OK, &json!({ "ok": true, "found": found })))
}
