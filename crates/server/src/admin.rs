//! Calls of our own, under `/_changefeed/`: split, merge, throttle, faults, verify.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Epk, Error, PhysicalRange, RangeId};
use hyper::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    contract,
    exchange::{Reply, Request},
    faults::Fault,
    problem::{Answer, Problem},
    service::Service,
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
pub(crate) async fn call(service: &Service, request: &Request<'_>, name: &str) -> Answer<Reply> {
    if let Some(target) = changefeed_protocol::Target::parse(name) {
        let Service { catalog, containers, watches, .. } = service;
        return contract::call(contract::Parts { catalog, containers, watches }, request, &target).await;
    }
    match (name, &request.method) {
        ("split", &Method::POST) => split(service, parse(request)?).await,
        ("merge", &Method::POST) => merge(service, parse(request)?).await,
        ("throttle", &Method::POST) => throttle(service, &parse(request)?),
        ("faults", method) if service.faults_allowed => faults(service, request, method),
        ("faults", _) => {
            let message = "injecting faults is off: start the server with --allow-faults";
            Err(Problem::new(StatusCode::FORBIDDEN, message))
        }
        ("verify", &Method::POST) => verify(service).await,
        ("split" | "merge" | "throttle" | "verify", _) => Err(Problem::method_not_allowed("anything but POST")),
        _ => Err(contract::unknown()),
    }
}

fn parse<T: DeserializeOwned>(request: &Request<'_>) -> Answer<T> {
    serde_json::from_slice(&request.body)
        .map_err(|error| Problem::bad_request(format!("the body of this call: {error}")))
}

/// Database and container in `db/name`.
fn names(container: &str) -> Answer<(&str, &str)> {
    container
        .split_once('/')
        .filter(|(database, name)| !database.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| Problem::bad_request(format!("container {container:?} is not of the form database/container")))
}

async fn split(service: &Service, call: Split) -> Answer<Reply> {
    let (database, name) = names(&call.container)?;
    let split = service.catalog.split(database, name, &call.range, call.at).await;
    let children = split.map_err(|error| Problem::from_catalog(&error))?;
    refresh(service, database, name).await?;
    Ok(Reply::json(StatusCode::OK, &json!({ "ranges": children.iter().map(shown).collect::<Vec<_>>() })))
}

async fn merge(service: &Service, call: Merge) -> Answer<Reply> {
    let (database, name) = names(&call.container)?;
    let [a, b] = &call.ranges;
    let merged = service.catalog.merge(database, name, [a, b]).await.map_err(|error| Problem::from_catalog(&error))?;
    refresh(service, database, name).await?;
    Ok(Reply::json(StatusCode::OK, &json!({ "ranges": [shown(&merged)] })))
}

/// Lets the next answers name the new ranges.
async fn refresh(service: &Service, database: &str, name: &str) -> Result<(), Error> {
    service.containers.get(database, name).await?.fresh_ranges().await.map(drop)
}

fn shown(range: &PhysicalRange) -> Value {
    json!({
        "id": range.id.as_str(), "min": range.range.min_inclusive().to_string(),
        "max": range.range.max_exclusive().to_string(),
        "parents": range.parents.iter().map(RangeId::as_str).collect::<Vec<_>>(),
    })
}

fn throttle(service: &Service, call: &Throttle) -> Answer<Reply> {
    if let Some(container) = &call.container {
        names(container)?;
    }
    let seconds = Duration::try_from_secs_f64(call.seconds)
        .ok()
        .filter(|duration| duration.as_secs() <= 3600)
        .ok_or_else(|| Problem::bad_request("seconds must be between 0 and 3600"))?;
    let until = service.clock.wall().saturating_add(seconds);
    service.faults.throttle(call.container.clone(), until, Duration::from_millis(call.retry_after_ms));
    Ok(Reply::json(StatusCode::OK, &json!({ "throttledForSeconds": seconds.as_secs_f64() })))
}

fn faults(service: &Service, request: &Request<'_>, method: &Method) -> Answer<Reply> {
    match *method {
        Method::POST => {
            let fault: Fault = parse(request)?;
            let shown = json!(fault);
            service.faults.inject(fault).map_err(Problem::bad_request)?;
            Ok(Reply::json(StatusCode::OK, &shown))
        }
        Method::DELETE => {
            service.faults.clear();
            Ok(Reply::new(StatusCode::NO_CONTENT, ""))
        }
        _ => Err(Problem::method_not_allowed("anything but POST and DELETE")),
    }
}

async fn verify(service: &Service) -> Answer<Reply> {
    let (catalog, storage) = (Arc::clone(&service.catalog), service.storage.clone());
    let verify = move |_: &_| {
        let bytes = storage.map(|storage| storage.verify()).transpose()?;
        let findings = tokio::runtime::Handle::current().block_on(crate::verify::verify(&catalog))?;
        Ok::<_, Error>((findings, bytes))
    };
    let (findings, bytes) = service.workers.run(verify).await??;
    let mut found = json!(findings);
    if let (Some(bytes), Some(found)) = (bytes, found.as_object_mut()) {
        found.insert("bytes".to_owned(), bytes.into());
    }
    Ok(Reply::json(StatusCode::OK, &json!({ "ok": true, "found": found })))
}
