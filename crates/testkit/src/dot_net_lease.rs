//! Checks that a lease document is one that the .NET SDK (version 3) reads and writes. Written from the description of its
//! documents alone, and shares no code with the processor: a mistake there must not hide itself here.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The members that the SDK has in its lease class.
const MEMBERS: [&str; 13] = [
    "id",
    "partitionKey",
    "version",
    "_etag",
    "LeaseToken",
    "PartitionId",
    "FeedRange",
    "Owner",
    "ContinuationToken",
    "properties",
    "timestamp",
    "_ts",
    "Mode",
];

/// What the service adds; the SDK neither reads nor keeps it.
const OF_THE_SERVICE: [&str; 4] = ["_rid", "_self", "_attachments", "_lsn"];

/// How many digits of a second .NET keeps.
const FRACTION_DIGITS: usize = 7;

/// Checks a stored lease document.
///
/// # Errors
/// What a .NET host would stumble over, or silently drop.
pub fn check(body: &[u8]) -> Result<(), String> {
    let document: Value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    let lease = document.as_object().ok_or("not an object")?;
    members(lease)?;
    let id = text(lease, "id")?;
    // A document of SDK version 2 has only the other; version 3 takes it for the token and adds its own.
    let of_sdk_v2 = !lease.contains_key("LeaseToken") && lease.contains_key("PartitionId");
    let token = text(lease, if of_sdk_v2 { "PartitionId" } else { "LeaseToken" })?;
    if token.is_empty() {
        return Err("LeaseToken is empty".into());
    }
    let ends_with_token = id.rsplit_once("..").is_some_and(|(_, end)| end == token);
    if !ends_with_token && id.chars().count() < 255 {
        return Err(format!("id {id:?} does not end with ..{token}"));
    }
    let version = lease.get("version").and_then(Value::as_u64).ok_or("version is not a number")?;
    let range = lease.get("FeedRange").map(feed_range).transpose()?;
    match (version, &range) {
        (0, _) => {}
        (1, Some((min, max))) if token == format!("{min}-{max}") => {}
        (1, _) => return Err(format!("a lease of version 1 has the token min-max of its FeedRange, not {token:?}")),
        (other, _) => return Err(format!("version {other} is not known")),
    }
    if lease.get("PartitionId").is_some_and(|id| version != 0 || id.as_str() != Some(token)) {
        return Err("PartitionId is for version 0 and equals LeaseToken".into());
    }
    text_or_null(lease, "Owner", "")?;
    text_or_null(lease, "ContinuationToken", "an empty continuation")?;
    text_or_null(lease, "_etag", "")?;
    if lease.get("partitionKey").is_some_and(|key| !key.is_string()) {
        return Err("partitionKey is not a string".into());
    }
    if lease.get("_ts").and_then(Value::as_i64).is_none() {
        return Err("_ts is not a whole number".into());
    }
    properties(lease)?;
    timestamp(lease)?;
    match lease.get("Mode").map(Value::as_str) {
        None | Some(Some("Incremental Feed" | "Full-Fidelity Feed")) => Ok(()),
        Some(other) => Err(format!("Mode is {other:?}")),
    }
}

/// Refuses members that the SDK would drop with its next write, or take for another one.
fn members(lease: &Map<String, Value>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in lease.keys() {
        if !seen.insert(name.to_lowercase()) {
            return Err(format!("{name} is there twice, apart from case"));
        }
        if !MEMBERS.contains(&name.as_str()) && !OF_THE_SERVICE.contains(&name.as_str()) {
            return Err(format!("{name} would be dropped by the next write of a .NET host"));
        }
    }
    Ok(())
}

fn text<'a>(lease: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    lease.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name} is not a string"))
}

fn text_or_null(lease: &Map<String, Value>, name: &str, not_empty: &str) -> Result<(), String> {
    match lease.get(name) {
        Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if text.is_empty() && !not_empty.is_empty() => Err(format!("{name} is {not_empty}")),
        Some(Value::String(_)) => Ok(()),
        Some(_) => Err(format!("{name} is neither a string nor null")),
        None => Err(format!("{name} is missing")),
    }
}

/// The bounds; only the form that the SDK can split.
fn feed_range(value: &Value) -> Result<(String, String), String> {
    let range = value.get("Range").ok_or("FeedRange is not of the form {\"Range\":{…}}")?;
    let bound = |name: &str| range.get(name).and_then(Value::as_str).ok_or_else(|| format!("FeedRange has no {name}"));
    let (min, max) = (bound("min")?, bound("max")?);
    for text in [min, max] {
        let hexadecimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
        if !hexadecimal || text.len() % 2 != 0 {
            return Err(format!("{text:?} is not a bound in upper-case hexadecimal"));
        }
    }
    if min >= max || max > "FF" {
        return Err(format!("FeedRange from {min:?} to {max:?} is empty or too long"));
    }
    Ok((min.to_owned(), max.to_owned()))
}

/// One value that is no string makes the whole listing fail on .NET hosts.
fn properties(lease: &Map<String, Value>) -> Result<(), String> {
    let properties = lease.get("properties").and_then(Value::as_object).ok_or("properties is not an object")?;
    match properties.iter().find(|(_, value)| !value.is_string()) {
        Some((name, _)) => Err(format!("property {name} is not a string")),
        None => Ok(()),
    }
}

/// UTC with `Z`, at most seven digits of a second.
fn timestamp(lease: &Map<String, Value>) -> Result<(), String> {
    let text = match lease.get("timestamp") {
        Some(Value::Null) => return Ok(()),
        Some(Value::String(text)) => text,
        _ => return Err("timestamp is neither a string nor null".into()),
    };
    let shape =
        |text: &str| -> String { text.chars().map(|char| if char.is_ascii_digit() { '0' } else { char }).collect() };
    let whole = text.strip_suffix('Z').ok_or_else(|| format!("timestamp {text:?} does not end with Z"))?;
    let (seconds, fraction) = whole.split_once('.').unwrap_or((whole, ""));
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && fraction.len() <= FRACTION_DIGITS;
    match shape(seconds) == "0000-00-00T00:00:00" && digits {
        true => Ok(()),
        false => Err(format!("timestamp {text:?} is not of the form 2026-01-02T03:04:05.6789012Z")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created() -> Value {
        json!({"id": "ordersacct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=..0", "version": 0, "_etag": null,
            "LeaseToken": "0", "FeedRange": {"Range": {"min": "", "max": "05C1DFFFFFFFFC"}}, "Owner": null,
            "ContinuationToken": null, "properties": {}, "timestamp": null, "_ts": 0, "Mode": "Incremental Feed"})
    }

    fn with(name: &str, value: Value) -> Result<(), String> {
        let mut lease = created();
        lease[name] = value;
        check(lease.to_string().as_bytes())
    }

    #[test]
    fn documents_of_the_sdk_are_good() {
        check(created().to_string().as_bytes()).unwrap();
        for (name, value) in [
            ("Owner", json!("host-1")),
            ("ContinuationToken", json!("\"7052\"")),
            ("timestamp", json!("2026-01-02T03:04:05.6789012Z")),
            ("timestamp", json!("2026-01-02T03:04:05Z")),
            ("PartitionId", json!("0")),
            ("partitionKey", json!("a guid")),
            ("properties", json!({"a": "b"})),
        ] {
            with(name, value).unwrap();
        }
        let mut of_sdk_v2 = created();
        of_sdk_v2.as_object_mut().unwrap().remove("LeaseToken");
        of_sdk_v2["PartitionId"] = json!("0");
        check(of_sdk_v2.to_string().as_bytes()).unwrap();
    }

    #[test]
    fn what_a_dot_net_host_would_stumble_over_is_found() {
        for (name, value) in [
            ("properties", json!({"a": {"b": 1}})),
            ("properties", Value::Null),
            ("timestamp", json!("2026-01-02T03:04:05.678901234Z")),
            ("timestamp", json!("2026-01-02T03:04:05+00:00")),
            ("timestamp", json!("yesterday")),
            ("owner", json!("twice")),
            ("cfEpoch", json!("1")),
            ("version", json!("0")),
            ("version", json!(1)),
            ("version", json!(2)),
            ("LeaseToken", json!("1")),
            ("ContinuationToken", json!("")),
            ("FeedRange", json!({"PKRangeId": "0"})),
            ("FeedRange", json!({"Range": {"min": "20", "max": "10"}})),
            ("Mode", json!("Latest")),
            ("PartitionId", json!("7")),
            ("_ts", json!("0")),
        ] {
            with(name, value.clone()).expect_err(&format!("{name}: {value}"));
        }
        let of_another_range = created().to_string().replace("LeaseToken", "PartitionId").replace("..0", "..7");
        check(of_another_range.as_bytes()).expect_err("PartitionId of another range");
        for missing in ["id", "LeaseToken", "Owner", "ContinuationToken", "properties", "timestamp", "_ts", "version"] {
            let mut lease = created();
            lease.as_object_mut().unwrap().remove(missing);
            check(lease.to_string().as_bytes()).expect_err(missing);
        }
    }
}
