//! Requests whose end two parsers could see at different places.

use tokio::io::AsyncWriteExt;

use crate::support::{Ask, World, item, raw, world::DOCS};

/// A whole request that hides in the body of another.
fn hidden(world: &World) -> Vec<u8> {
    Ask::post(DOCS, item("smuggled", "a", 1)).key("a").bytes(&world.keys)
}

#[tokio::test]
async fn length_and_chunks_together_end_the_connection_and_let_no_second_request_through() {
    let world = World::new().await;
    let hidden = hidden(&world);
    let outer = item("outer", "a", 1).to_string();
    let chunks = format!("{:x}\r\n{outer}\r\n0\r\n\r\n", outer.len());
    let length = (hidden.len() + chunks.len()).to_string();
    for headers in [
        [("content-length", length.as_str()), ("transfer-encoding", "chunked")],
        [("transfer-encoding", "chunked"), ("content-length", length.as_str())],
        [("content-length", "5"), ("transfer-encoding", "chunked")],
    ] {
        let ask = Ask::post(DOCS, "").key("a").with("x-ms-documentdb-is-upsert", "True");
        let bytes = [&ask.head(&world.keys, &headers), chunks.as_bytes(), &hidden].concat();
        let mut stream = raw::connect(world.address()).await;
        stream.write_all(&bytes).await.unwrap();
        let came = raw::until_closed(&mut stream).await;
        let came = String::from_utf8_lossy(&came);
        assert_eq!(came.matches("HTTP/1.1 ").count(), 1, "one answer, then the end: {came}");
        let there = world.client().await.send(Ask::get(DOCS)).await.expect(200).ids();
        assert!(!there.contains(&"smuggled".to_owned()), "{headers:?}");
    }
}

#[tokio::test]
async fn lengths_and_encodings_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let body = item("smuggled", "a", 1).to_string();
    let own = body.len().to_string();
    let long = (body.len() + 1).to_string();
    for headers in [
        &[("content-length", own.as_str()), ("content-length", long.as_str())][..],
        &[("content-length", "-1")],
        &[("content-length", "+5")],
        &[("content-length", "0x10")],
        &[("content-length", "5, 6")],
        &[("content-length", "18446744073709551616")],
        &[("transfer-encoding", "identity")],
        &[("transfer-encoding", "chunked, identity")],
        &[("transfer-encoding", "gzip")],
        &[("transfer-encoding ", "chunked")],
        &[("content-length ", own.as_str())],
    ] {
        let mut bytes = Ask::post(DOCS, "").key("a").head(&world.keys, headers);
        bytes.extend_from_slice(body.as_bytes());
        let came = raw::exchange(world.address(), &bytes).await;
        assert!(came.starts_with("HTTP/1.1 4"), "{headers:?}: {came}");
        assert_eq!(came.matches("HTTP/1.1 ").count(), 1, "{headers:?}: {came}");
        assert_eq!(world.count().await, 0, "{headers:?}");
    }
}

#[tokio::test]
async fn chunks_that_are_none_and_bodies_that_break_off_change_nothing() {
    let world = World::new().await;
    for body in [
        &b"zz\r\n{}\r\n0\r\n\r\n"[..],
        b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"5\r\n{\"id",
        b"3\r\n{\"id\":\"1\",\"pk\":\"a\"}\r\n0\r\n\r\n",
        b"-1\r\n\r\n",
    ] {
        let mut bytes = Ask::post(DOCS, "").key("a").head(&world.keys, &[("transfer-encoding", "chunked")]);
        bytes.extend_from_slice(body);
        let came = raw::exchange(world.address(), &bytes).await;
        assert!(came.is_empty() || came.starts_with("HTTP/1.1 400 "), "{came}");
        assert_eq!(world.count().await, 0);
    }
    let mut cut = Ask::post(DOCS, "").key("a").head(&world.keys, &[("content-length", "100")]);
    cut.extend_from_slice(item("cut", "a", 1).to_string().as_bytes());
    let came = raw::exchange(world.address(), &cut).await;
    assert!(came.is_empty() || came.starts_with("HTTP/1.1 400 "), "{came}");
    assert_eq!(world.count().await, 0);
}

#[tokio::test]
async fn requests_that_are_no_http_are_refused_without_harm() {
    let world = World::new().await;
    for bytes in [
        &b"\x00\x01\x02\x03\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n b: c\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ] {
        let came = raw::exchange(world.address(), bytes).await;
        assert!(came.is_empty() || came.starts_with("HTTP/1.1 4"), "{:?}: {came}", String::from_utf8_lossy(bytes));
    }
    world.client().await.send(Ask::get("/")).await.expect(200);
}
