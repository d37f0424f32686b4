//! Offers: the throughput of databases and containers. It is stored, shown and changed but not enforced; the number of
//! ranges follows it, as in Cosmos DB.

use std::cmp::Reverse;

use changefeed_core::{
    ContainerInfo, DatabaseInfo, DatabaseSpec, Epk, ErrorKind, FeedRange, PhysicalRange, ResourceId, Result, Timestamp,
};
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::query;
use crate::{
    error::{ApiError, ApiResult},
    headers,
    state::ServerState,
    wire::{
        http::{Reply, Request},
        resources::THROUGHPUT,
    },
};

/// The throughput of a container by default.
const DEFAULT_THROUGHPUT: u64 = 400;

/// The throughput of one range: Cosmos DB gives a container one range for each.
const UNITS_PER_RANGE: u64 = 10_000;

/// The most ranges of a container.
const MOST_RANGES: usize = 1000;

/// Members that the store keeps without interpreting them.
type Members = Map<String, Value>;

/// Lists or queries all offers.
pub(crate) async fn list(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    if !matches!(request.method, Method::GET | Method::POST) {
        return Err(ApiError::method_not_allowed(&request.method));
    }
    let offers: Vec<Value> = all(state).await?.iter().map(Offer::shown).collect();
    query::resources(request, "", "Offers", &offers, state.clock.wall())
}

/// Shows or changes an offer.
pub(crate) async fn one(state: &ServerState, request: &Request<'_>, id: &str) -> ApiResult<Reply> {
    let mut found = all(state).await?.into_iter().filter(|offer| offer.id().eq_ignore_ascii_case(id));
    let offer = found.next().ok_or_else(|| ApiError::not_found(format!("there is no offer {id}")))?;
    match request.method {
        Method::GET => Ok(Reply::json(StatusCode::OK, &offer.shown())),
        Method::PUT => {
            let throughput = Some(offered(&request.body)?);
            let changed = match offer {
                Offer::Database(DatabaseInfo { name, mut extra, .. }) => {
                    set_throughput(&mut extra, throughput);
                    state.catalog.replace_database(DatabaseSpec { name, extra }).await.map(Offer::Database)
                }
                Offer::Container(database, ContainerInfo { mut spec, .. }) => {
                    if state.ranges.is_none() {
                        split_up_to(state, &database, &spec.name, ranges(throughput)).await?;
                    }
                    set_throughput(&mut spec.extra, throughput);
                    let replaced = state.catalog.replace_container(&database, spec).await;
                    replaced.map(|info| Offer::Container(database, info))
                }
            };
            let changed = changed.map_err(|error| ApiError::from_catalog(&error))?;
            Ok(Reply::json(StatusCode::OK, &changed.shown()))
        }
        _ => Err(ApiError::method_not_allowed(&request.method)),
    }
}

/// Lists all offers: of databases that were created with a throughput, and of containers that do not share it.
async fn all(state: &ServerState) -> Result<Vec<Offer>> {
    let mut all = Vec::new();
    for database in state.catalog.list_databases().await? {
        let containers = match state.catalog.list_containers(&database.name).await {
            Ok(containers) => containers,
            // Deleted in between.
            Err(error) if error.kind() == ErrorKind::DatabaseNotFound => continue,
            Err(error) => return Err(error),
        };
        let is_shared = has_throughput(&database.extra);
        let own = containers.into_iter().filter(|info| !is_shared || has_throughput(&info.spec.extra));
        let own: Vec<_> = own.map(|info| Offer::Container(database.name.clone(), info)).collect();
        all.extend(is_shared.then_some(Offer::Database(database)));
        all.extend(own);
    }
    Ok(all)
}

/// The resource of an offer: a database, or a container and the name of its database.
enum Offer {
    Database(DatabaseInfo),
    Container(String, ContainerInfo),
}

impl Offer {
    fn id(&self) -> String {
        let (Self::Database(DatabaseInfo { rid, .. }) | Self::Container(_, ContainerInfo { rid, .. })) = self;
        id_of(*rid)
    }

    fn shown(&self) -> Value {
        match self {
            Self::Database(info) => shown(info.rid, info.timestamp, &info.extra),
            Self::Container(_, info) => shown(info.rid, info.timestamp, &info.spec.extra),
        }
    }
}

/// Parses the throughput that a database or container is created with.
pub(crate) fn requested(request: &Request<'_>) -> ApiResult<Option<Throughput>> {
    if let Some(settings) = request.text(&headers::AUTOPILOT)? {
        let settings: Value = serde_json::from_str(settings)
            .map_err(|error| ApiError::bad_request(format!("x-ms-cosmos-offer-autopilot-settings: {error}")))?;
        return Ok(settings.get("maxThroughput").and_then(Value::as_u64).map(Throughput::UpTo));
    }
    match request.text(&headers::OFFER_THROUGHPUT)? {
        None => Ok(None),
        Some(text) => text.parse().map(|units| Some(Throughput::Fixed(units))).map_err(|_| {
            ApiError::bad_request(format!("x-ms-offer-throughput is {text}: pass a number of request units"))
        }),
    }
}

/// Request units per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Throughput {
    /// Provisioned.
    Fixed(u64),
    /// Autoscale, up to this maximum.
    UpTo(u64),
}

/// Returns the number of ranges that Cosmos DB gives a container of this throughput.
pub(crate) fn ranges(throughput: Option<Throughput>) -> usize {
    let (Throughput::Fixed(units) | Throughput::UpTo(units)) =
        throughput.unwrap_or(Throughput::Fixed(DEFAULT_THROUGHPUT));
    usize::try_from(units.div_ceil(UNITS_PER_RANGE)).unwrap_or(MOST_RANGES).clamp(1, MOST_RANGES)
}

/// Splits the widest ranges of a container until it has this many. Ranges are not merged, as in Cosmos DB.
async fn split_up_to(state: &ServerState, database: &str, container: &str, wanted: usize) -> ApiResult<()> {
    let handle = state.containers.get(database, container).await?;
    let mut live = handle.fresh_ranges().await?;
    while live.len() < wanted {
        // Of equally wide ones the first.
        let widest = |range: &&PhysicalRange| (width(&range.range), Reverse(range.range.clone()));
        let Some(widest) = live.iter().max_by_key(widest) else { return Ok(()) };
        match state.catalog.split(database, container, &widest.id, None).await {
            // It was split or merged meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::RangeGone | ErrorKind::RangeNotFound) => {}
            other => drop(other.map_err(|error| ApiError::from_catalog(&error))?),
        }
        live = handle.fresh_ranges().await?;
    }
    Ok(())
}

/// Returns the width of a range, by the first bytes of its bounds.
fn width(range: &FeedRange) -> u64 {
    let first = |key: &Epk| {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(key.as_bytes()).for_each(|(byte, own)| *byte = *own);
        u64::from_be_bytes(bytes)
    };
    first(range.max_exclusive()).saturating_sub(first(range.min_inclusive()))
}

/// The throughput of a database or of a container.
fn shown(rid: ResourceId, timestamp: Timestamp, extra: &Members) -> Value {
    let kept = extra.get(THROUGHPUT);
    let throughput = kept.and_then(Value::as_u64).unwrap_or(DEFAULT_THROUGHPUT);
    let mut content = json!({ "offerThroughput": throughput, "offerIsRUPerMinuteThroughputEnabled": false });
    let most = kept.and_then(|kept| kept.get("max")).and_then(Value::as_u64);
    if let Some(most) = most {
        content["offerThroughput"] = (most / 10).into();
        content["offerAutopilotSettings"] = json!({ "maxThroughput": most });
    }
    let database = rid.database_part();
    let resource = if rid == database { format!("dbs/{database}/") } else { format!("dbs/{database}/colls/{rid}/") };
    let id = id_of(rid);
    let kind = if most.is_some() { "up-to" } else { "fixed" };
    json!({
        "resource": resource, "offerType": "Invalid", "offerVersion": "V2", "offerResourceId": rid.to_string(),
        "content": content,
        "id": id, "_rid": id, "_self": format!("offers/{id}/"),
        "_etag": format!("\"{id}-{kind}-{}\"", most.unwrap_or(throughput)),
        "_ts": timestamp.as_secs(),
    })
}

/// The id of the offer of a database or of a container.
fn id_of(rid: ResourceId) -> String {
    match rid.container_number() {
        Some(container) => format!("o{:x}-{container:x}", rid.database_number()),
        None => format!("o{:x}", rid.database_number()),
    }
}

/// Returns `true` if a throughput was set. A container without one shares that of its database.
fn has_throughput(extra: &Members) -> bool {
    extra.contains_key(THROUGHPUT)
}

/// Notes a throughput.
pub(crate) fn set_throughput(extra: &mut Members, throughput: Option<Throughput>) {
    let kept = match throughput {
        None => return,
        Some(Throughput::Fixed(units)) => units.into(),
        Some(Throughput::UpTo(most)) => json!({ "max": most }),
    };
    extra.insert(THROUGHPUT.to_owned(), kept);
}

/// Reads the throughput in the body of an offer.
fn offered(body: &[u8]) -> ApiResult<Throughput> {
    let offer: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body of an offer is a JSON object: {error}")))?;
    let number = |path: &str| offer.pointer(path).and_then(Value::as_u64).filter(|units| *units > 0);
    let fixed = number("/content/offerThroughput").map(Throughput::Fixed);
    number("/content/offerAutopilotSettings/maxThroughput")
        .map(Throughput::UpTo)
        .or(fixed)
        .ok_or_else(|| ApiError::bad_request("an offer needs content.offerThroughput, a positive number"))
}

/// Takes over the throughput that was noted before.
pub(crate) fn keep_throughput(extra: &mut Members, old: &Members) {
    if let Some(throughput) = old.get(THROUGHPUT) {
        extra.insert(THROUGHPUT.to_owned(), throughput.clone());
    }
}
