//! A small server that answers for an account what the server of this project cannot: several write regions, another
//! consistency.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::http::serve;

/// An account with these regions, each at its endpoint. The first one takes writes, or all do.
pub(crate) fn account(regions: &[(&str, String)], multiple: bool, consistency: &str) -> Value {
    let location = |(name, endpoint): &(&str, String)| json!({"name": name, "databaseAccountEndpoint": endpoint});
    let locations: Vec<Value> = regions.iter().map(location).collect();
    let writable = if multiple { locations.clone() } else { locations[..1].to_vec() };
    json!({
        "id": "shop", "_rid": "shop.documents.azure.com", "_self": "", "_dbs": "//dbs/", "media": "//media/",
        "addresses": "//addresses/", "writableLocations": writable, "readableLocations": locations,
        "enableMultipleWriteLocations": multiple,
        "userConsistencyPolicy": {"defaultConsistencyLevel": consistency},
        "userReplicationPolicy": {"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1}, "queryEngineConfiguration": "{}"
    })
}

/// Answers every request with the account.
pub(crate) struct Front {
    pub(crate) endpoint: String,
    _task: JoinSet<()>,
}

impl Front {
    pub(crate) async fn start(account: Value) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let body = Bytes::from(account.to_string());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let body = body.clone();
                let answer = move |_| std::future::ready(Ok(Response::new(Full::new(body.clone()))));
                connections.spawn(serve(stream, answer));
            }
        });
        Self { endpoint, _task: task }
    }
}
