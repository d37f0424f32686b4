//! What is wrong with the store of a processor itself, as the server in front of it says it.

use std::time::Duration;

use serde_json::Value;

use crate::store::Store;

/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sentences about a store that has problems: leases may seem stuck for no other reason. A server that does not answer is
/// left out, since everything else fails then with a better sentence.
pub(crate) async fn problems(store: &Store, name: &str) -> Vec<String> {
    let Ok(server) = store.server() else { return Vec::new() };
    let answer = server.admin_call("GET", "health", Vec::new(), PATIENCE).await;
    let health: Value = answer.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let problems = health.get("problems").and_then(Value::as_array).cloned().unwrap_or_default();
    let sentence = |problem: &str| format!("store {name}: {problem}; it goes on by itself once that is repaired");
    problems.iter().filter_map(Value::as_str).map(sentence).collect()
}
