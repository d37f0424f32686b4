//! Keys that change, and keys that are no good where others can reach the server.

use std::{net::SocketAddr, sync::Arc};

use changefeed_core::ErrorKind;
use changefeed_embedded::Engine;
use changefeed_server::{Builder, Server, Tls, auth::Keys, self_signed};

use crate::support::{Ask, Client, Wire, World, item, world::DOCS};

const OLD: &str = "b2xka2V5b2xka2V5b2xka2V5";
const NEW: &str = "bmV3a2V5bmV3a2V5bmV3a2V5";

fn keys(text: &str) -> Keys {
    Keys::parse(text).unwrap()
}

#[tokio::test]
async fn two_keys_are_good_at_once_and_changing_them_keeps_connections() {
    let world = World::new().await;
    world.server.set_keys(keys(OLD)).unwrap();
    for wire in [Wire::One, Wire::Two] {
        let mut client = Client::connect(world.address(), &wire, keys(OLD)).await;
        client.send(Ask::get("/dbs")).await.expect(200);
        world.server.set_keys(keys(&format!("{NEW}\n{OLD}"))).unwrap();
        client.send(Ask::get("/dbs")).await.expect(200);
        client.keys = keys(NEW);
        client.send(Ask::get("/dbs")).await.expect(200);
        world.server.set_keys(keys(NEW)).unwrap();
        client.send(Ask::get("/dbs")).await.expect(200);
        client.keys = keys(OLD);
        client.send(Ask::get("/dbs")).await.expect(401);
        client.keys = keys(NEW);
        client.send(Ask::get("/dbs")).await.expect(200);
        world.server.set_keys(keys(OLD)).unwrap();
    }
}

#[tokio::test]
async fn a_reader_of_the_feed_loses_nothing_while_keys_change() {
    let world = World::new().await;
    world.server.set_keys(keys(OLD)).unwrap();
    let mut client = Client::connect(world.address(), &Wire::One, keys(OLD)).await;
    let mut continuation = None;
    let mut seen = Vec::new();
    for round in 0..20_u64 {
        let both = [format!("{OLD}\n{NEW}"), format!("{NEW}\n{OLD}")];
        world.server.set_keys(keys(&both[usize::from(round % 2 == 0)])).unwrap();
        client.keys = keys(if round % 3 == 0 { NEW } else { OLD });
        client.send(Ask::post(DOCS, item(&round.to_string(), "a", round)).key("a")).await.expect(201);
        let mut ask = Ask::get(DOCS).feed().range("0");
        if let Some(continuation) = &continuation {
            ask = ask.with("if-none-match", continuation);
        }
        let reply = client.send(ask).await.expect(200);
        continuation = Some(reply.etag());
        seen.extend(reply.ids());
    }
    let all: Vec<String> = (0..20).map(|round: u64| round.to_string()).collect();
    assert_eq!(seen, all);
}

/// What becomes of a start with these settings at this address.
async fn started(address: &str, settings: impl FnOnce(Builder) -> Builder) -> changefeed_core::Result<Server> {
    let engine = Engine::in_memory().unwrap();
    let address: SocketAddr = address.parse().unwrap();
    settings(Server::builder(Arc::clone(&engine.catalog())).listen(address)).start().await
}

const BEYOND: [&str; 2] = ["0.0.0.0:0", "[::]:0"];

fn tls() -> Tls {
    Tls::Given(self_signed().unwrap())
}

#[tokio::test]
async fn the_key_of_emulators_is_refused_where_others_can_reach_the_server() {
    for address in BEYOND {
        for keys in [Keys::emulator(), keys(&format!("{NEW}\nread-only {}", changefeed_server::auth::EMULATOR_KEY))] {
            let error = started(address, |builder| builder.keys(keys).tls(tls())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("the emulator's key is public"), "{error}");
            assert!(error.message().contains("openssl rand"), "it says how to make another: {error}");
        }
        let server = started(address, |builder| builder.keys(keys(NEW)).tls(tls())).await.unwrap();
        let error = server.set_keys(Keys::emulator()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "nor can it come in later");
        server.set_keys(keys(OLD)).unwrap();
    }
    for address in ["127.0.0.1:0", "127.0.0.9:0"] {
        started(address, |builder| builder.keys(Keys::emulator())).await.unwrap();
    }
}

#[tokio::test]
async fn starting_without_a_key_is_refused_where_others_can_reach_the_server() {
    for address in BEYOND {
        let error = started(address, |builder| builder.tls(tls())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("needs a key of your own"), "{error}");
    }
    started("127.0.0.1:0", |builder| builder).await.unwrap();
}

#[tokio::test]
async fn plain_http_is_refused_where_others_can_reach_the_server_unless_asked_for() {
    for address in BEYOND {
        let error = started(address, |builder| builder.keys(keys(NEW))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("without TLS"), "{error}");
        let server = started(address, |builder| builder.keys(keys(NEW)).plain_beyond_loopback(true)).await.unwrap();
        assert!(server.endpoint().starts_with("http://localhost:"), "{}", server.endpoint());
        let reachable = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
        let mut client = Client::connect(reachable, &Wire::One, keys(NEW)).await;
        client.send(Ask::get("/")).await.expect(200);
    }
}
