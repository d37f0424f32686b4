//! Clients that ask and do not read.

use std::time::Duration;

use bytes::Bytes;
use changefeed_server::{Builder, Limits};
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use crate::support::{Ask, World, raw, time, world::DOCS};

const PATIENCE: Duration = Duration::from_millis(400);

fn impatient(builder: Builder) -> Builder {
    builder.limits(Limits { write_timeout: PATIENCE, max_memory_bytes: 20 << 20, ..Limits::default() })
}

/// A server whose feed has a page of about 4 MB.
async fn world() -> World {
    let world = World::with(impatient).await;
    let mut client = world.client().await;
    for n in 0..40 {
        let item = json!({"id": format!("i{n}"), "pk": "p", "b": "x".repeat(100_000)});
        client.send(Ask::post(DOCS, item).key("p").with("prefer", "return=minimal")).await.expect(201);
    }
    world
}

fn page() -> Ask {
    Ask::get(DOCS).feed().range("0").with("x-ms-max-item-count", 1000)
}

/// A connection with a small buffer that has asked for a page and reads nothing.
async fn never_reads(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = time::soon("connecting", socket.connect(world.address())).await.unwrap();
    stream.write_all(&page().bytes(&world.keys)).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_of_http1_that_does_not_read_is_cut_off() {
    let world = world().await;
    let mut stream = never_reads(&world).await;
    time::pause(PATIENCE * 4).await;
    let came = raw::until_closed(&mut stream).await;
    assert!(came.len() < 3_900_000, "{} bytes came: the connection was not cut off", came.len());
}

#[tokio::test]
async fn a_client_of_http1_that_reads_slowly_gets_everything() {
    let world = world().await;
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(&page().bytes(&world.keys)).await.unwrap();
    let mut came = 0;
    // About four timeouts in all.
    while came < 3_900_000 {
        stream.readable().await.unwrap();
        let mut buffer = vec![0; 32 * 1024];
        match stream.try_read(&mut buffer) {
            Ok(0) => panic!("closed after {came} bytes"),
            Ok(count) => came += count,
            Err(_) => continue,
        }
        time::pause(PATIENCE / 30).await;
    }
}

/// A connection of HTTP/2 whose streams get `window` bytes before the client has to allow more.
async fn http2(world: &World, window: u32, tasks: &mut JoinSet<()>) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(world.address()).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    sender
}

fn request(world: &World) -> Request<Full<Bytes>> {
    let ask = page();
    let mut request = Request::get(format!("http://{}{}", world.address(), ask.path));
    for (name, value) in ask.signature(&world.keys).into_iter().chain(ask.headers) {
        request = request.header(name, value);
    }
    request.body(Full::new(Bytes::new())).unwrap()
}

#[tokio::test]
async fn a_stream_of_http2_that_is_not_read_ends_its_connection() {
    for window in [0, 1, 100_000, 3_900_000] {
        let world = world().await;
        let mut tasks = JoinSet::new();
        let mut sender = http2(&world, window, &mut tasks).await;
        let response = time::soon("headers", sender.send_request(request(&world))).await.unwrap();
        assert_eq!(response.status(), 200);
        // The body is kept and never polled, so no further window is given.
        time::soon("closing", tasks.join_next()).await;
        assert!(response.into_body().collect().await.is_err(), "window {window}: the body came to its end");
    }
}

#[tokio::test]
async fn a_stream_of_http2_that_is_read_slowly_goes_on() {
    let world = world().await;
    let mut tasks = JoinSet::new();
    let mut sender = http2(&world, 500_000, &mut tasks).await;
    let mut body = sender.send_request(request(&world)).await.unwrap().into_body();
    let mut came = 0;
    while let Some(frame) = body.frame().await {
        came += frame.unwrap().into_data().map_or(0, |data| data.len());
        time::pause(PATIENCE / 80).await;
    }
    assert!(came > 3_900_000, "{came}");
}

#[tokio::test]
async fn requests_are_refused_while_unread_responses_hold_too_much_and_answered_later() {
    let world = world().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(never_reads(&world).await);
    }
    let mut client = world.client().await;
    let mut refused = None;
    for _ in 0..200 {
        let reply = client.send(Ask::get(format!("{DOCS}/i0")).key("p")).await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
        time::pause(PATIENCE / 100).await;
    }
    let refused = refused.expect("32 MB of responses waited, and requests were admitted");
    assert!(refused.header("x-ms-retry-after-ms").is_some());
    // Cutting the idle clients off frees what they held.
    while client.send(Ask::get(format!("{DOCS}/i0")).key("p")).await.status == 429 {
        time::pause(PATIENCE / 4).await;
    }
    drop(streams);
}
