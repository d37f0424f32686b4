//! `/healthz`: what anybody may know about the server without a key.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind, Result};
use changefeed_server::{Health, Storage, StoredFiles};
use serde_json::json;

use crate::support::{Ask, World};

#[derive(Debug)]
struct Sick(Health);

impl Storage for Sick {
    fn health(&self) -> Health {
        self.0.clone()
    }

    fn verify(&self) -> Result<u64> {
        Err(Error::new(ErrorKind::Corrupt, "0001.log is damaged"))
    }

    fn snapshot(&self) -> Result<Arc<dyn StoredFiles>> {
        Err(Error::new(ErrorKind::Closed, "the store was closed"))
    }
}

fn unsigned() -> Ask {
    Ask { unsigned: true, ..Ask::get("/healthz") }
}

#[tokio::test]
async fn a_server_that_is_well_says_so_without_a_key() {
    let world = World::new().await;
    let reply = world.client().await.send(unsigned()).await.expect(200);
    assert_eq!(reply.json(), json!({"status": "ok", "problems": []}));
}

#[tokio::test]
async fn problems_of_the_store_are_shown_with_their_cause() {
    let full = "compaction: no space left".to_owned();
    let problems = Health { problems: vec![full.clone()], ..Health::default() };
    let world = World::with(|builder| builder.storage(Arc::new(Sick(problems)))).await;
    let reply = world.client().await.send(unsigned()).await.expect(200);
    assert_eq!(reply.json(), json!({"status": "degraded", "problems": [full]}));
    let verify = world.client().await.send(Ask::post("/_changefeed/verify", "")).await.expect(500);
    assert!(verify.text().contains("0001.log is damaged"));
    assert_eq!(verify.header("x-ms-substatus"), Some("9001"), "clients can tell it from a store that cannot be read");
}

#[tokio::test]
async fn a_store_that_stopped_itself_makes_the_server_unhealthy() {
    let stopped = Health { stopped: Some("sync the log: I/O error".to_owned()), problems: Vec::new() };
    let world = World::with(|builder| builder.storage(Arc::new(Sick(stopped)))).await;
    let reply = world.client().await.send(unsigned()).await.expect(503);
    assert_eq!(reply.json()["problems"], json!(["sync the log: I/O error"]));
}
