//! Indexing policies: checked and completed as the service does. Every query is a scan here, so paths decide nothing, but
//! a query that sorts by several paths needs the composite index that it would need there.

use changefeed_query::SortPath;
use serde_json::{Map, Value, json};

use crate::error::{ApiError, ApiResult};

/// The path that Cosmos DB excludes by default.
const ETAG_PATH: &str = "/\"_etag\"/?";

/// The path that stands for all.
const ALL_PATHS: &str = "/*";

/// The policy of a container that names none.
pub(crate) fn default_policy() -> Value {
    json!({
        "indexingMode": "consistent", "automatic": true, "includedPaths": [{ "path": ALL_PATHS }],
        "excludedPaths": [{ "path": ETAG_PATH }],
    })
}

/// Returns a policy with its defaults filled in.
///
/// # Errors
/// 400 with the reason, if the policy is not valid.
pub(crate) fn completed(policy: &Value) -> ApiResult<Value> {
    let Value::Object(given) = policy else { return Err(refused("it is not an object")) };
    let mut policy = given.clone();
    let mode = match given.get("indexingMode") {
        None | Some(Value::Null) => "consistent".to_owned(),
        Some(mode) => mode.as_str().unwrap_or_default().to_ascii_lowercase(),
    };
    if !matches!(mode.as_str(), "consistent" | "lazy" | "none") {
        return Err(refused("indexingMode is consistent, lazy or none"));
    }
    let automatic = match given.get("automatic") {
        None | Some(Value::Null) => mode != "none",
        Some(Value::Bool(automatic)) => *automatic,
        Some(_) => return Err(refused("automatic is true or false")),
    };
    if mode == "none" && automatic {
        return Err(refused("automatic must be false where indexingMode is none"));
    }
    let (mut included, mut excluded) = (paths(given, "includedPaths")?, paths(given, "excludedPaths")?);
    let is_all = |entry: &Value| matches!(path_of(entry), ALL_PATHS | "/");
    if mode != "none" {
        if included.is_empty() && !excluded.iter().any(is_all) {
            included.push(json!({ "path": ALL_PATHS }));
        }
        if !included.iter().chain(&excluded).any(is_all) {
            return Err(refused(
                "The special mandatory indexing path \"/\" is not provided in any of the path type sets. Please provide \
                 this path in one of the sets: add {\"path\":\"/*\"} to includedPaths or excludedPaths",
            ));
        }
        if !included.iter().chain(&excluded).any(|entry| path_of(entry) == ETAG_PATH) {
            excluded.push(json!({ "path": ETAG_PATH }));
        }
    }
    let composite = composites(given)?;
    policy.insert("indexingMode".to_owned(), mode.into());
    policy.insert("automatic".to_owned(), automatic.into());
    policy.insert("includedPaths".to_owned(), included.into());
    policy.insert("excludedPaths".to_owned(), excluded.into());
    if let Some(composite) = composite {
        policy.insert("compositeIndexes".to_owned(), composite);
    }
    Ok(Value::Object(policy))
}

/// Returns `true` if a policy lets a query sort by these paths. One path needs no index of its own; several need a composite index
/// of exactly these paths, in the same directions or in the opposite of each.
pub(crate) fn can_sort(policy: Option<&Value>, paths: &[SortPath]) -> bool {
    if paths.len() < 2 {
        return true;
    }
    let indexes = policy.and_then(|policy| policy.get("compositeIndexes")).and_then(Value::as_array);
    indexes.into_iter().flatten().filter_map(Value::as_array).any(|index| serves(index, paths))
}

fn serves(index: &[Value], paths: &[SortPath]) -> bool {
    let is_descending =
        |entry: &Value| entry.get("order").and_then(Value::as_str).is_some_and(|order| order == "descending");
    let same = |(entry, sorted): (&Value, &SortPath)| {
        sorted.path.as_ref().is_some_and(|path| *path == segments(path_of(entry)))
    };
    let turned: Vec<bool> =
        index.iter().zip(paths).map(|(entry, sorted)| is_descending(entry) != sorted.descending).collect();
    let one_way = turned.iter().all(|turned| *turned) || turned.iter().all(|turned| !*turned);
    index.len() == paths.len() && one_way && index.iter().zip(paths).all(same)
}

fn refused(what: &str) -> ApiError {
    ApiError::bad_request(format!("The indexing policy of the container is not valid: {what}"))
}

fn path_of(entry: &Value) -> &str {
    entry.get("path").and_then(Value::as_str).unwrap_or_default()
}

/// The entries of a list of paths; none if it is left out.
fn paths(policy: &Map<String, Value>, list: &str) -> ApiResult<Vec<Value>> {
    let entries = match policy.get(list) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries.clone(),
        Some(_) => return Err(refused(&format!("{list} is a list of objects with a path"))),
    };
    for entry in &entries {
        let path = path_of(entry);
        let inner = path.strip_suffix("/?").or_else(|| path.strip_suffix("/*"));
        if path != "/" && !inner.is_some_and(|inner| inner.is_empty() || is_path(inner)) {
            return Err(bad_path(path, "it ends with /? or /*"));
        }
    }
    Ok(entries)
}

fn bad_path(path: &str, rule: &str) -> ApiError {
    refused(&format!(
        "The indexing path '{path}' could not be accepted. Please ensure that the path is a valid path: it begins with /, \
         {rule}, and labels with other characters than letters and digits stand in quotes"
    ))
}

/// Returns `true` if a text is a path of labels, without the ending of an indexed path.
fn is_path(path: &str) -> bool {
    let Some(labels) = path.strip_prefix('/') else { return false };
    split(labels).iter().all(|label| {
        let quoted = label.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        quoted.is_some_and(|inner| !inner.is_empty())
            || *label == "[]"
            || !label.is_empty()
                && label.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-' | '$' | '@'))
    })
}

/// The labels of a path; a slash inside quotes does not part them.
fn split(labels: &str) -> Vec<&str> {
    let mut quoted = false;
    labels
        .split(|char| {
            quoted ^= char == '"';
            char == '/' && !quoted
        })
        .collect()
}

/// The labels of a path without quotes.
fn segments(path: &str) -> Vec<String> {
    let label = |label: &&str| label.trim_matches('"').to_owned();
    split(path.trim_start_matches('/')).iter().map(label).collect()
}

/// Composite indexes with the order of each path; none if there are none.
fn composites(policy: &Map<String, Value>) -> ApiResult<Option<Value>> {
    let indexes = match policy.get("compositeIndexes") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(indexes)) => indexes,
        Some(_) => return Err(refused("compositeIndexes is a list of lists")),
    };
    indexes.iter().map(composite).collect::<ApiResult<Vec<_>>>().map(|indexes| Some(indexes.into()))
}

fn composite(index: &Value) -> ApiResult<Value> {
    let paths = index.as_array().filter(|paths| paths.len() > 1);
    let paths = paths.ok_or_else(|| refused("a composite index is a list of at least two paths"))?;
    let mut completed = Vec::with_capacity(paths.len());
    for entry in paths {
        let path = path_of(entry);
        if !is_path(path) {
            return Err(bad_path(path, "a path of a composite index has no /? or /* at its end"));
        }
        let order = match entry.get("order") {
            None | Some(Value::Null) => "ascending".to_owned(),
            Some(order) => order.as_str().unwrap_or_default().to_ascii_lowercase(),
        };
        if !matches!(order.as_str(), "ascending" | "descending") {
            return Err(refused("the order of a path is ascending or descending"));
        }
        completed.push(json!({ "path": path, "order": order }));
    }
    Ok(completed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_completed_as_the_service_does() {
        assert_eq!(completed(&json!({})).unwrap(), default_policy());
        assert_eq!(completed(&default_policy()).unwrap(), default_policy());
        let given = json!({
            "indexingMode": "Consistent", "includedPaths": [{ "path": "/a/?" }], "excludedPaths": [{ "path": "/*" }],
            "compositeIndexes": [[{ "path": "/a" }, { "path": "/\"b c\"", "order": "Descending" }]],
        });
        let whole = json!({
            "indexingMode": "consistent", "automatic": true, "includedPaths": [{ "path": "/a/?" }],
            "excludedPaths": [{ "path": "/*" }, { "path": "/\"_etag\"/?" }],
            "compositeIndexes": [[
                { "path": "/a", "order": "ascending" }, { "path": "/\"b c\"", "order": "descending" },
            ]],
        });
        assert_eq!(completed(&given).unwrap(), whole);
        let none = json!({ "indexingMode": "none", "automatic": false, "includedPaths": [], "excludedPaths": [] });
        assert_eq!(completed(&json!({ "indexingMode": "none" })).unwrap(), none);
    }

    #[test]
    fn a_policy_that_the_service_refuses_is_refused() {
        for (policy, word) in [
            (json!([]), "not an object"),
            (json!({ "indexingMode": "sometimes" }), "indexingMode"),
            (json!({ "indexingMode": "none", "automatic": true }), "automatic"),
            (json!({ "includedPaths": [{ "path": "/a/?" }] }), "mandatory indexing path"),
            (json!({ "includedPaths": [{ "path": "/*" }, { "path": "/a" }] }), "could not be accepted"),
            (json!({ "excludedPaths": [{ "path": "a/?" }] }), "could not be accepted"),
            (json!({ "excludedPaths": [{ "path": "/a b/?" }] }), "could not be accepted"),
            (json!({ "excludedPaths": "/a/?" }), "excludedPaths"),
            (json!({ "compositeIndexes": [[{ "path": "/a" }]] }), "at least two"),
            (json!({ "compositeIndexes": [[{ "path": "/a/?" }, { "path": "/b" }]] }), "could not be accepted"),
            (json!({ "compositeIndexes": [[{ "path": "/a", "order": "up" }, { "path": "/b" }]] }), "ascending"),
        ] {
            let refused = completed(&policy).unwrap_err();
            assert!(refused.message.contains(word), "{policy}: {}", refused.message);
        }
    }

    #[test]
    fn several_paths_need_their_composite_index_in_one_direction_or_the_other() {
        let policy = json!({ "compositeIndexes": [
            [{ "path": "/a", "order": "ascending" }, { "path": "/b/c", "order": "descending" }],
        ] });
        let sorted = |paths: &[(&str, bool)]| -> Vec<SortPath> {
            paths
                .iter()
                .map(|(path, descending)| SortPath { path: Some(segments(path)), descending: *descending })
                .collect()
        };
        for (paths, can) in [
            (sorted(&[("/z", true)]), true),
            (sorted(&[("/a", false), ("/b/c", true)]), true),
            (sorted(&[("/a", true), ("/b/c", false)]), true),
            (sorted(&[("/a", false), ("/b/c", false)]), false),
            (sorted(&[("/b/c", true), ("/a", false)]), false),
            (sorted(&[("/a", false), ("/b/c", true), ("/d", false)]), false),
            (vec![SortPath { path: None, descending: false }, SortPath { path: None, descending: true }], false),
        ] {
            assert_eq!(can_sort(Some(&policy), &paths), can, "{paths:?}");
        }
        assert!(!can_sort(None, &sorted(&[("/a", false), ("/b", false)])));
    }
}
