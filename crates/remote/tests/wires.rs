//! A bad network under every wire: HTTP/1.1 and HTTP/2, plain and with TLS, through a proxy that holds bytes back and ends
//! connections without looking into them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use changefeed_core::{Container, Effect, ErrorKind, FeedRange, ReadChanges, StartFrom};
use changefeed_embedded::Engine;
use changefeed_remote::{EMULATOR_KEY, HttpVersion, Server as Client};
use changefeed_server::{Server, Tls, self_signed};
use serde_json::json;
use support::{ANY_PORT, orders, tunnel::Tunnel};

const WIRES: [(HttpVersion, bool); 4] =
    [(HttpVersion::Http1, false), (HttpVersion::Http2, false), (HttpVersion::Http1, true), (HttpVersion::Http2, true)];

/// Shorter than a test should take, and longer than a busy machine needs for a request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A store behind a server behind a tunnel, and a container on each side.
struct Stage {
    _server: Server,
    tunnel: Tunnel,
    /// Through the tunnel.
    orders: Container,
    /// Without the network.
    direct: Container,
}

impl Stage {
    async fn new((version, tls): (HttpVersion, bool)) -> Self {
        let engine = Engine::in_memory().unwrap();
        let mut server = Server::builder(engine.catalog()).listen(ANY_PORT);
        let certificate = tls.then(|| self_signed().unwrap());
        if let Some(certificate) = &certificate {
            server = server.tls(Tls::Given(certificate.clone()));
        }
        let server = server.start().await.unwrap();
        let tunnel = Tunnel::start(server.address()).await;
        let scheme = if tls { "https" } else { "http" };
        let endpoint = format!("{scheme}://{}", tunnel.address);
        let mut client = Client::builder(&endpoint, EMULATOR_KEY).http_version(version).timeout(TIMEOUT);
        if let Some(certificate) = certificate {
            client = client.certificate(certificate.certificate);
        }
        let orders = orders(&client.connect().unwrap()).await;
        let direct = engine.database("shop").container("orders").open_or_create().await.unwrap();
        Self { _server: server, tunnel, orders, direct }
    }
}

async fn changes(container: &Container) -> usize {
    let request = ReadChanges::new(FeedRange::full(), StartFrom::Beginning);
    container.read_changes(request).await.unwrap().changes.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_breaks_off_is_read_again_over_every_wire() {
    for wire in WIRES {
        let stage = Stage::new(wire).await;
        for number in 0..300 {
            stage.direct.create(&json!({"id": number.to_string(), "text": "a".repeat(1000)})).await.unwrap();
        }
        for bytes in [0, 1, 100, 5_000, 150_000, 250_000] {
            stage.tunnel.cut_answer_after(bytes);
            assert_eq!(changes(&stage.orders).await, 300, "{wire:?}, cut after {bytes}");
            assert!(!stage.tunnel.waits_to_cut(), "{wire:?}: nothing was cut after {bytes}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_cut_happens_once_over_every_wire() {
    for wire in WIRES {
        let stage = Stage::new(wire).await;
        let mut landed = 0;
        for bytes in [0, 1, 60] {
            stage.tunnel.cut_answer_after(bytes);
            let written = stage.orders.upsert(&json!({"id": "1", "cut": bytes})).await;
            if let Err(error) = &written {
                assert_eq!(error.effect(), Effect::Unknown, "{wire:?}, cut after {bytes}: {error:?}");
            }
            landed += 1;
            let direct = stage.direct.read_item("1", "1").await.unwrap();
            assert_eq!(direct.lsn.get(), landed + 1, "{wire:?}, cut after {bytes}: written once");
            changes(&stage.orders).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_drops_packets_ends_in_a_timeout_and_comes_back_over_every_wire() {
    for wire in WIRES {
        let stage = Stage::new(wire).await;
        stage.orders.upsert(&json!({"id": "1"})).await.unwrap();
        stage.tunnel.freeze();
        let error = stage.orders.upsert(&json!({"id": "2"})).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{wire:?}: {error:?}");
        stage.tunnel.cut();
        let error = stage.orders.read_item("1", "1").await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{wire:?}: {error:?}");
        stage.tunnel.mend();
        stage.orders.upsert(&json!({"id": "3"})).await.unwrap();
        assert!(changes(&stage.orders).await >= 2, "{wire:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a reader waits on a real network, in real time")]
async fn readers_are_woken_again_after_the_network_was_cut_over_every_wire() {
    for wire in WIRES {
        let stage = Stage::new(wire).await;
        stage.orders.upsert(&json!({"id": "0"})).await.unwrap();
        for round in 1..=2 {
            let request = ReadChanges::new(FeedRange::full(), StartFrom::Now);
            let newest = stage.orders.read_changes(request).await.unwrap().into_value().continuation;
            let reader = stage.orders.clone();
            let woken = tokio::spawn(async move { reader.backend().changed(&FeedRange::full(), &newest).await });
            stage.tunnel.freeze();
            stage.tunnel.cut();
            stage.direct.upsert(&json!({"id": "0", "round": round})).await.unwrap();
            stage.tunnel.mend();
            tokio::time::timeout(Duration::from_secs(30), woken).await.expect("woken").unwrap();
        }
    }
}
