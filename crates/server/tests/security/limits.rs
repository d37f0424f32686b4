//! What a client may make grow: headers, bodies, nesting, pages.

use changefeed_server::{Builder, Limits, Server};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Ask, Wire, World, item, raw, time, world::DOCS};

const KIB: usize = 1024;

fn small(builder: Builder) -> Builder {
    let limits = Limits {
        max_body_bytes: 64 * KIB,
        max_headers: 20,
        max_header_bytes: 16 * KIB,
        max_streams: 7,
        ..Limits::default()
    };
    builder.limits(limits)
}

/// An item whose JSON has exactly this many bytes.
fn item_of(bytes: usize) -> String {
    let empty = json!({ "id": "big", "pk": "a", "fill": "" }).to_string().len();
    json!({ "id": "big", "pk": "a", "fill": "x".repeat(bytes - empty) }).to_string()
}

#[tokio::test]
async fn as_many_headers_as_allowed_are_taken_and_one_more_is_not() {
    let world = World::with(small).await;
    let ask = |count: usize| (0..count).fold(Ask::get("/"), |ask, index| ask.with(&format!("x-{index}"), index));
    // Host, date and authorization are headers, too.
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(&ask(17).head(&world.keys, &[])).await.unwrap();
    let answer = raw::one_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let came = raw::exchange(world.address(), &ask(18).head(&world.keys, &[])).await;
    assert!(came.starts_with("HTTP/1.1 431 "), "{came}");
}

#[tokio::test]
async fn as_many_headers_as_allowed_are_taken_on_http2_and_one_more_is_not() {
    let world = World::with(small).await;
    let mut client = world.client_by(&Wire::Two).await;
    let ask = |count: usize| (0..count).fold(Ask::get("/"), |ask, index| ask.with(&format!("x-{index}"), index));
    // Date and authorization are headers, too; what HTTP/1.1 calls host is none.
    client.send(ask(18)).await.expect(200);
    let refused = client.send(ask(19)).await.expect(431);
    assert_eq!(refused.json()["message"].as_str().map(|text| text.contains("more than 20 headers")), Some(true));
    client.send(Ask::get("/")).await.expect(200);
}

#[tokio::test]
async fn headers_longer_than_allowed_are_refused_before_they_are_complete() {
    let world = World::with(small).await;
    let mut client = world.client().await;
    client.send(Ask::get("/").with("x-long", "x".repeat(12 * KIB))).await.expect(200);
    // No end of the headers is in sight.
    let mut bytes = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: ".to_vec();
    bytes.resize(24 * KIB, b'x');
    let came = raw::exchange(world.address(), &bytes).await;
    assert!(came.starts_with("HTTP/1.1 431 "), "{came}");
    let mut line = b"GET /".to_vec();
    line.resize(24 * KIB, b'x');
    let came = raw::exchange(world.address(), &line).await;
    assert!(came.starts_with("HTTP/1.1 4"), "{came}");
}

#[tokio::test]
async fn headers_longer_than_allowed_are_refused_on_http2_and_the_connection_stays() {
    let world = World::with(small).await;
    let mut client = world.client_by(&Wire::Two).await;
    client.send(Ask::get("/").with("x-long", "x".repeat(12 * KIB))).await.expect(200);
    let refused = client.try_send(Ask::get("/").with("x-long", "x".repeat(20 * KIB))).await;
    assert!(refused.as_ref().map_or(true, |reply| reply.status == 431), "{refused:?}");
    client.send(Ask::get("/")).await.expect(200);
}

#[tokio::test]
async fn clients_of_http2_are_told_the_limits() {
    let world = World::with(small).await;
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    time::soon("settings", stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[3], 4, "a SETTINGS frame comes first: {head:?}");
    let mut settings = vec![0; usize::from(head[2])];
    time::soon("settings", stream.read_exact(&mut settings)).await.unwrap();
    let found = |id: u8| {
        let setting = settings.chunks(6).find(|setting| setting[1] == id);
        setting.map(|setting| u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
    };
    assert_eq!(found(3), Some(7), "the most requests at once");
    assert_eq!(found(6), Some(16 * 1024), "the most bytes of headers");
}

#[tokio::test]
async fn limits_that_no_server_can_keep_are_refused_at_the_start() {
    let engine = changefeed_embedded::Engine::in_memory().unwrap();
    for limits in [
        Limits { max_header_bytes: 8 * KIB - 1, ..Limits::default() },
        Limits { max_connections: 0, ..Limits::default() },
        Limits { max_connections_per_address: 0, ..Limits::default() },
        Limits { max_connections: usize::MAX, ..Limits::default() },
    ] {
        let shown = format!("{limits:?}");
        let builder = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).limits(limits);
        let refused = builder.start().await.map(|server| server.address());
        let error = refused.expect_err(&shown);
        assert_eq!(error.kind(), changefeed_core::ErrorKind::InvalidArgument, "{shown}: {error}");
    }
}

#[tokio::test]
async fn a_body_at_the_limit_is_taken_and_one_byte_more_is_413() {
    let world = World::with(small).await;
    for wire in [Wire::One, Wire::Two] {
        let create = |body: String| Ask::post(DOCS, body).key("a").with("x-ms-documentdb-is-upsert", "True");
        let reply = world.client_by(&wire).await.send(create(item_of(64 * KIB))).await;
        assert!(reply.status < 300, "{wire:?}: {reply:?}");
        let before = world.state().await;
        let reply = world.client_by(&wire).await.send(create(item_of(64 * KIB + 1))).await.expect(413);
        assert_eq!(reply.json()["code"], "RequestEntityTooLarge");
        assert_eq!(world.state().await, before);
    }
}

#[tokio::test]
async fn a_body_announced_too_long_is_refused_before_any_of_it_comes() {
    let world = World::with(small).await;
    let mut stream = raw::connect(world.address()).await;
    let head = Ask::post(DOCS, "").key("a").head(&world.keys, &[("content-length", "10000000000")]);
    stream.write_all(&head).await.unwrap();
    let answer = raw::one_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(raw::until_closed(&mut stream).await, b"", "what follows is not read");
}

#[tokio::test]
async fn chunks_without_end_are_refused_long_before_they_fill_the_memory() {
    let world = World::with(small).await;
    let stream = raw::connect(world.address()).await;
    let (mut reader, mut writer) = stream.into_split();
    let head = Ask::post(DOCS, "").key("a").head(&world.keys, &[("transfer-encoding", "chunked")]);
    writer.write_all(&head).await.unwrap();
    let chunk = [b"1000\r\n".to_vec(), vec![b' '; 4096], b"\r\n".to_vec()].concat();
    let mut sent = 0;
    let flood = async {
        while writer.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
            assert!(sent < 256 << 20, "the server reads on and on");
        }
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = raw::one_answer(&mut reader) => answer,
        () = flood => String::new(),
    };
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // The rest is what sockets hold.
    assert!(sent < 32 << 20, "{sent} bytes were taken");
}

#[tokio::test]
async fn a_body_too_long_on_http2_ends_its_request_only() {
    let world = World::with(small).await;
    let mut client = world.client_by(&Wire::Two).await;
    client.send(Ask::post(DOCS, item_of(1 << 20)).key("a")).await.expect(413);
    client.send(Ask::get("/dbs")).await.expect(200);
}

#[tokio::test]
async fn an_item_of_more_than_two_mebibytes_is_413() {
    let world = World::new().await;
    let before = world.state().await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, item_of((2 << 20) + KIB)).key("a")).await.expect(413);
    assert_eq!(world.state().await, before);
    client.send(Ask::post(DOCS, item_of((2 << 20) - 4 * KIB)).key("a")).await.expect(201);
}

#[tokio::test]
async fn deep_nesting_is_refused_and_does_not_end_the_server() {
    let world = World::new().await;
    let before = world.state().await;
    let mut client = world.client().await;
    for depth in [200, 100_000] {
        let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let body = format!(r#"{{"id":"deep","pk":"a","n":{nested}}}"#);
        client.send(Ask::post(DOCS, &body).key("a")).await.expect(400);
        // The same in binary: arrays of one element, each with its marker.
        let binary = [&[0x80][..], &vec![0xe1; depth], &[1]].concat();
        client.send(Ask::post(DOCS, "").body(binary).key("a")).await.expect(400);
        let sql = format!("SELECT * FROM c WHERE {}1{}", "(".repeat(depth), ")".repeat(depth));
        client.send(Ask::query(DOCS, &sql)).await.expect(400);
        let sql = format!("SELECT * FROM c WHERE {} true", "NOT ".repeat(depth));
        client.send(Ask::query(DOCS, &sql)).await.expect(400);
        client.send(Ask::post("/dbs/db/colls", &body)).await.expect(400);
        let patch = format!(r#"{{"operations":[{{"op":"set","path":"/n","value":{nested}}}]}}"#);
        client.send(Ask::patch(format!("{DOCS}/deep"), &patch).key("a")).await.expect(400);
        let key = format!("[{nested}]");
        if key.len() < 32 * KIB {
            client.send(Ask::get(format!("{DOCS}/x")).with("x-ms-documentdb-partitionkey", key)).await.expect(400);
        }
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_compressed_body_is_not_expanded() {
    let world = World::new().await;
    // What gzip makes of nothing.
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let ask = Ask::post(DOCS, "").key("a").with("content-encoding", "gzip").body(gzip.to_vec());
    world.client().await.send(ask).await.expect(400);
}

#[tokio::test]
async fn no_page_is_longer_than_a_thousand_whatever_is_asked() {
    let world = World::new().await;
    let container = world.engine.catalog().container("db", "c").await.unwrap();
    for hundred in 0..11 {
        let mut batch = container.batch("a");
        for one in 0..100 {
            batch = batch.create(&item(&format!("{hundred}-{one}"), "a", 1));
        }
        batch.commit().await.unwrap();
    }
    let mut client = world.client().await;
    for size in ["1000000", "9223372036854775807"] {
        for ask in [Ask::get(DOCS), Ask::get(DOCS).feed(), Ask::query(DOCS, "SELECT * FROM c")] {
            let reply = client.send(ask.with("x-ms-max-item-count", size)).await.expect(200);
            // A transaction is never cut, so a page of the feed may end up to 99 changes later.
            assert!((1000..1100).contains(&reply.ids().len()), "{}", reply.ids().len());
        }
    }
    for size in ["0", "-2", "many", "9223372036854775808"] {
        client.send(Ask::get(DOCS).with("x-ms-max-item-count", size)).await.expect(400);
    }
}
