//! The account, its databases, containers and partition key ranges.

use std::time::Duration;

use changefeed_core::{
    ContainerIdentity, ContainerInfo, ContainerSpec, DatabaseInfo, PhysicalRange, RangeId, ResourceId, TimeToLive,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    containers::{
        handle::ContainerHandle,
        indexing,
        previous_images::{PREVIOUS_IMAGE_POLICY, PreviousImages},
        unique_keys::{UNIQUE_KEY_POLICY, UniqueKeys},
    },
    error::{ApiError, ApiResult},
};

/// The member of a database or container that stores its throughput; never shown.
pub(crate) const THROUGHPUT: &str = "_changefeed_throughput";

/// Marks a retention that is the server's default; never shown.
const DEFAULT_RETENTION: &str = "_changefeed_default_retention";

/// The member of a container that names its store for hosts that use an SDK.
const STORE: &str = "_changefeed";

/// Members of a container's JSON that the server makes itself.
const OWN_MEMBERS: [&str; 16] = [
    "id",
    "partitionKey",
    "defaultTtl",
    "changeFeedPolicy",
    "_rid",
    "_ts",
    "_self",
    "_etag",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    THROUGHPUT,
    DEFAULT_RETENTION,
    STORE,
];

/// Features and limits of queries, as JSON text within JSON, for clients that plan queries themselves.
const QUERY_ENGINE: &str = r#"{"maxSqlQueryInputLength":524288,"maxJoinsPerSqlQuery":10,"maxLogicalAndPerSqlQuery":2000,"maxLogicalOrPerSqlQuery":2000,"maxUdfRefPerSqlQuery":0,"maxInExpressionItemsCount":16000,"queryMaxInMemorySortDocumentCount":500,"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"sqlAllowLike":true,"sqlAllowGroupByClause":true,"maxSpatialQueryCells":12,"spatialMaxGeometryPointCount":256,"sqlDisableOptimizationFlags":0,"sqlAllowTop":true,"enableSpatialIndexing":false}"#;

/// Headers about storage in the response about the account, as in Cosmos DB.
pub(crate) const STORAGE_HEADERS: [(&str, &str); 5] = [
    ("x-ms-max-media-storage-usage-mb", "10240"),
    ("x-ms-media-storage-usage-mb", "0"),
    ("x-ms-databaseaccount-consumed-mb", "0"),
    ("x-ms-databaseaccount-reserved-mb", "0"),
    ("x-ms-databaseaccount-provisioned-mb", "0"),
];

/// The account document; clients send all later requests to the endpoint it names.
pub(crate) fn account(id: &str, endpoint: &str) -> Value {
    let location = json!([{ "name": "local", "databaseAccountEndpoint": format!("{endpoint}/") }]);
    json!({
        "_self": "", "id": id, "_rid": format!("{id}.sql.cosmos.azure.com"),
        "media": "//media/", "addresses": "//addresses/", "_dbs": "//dbs/",
        "writableLocations": location, "readableLocations": location,
        "enableMultipleWriteLocations": false, "continuousBackupEnabled": false,
        "enableNRegionSynchronousCommit": false, "enablePerPartitionFailoverBehavior": false,
        "userReplicationPolicy": { "asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4 },
        "userConsistencyPolicy": { "defaultConsistencyLevel": "Session" },
        "systemReplicationPolicy": { "minReplicaSetSize": 1, "maxReplicasetSize": 4 },
        "readPolicy": { "primaryReadCoefficient": 1, "secondaryReadCoefficient": 1 },
        "queryEngineConfiguration": QUERY_ENGINE,
    })
}

pub(crate) fn database_etag(info: &DatabaseInfo) -> String {
    format!("\"{:x}-{:x}\"", info.rid.database_number(), info.timestamp.as_millis())
}

pub(crate) fn database(info: &DatabaseInfo) -> Value {
    json!({
        "id": info.name, "_rid": info.rid.to_string(), "_self": format!("dbs/{}/", info.rid),
        "_etag": database_etag(info), "_colls": "colls/", "_users": "users/", "_ts": info.timestamp.as_secs(),
    })
}

/// The version of a container's settings. The time alone would not do: two changes can fall into one millisecond.
pub(crate) fn container_etag(info: &ContainerInfo) -> String {
    let ContainerSpec { time_to_live, all_versions_retention, extra, .. } = &info.spec;
    let settings = json!([format!("{time_to_live:?}"), all_versions_retention.map(|kept| kept.as_secs()), extra]);
    let digest = Sha256::digest(settings.to_string());
    let digest = digest.iter().take(4).fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
    let number = info.rid.container_number().unwrap_or(0);
    format!("\"{number:x}-{:x}-{digest:x}\"", info.timestamp.as_millis())
}

pub(crate) fn container(info: &ContainerInfo) -> Value {
    let ContainerInfo { rid, timestamp, spec } = info;
    let mut members = Map::new();
    members.insert("id".to_owned(), spec.name.as_str().into());
    members.insert("indexingPolicy".to_owned(), indexing::default_policy());
    members.insert("partitionKey".to_owned(), serde_json::to_value(&spec.partition_key).unwrap_or_default());
    members.insert(
        "conflictResolutionPolicy".to_owned(),
        json!({"mode": "LastWriterWins", "conflictResolutionPath": "/_ts", "conflictResolutionProcedure": ""}),
    );
    members.insert("geospatialConfig".to_owned(), json!({"type": "Geography"}));
    let is_shown = |name: &String| name != THROUGHPUT && name != DEFAULT_RETENTION;
    for (name, value) in spec.extra.iter().filter(|(name, _)| is_shown(name)) {
        members.insert(name.clone(), value.clone());
    }
    match spec.time_to_live {
        TimeToLive::Off => {}
        TimeToLive::ItemsOnly => drop(members.insert("defaultTtl".to_owned(), json!(-1))),
        TimeToLive::Seconds(seconds) => drop(members.insert("defaultTtl".to_owned(), json!(seconds))),
    }
    if let Some(retention) = spec.all_versions_retention.filter(|_| !spec.extra.contains_key(DEFAULT_RETENTION)) {
        let policy = json!({ "retentionDuration": retention.as_secs() / 60 });
        members.insert("changeFeedPolicy".to_owned(), policy);
    }
    let link = format!("dbs/{}/colls/{rid}/", rid.database_part());
    for (name, value) in [
        ("_rid", json!(rid.to_string())),
        ("_ts", json!(timestamp.as_secs())),
        ("_self", json!(link)),
        ("_etag", json!(container_etag(info))),
        ("_docs", json!("docs/")),
        ("_sprocs", json!("sprocs/")),
        ("_triggers", json!("triggers/")),
        ("_udfs", json!("udfs/")),
        ("_conflicts", json!("conflicts/")),
    ] {
        members.insert(name.to_owned(), value);
    }
    Value::Object(members)
}

/// A container, with the identity of its store and the name of the account. With them hosts that use an SDK share leases
/// with those that use our own client, under whatever name they reach the server.
pub(crate) fn container_with_store(info: &ContainerInfo, identity: &ContainerIdentity) -> Value {
    let mut container = container(info);
    container[STORE] = json!({ "storeId": identity.store, "accountHost": identity.account_host });
    container
}

/// Reads the JSON of a container.
///
/// A container without a retention of its own gets that of the account.
pub(crate) fn container_spec(body: &[u8], ranges: usize, retention: Option<Duration>) -> ApiResult<ContainerSpec> {
    let bad = |message: &str| ApiError::bad_request(message);
    let mut members: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body of a container is a JSON object: {error}")))?;
    let name = resource_name(members.get("id"))?;
    let definition = members.remove("partitionKey").ok_or_else(|| {
        bad("a container needs a partitionKey, such as {\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}")
    })?;
    let definition = serde_json::from_value(definition)
        .map_err(|error| ApiError::bad_request(format!("the partitionKey of the container: {error}")))?;
    let mut spec = ContainerSpec::new(name, definition);
    spec.ranges = ranges;
    spec.time_to_live = match members.get("defaultTtl") {
        None | Some(Value::Null) => TimeToLive::Off,
        Some(value) => match value.as_i64() {
            Some(-1) => TimeToLive::ItemsOnly,
            Some(seconds) if seconds > 0 => TimeToLive::Seconds(u32::try_from(seconds).unwrap_or(u32::MAX)),
            _ => return Err(bad("defaultTtl must be -1 or a positive number of seconds")),
        },
    };
    spec.all_versions_retention =
        match members.get("changeFeedPolicy").and_then(|policy| policy.get("retentionDuration")) {
            None | Some(Value::Null) => None,
            Some(minutes) => match minutes.as_u64() {
                Some(0) => None,
                Some(minutes) => Some(Duration::from_secs(minutes.saturating_mul(60))),
                None => return Err(bad("changeFeedPolicy.retentionDuration must be a number of minutes")),
            },
        };
    members.retain(|name, _| !OWN_MEMBERS.contains(&name.as_str()));
    match members.get_mut("indexingPolicy") {
        Some(Value::Null) => drop(members.remove("indexingPolicy")),
        Some(policy) => *policy = indexing::completed(policy)?,
        None => {}
    }
    UniqueKeys::parse(members.get(UNIQUE_KEY_POLICY))?;
    PreviousImages::parse(members.get(PREVIOUS_IMAGE_POLICY))?;
    spec.extra = members;
    if spec.all_versions_retention.is_none() && retention.is_some() {
        spec.all_versions_retention = retention;
        spec.extra.insert(DEFAULT_RETENTION.to_owned(), true.into());
    }
    Ok(spec)
}

/// Settings of a container that are kept and shown, but change nothing here although they would in the service.
pub(crate) fn not_acted_on(spec: &ContainerSpec) -> Vec<&str> {
    let is_empty = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.values().all(|value| value.as_array().is_some_and(Vec::is_empty)),
        other => other.is_null(),
    };
    let is_usual = |name: &str, value: &Value| match name {
        THROUGHPUT | DEFAULT_RETENTION | UNIQUE_KEY_POLICY | PREVIOUS_IMAGE_POLICY | "indexingPolicy" => true,
        "geospatialConfig" => value["type"] == "Geography",
        "conflictResolutionPolicy" => {
            value["mode"].as_str().is_none_or(|mode| mode.eq_ignore_ascii_case("LastWriterWins"))
        }
        _ => is_empty(value),
    };
    let unusual = spec.extra.iter().filter(|(name, value)| !is_usual(name, value));
    unusual.map(|(name, _)| name.as_str()).collect()
}

/// The id of a database or container to be made.
pub(crate) fn resource_name(id: Option<&Value>) -> ApiResult<String> {
    let id =
        id.and_then(Value::as_str).ok_or_else(|| ApiError::bad_request("the body needs an id that is a string"))?;
    if id.ends_with(' ') {
        return Err(ApiError::bad_request("an id must not end with a space"));
    }
    changefeed_core::check_name(id)?;
    Ok(id.to_owned())
}

/// The version of the set of ranges: changes with every split and merge.
pub(crate) fn ranges_etag(handle: &ContainerHandle, ranges: &[PhysicalRange]) -> String {
    let newest = ranges.iter().filter_map(|range| range.id.as_str().parse::<u64>().ok()).max().unwrap_or(0);
    let number = handle.identity().container.container_number().unwrap_or(0);
    format!("\"{number:x}-{newest}-{}\"", ranges.len())
}

/// The ranges, each with its newest LSN.
pub(crate) fn ranges(handle: &ContainerHandle, ranges: &[PhysicalRange], newest: &[(&PhysicalRange, u64)]) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "there are few ranges")]
    let share = 1.0 / ranges.len().max(1) as f64;
    let etag = ranges_etag(handle, ranges);
    let shown = newest.iter().map(|(range, newest)| {
        let rid = range_rid(handle, &range.id);
        json!({
            "id": range.id.as_str(),
            "minInclusive": range.range.min_inclusive().to_string(),
            "maxExclusive": range.range.max_exclusive().to_string(),
            "parents": range.parents.iter().map(RangeId::as_str).collect::<Vec<_>>(),
            "status": "online", "ridPrefix": range.id.as_str().parse::<u64>().unwrap_or(0),
            "throughputFraction": share, "ownedArchivalPKRangeIds": [],
            "_rid": rid, "_self": format!("{}pkranges/{rid}/", handle.link), "_etag": etag,
            "_ts": 0, "_lsn": newest,
        })
    });
    let shown: Vec<Value> = shown.collect();
    let count = shown.len();
    json!({ "_rid": handle.rid, "PartitionKeyRanges": shown, "_count": count })
}

fn range_rid(handle: &ContainerHandle, id: &RangeId) -> String {
    let container = handle.identity().container;
    let number = id.as_str().parse().unwrap_or(0);
    let rid =
        ResourceId::partition_key_range(container.database_number(), container.container_number().unwrap_or(0), number);
    rid.map(|rid| rid.to_string()).unwrap_or_default()
}
