//! Each kind of connection does the same: HTTP/1.1 and HTTP/2, plain on one port, with TLS on another.

use std::collections::BTreeSet;

use changefeed_embedded::Engine;
use changefeed_server::{Tls, auth::Keys, self_signed};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Ask, Client, Wire, World, item, raw, trust, world::DOCS};

/// A server without TLS and one with, and all ways to reach them.
async fn worlds() -> Vec<(World, Vec<Wire>)> {
    let made = self_signed().unwrap();
    let pem = made.certificate.clone();
    let engine = Engine::in_memory().unwrap();
    let catalog = engine.catalog();
    let secure = World::over(engine, catalog, Keys::emulator(), |builder| builder.tls(Tls::Given(made))).await;
    let mut client = secure.client_by(&Wire::TlsOne(pem.clone())).await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let container = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    vec![(World::new().await, vec![Wire::One, Wire::Two]), (secure, vec![Wire::TlsOne(pem.clone()), Wire::TlsTwo(pem)])]
}

async fn session(client: &mut Client, id: &str) {
    let path = format!("{DOCS}/{id}");
    client.send(Ask::post(DOCS, item(id, "a", 1)).key("a")).await.expect(201);
    let etag = client.send(Ask::get(&path).key("a")).await.expect(200).etag();
    client.send(Ask::put(&path, item(id, "a", 2)).key("a").with("if-match", etag)).await.expect(200);
    let feed = client.send(Ask::get(DOCS).feed().key("a")).await.expect(200);
    assert!(feed.ids().contains(&id.to_owned()));
    client.send(Ask::get(DOCS).feed().key("a").with("if-none-match", feed.etag())).await;
    client.send(Ask::query(DOCS, "SELECT * FROM c")).await.expect(200);
    client.send(Ask::get(format!("{DOCS}/none")).key("a")).await.expect(404);
    client.send(Ask::delete(&path).key("a")).await.expect(204);
}

#[tokio::test]
async fn every_kind_of_connection_serves_a_whole_session() {
    for (world, wires) in worlds().await {
        for wire in &wires {
            session(&mut world.client_by(wire).await, "one").await;
        }
    }
}

#[tokio::test]
async fn the_account_names_the_scheme_of_its_connection() {
    for (world, wires) in worlds().await {
        for wire in &wires {
            let account = world.client_by(wire).await.send(Ask::get("/")).await.expect(200).json();
            let scheme = if matches!(wire, Wire::One | Wire::Two) { "http" } else { "https" };
            let expected = format!("{scheme}://{}/", world.address());
            assert_eq!(account["writableLocations"][0]["databaseAccountEndpoint"], expected, "{wire:?}");
            assert_eq!(world.server.endpoint(), expected);
        }
    }
}

#[tokio::test]
async fn all_kinds_of_connections_work_at_once_on_their_port() {
    for (world, wires) in worlds().await {
        let mut sessions = JoinSet::new();
        for number in 0..8 {
            for (index, wire) in wires.iter().enumerate() {
                let (address, wire, keys) = (world.address(), wire.clone(), world.keys.clone());
                sessions.spawn(async move {
                    let mut client = Client::connect(address, &wire, keys).await;
                    session(&mut client, &format!("{number}-{index}")).await;
                });
            }
        }
        sessions.join_all().await;
        assert_eq!(world.count().await, 0);
    }
}

#[tokio::test]
async fn tls_offers_both_versions_and_takes_what_the_client_can() {
    let (world, wires) = worlds().await.pop().unwrap();
    let Wire::TlsOne(pem) = &wires[0] else { panic!("the secure world comes last") };
    let mut taken = BTreeSet::new();
    for (offered, expected) in [
        (&["h2"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["h2", "http/1.1"], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&[], None),
    ] {
        let stream = trust::connect(raw::connect(world.address()).await, pem, offered).await.unwrap();
        let chosen = stream.get_ref().1.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap());
        assert_eq!(chosen.as_deref(), expected, "{offered:?}");
        taken.insert(chosen);
    }
    assert_eq!(taken.len(), 3);
}

#[tokio::test]
async fn writers_on_several_connections_of_http2_are_all_answered() {
    let world = World::new().await;
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let mut client = world.client_by(&Wire::Two).await;
        writers.spawn(async move {
            for number in 0..50 {
                let ask = Ask::post(DOCS, item(&format!("{writer}-{number}"), "a", number)).key("a");
                client.send(ask).await.expect(201);
            }
        });
    }
    writers.join_all().await;
    assert_eq!(world.count().await, 200);
}
