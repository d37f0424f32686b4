//! Clients that take their time: bytes that dribble, or none at all, wherever the server waits for some.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use changefeed_server::{Builder, Limits, Tls, self_signed};
use hyper::{
    Request,
    body::{Body, Frame},
    client::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};

use crate::support::{Ask, Client, Wire, World, item, raw, time, trust, world::DOCS};

/// How long the server waits in these tests. The defaults are a hundred times as long.
const PATIENCE: Duration = Duration::from_millis(400);

/// Closing may be late on a busy machine, but not as late as the defaults.
const AT_LATEST: Duration = Duration::from_secs(15);

const STEP: Duration = Duration::from_millis(50);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn impatient(builder: Builder) -> Builder {
    let limits = Limits { header_timeout: PATIENCE, body_timeout: PATIENCE, keep_alive: PATIENCE, ..Limits::default() };
    builder.limits(limits)
}

/// A server with TLS, and its certificate.
async fn secure(settings: impl FnOnce(Builder) -> Builder) -> (World, String) {
    let made = self_signed().unwrap();
    let pem = made.certificate.clone();
    let engine = changefeed_embedded::Engine::in_memory().unwrap();
    let catalog = engine.catalog();
    let keys = changefeed_server::auth::Keys::emulator();
    let world = World::over(engine, catalog, keys, |builder| settings(builder).tls(Tls::Given(made))).await;
    (world, pem)
}

#[track_caller]
fn assert_in_time(took: Duration) {
    assert!(took >= PATIENCE / 2, "closed after {took:?}, before the client had its time");
    assert!(took < AT_LATEST, "closed only after {took:?}");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_closed() {
    let world = World::with(impatient).await;
    let mut stream = raw::connect(world.address()).await;
    let (came, took) = time::timed(raw::until_closed(&mut stream)).await;
    assert_eq!(came, b"");
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_dribbles_its_headers_is_closed() {
    let world = World::with(impatient).await;
    let stream = raw::connect(world.address()).await;
    let (_, took) = raw::dribble(stream, b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"x-a: 1\r\n", STEP).await;
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_falls_silent_between_two_requests_is_closed() {
    let world = World::with(impatient).await;
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(&Ask::get("/").bytes(&world.keys)).await.unwrap();
    assert!(raw::one_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    let (came, took) = time::timed(raw::until_closed(&mut stream)).await;
    assert_eq!(came, b"");
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_dribbles_its_body_is_told_408_and_closed() {
    let world = World::with(impatient).await;
    let before = world.state().await;
    let ask = Ask::post(DOCS, "").key("a");
    for (framing, each) in [(("content-length", "1000"), &b" "[..]), (("transfer-encoding", "chunked"), b"1\r\n \r\n")]
    {
        let stream = raw::connect(world.address()).await;
        let (came, took) = raw::dribble(stream, &ask.head(&world.keys, &[framing]), each, STEP).await;
        assert!(came.starts_with("HTTP/1.1 408 "), "{framing:?}: {came}");
        assert_in_time(took);
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_body_that_comes_slowly_but_in_time_is_taken() {
    let world = World::with(impatient).await;
    let body = item("slow", "a", 1).to_string();
    let mut stream = raw::connect(world.address()).await;
    let length = body.len().to_string();
    stream.write_all(&Ask::post(DOCS, "").key("a").head(&world.keys, &[("content-length", &length)])).await.unwrap();
    for part in body.as_bytes().chunks(body.len() / 3 + 1) {
        time::pause(PATIENCE / 8).await;
        stream.write_all(part).await.unwrap();
    }
    let answer = raw::one_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

/// A body of which nothing ever comes.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_silent_body_on_http2_is_told_408_while_other_requests_go_on() {
    let world = World::with(impatient).await;
    let stream = TcpStream::connect(world.address()).await.unwrap();
    let handshake = http2::handshake::<_, _, Never>(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let ask = Ask::post(DOCS, "").key("a");
    let answers = [ask.clone(), ask].map(|ask| {
        let mut request = Request::post(format!("http://{}{}", world.address(), ask.path));
        for (name, value) in ask.signature(&world.keys).into_iter().chain(ask.headers) {
            request = request.header(name, value);
        }
        sender.send_request(request.body(Never).unwrap())
    });
    for answer in answers {
        let (answer, took) = time::timed(time::soon("an answer", answer)).await;
        assert_eq!(answer.unwrap().status(), 408);
        assert!(took < AT_LATEST);
    }
    assert!(sender.ready().await.is_ok(), "the connection stays");
}

#[tokio::test]
async fn a_client_that_dribbles_the_preface_of_http2_is_closed() {
    let world = World::with(impatient).await;
    let stream = raw::connect(world.address()).await;
    let (came, took) = raw::dribble(stream, &PREFACE[..4], &PREFACE[4..], STEP).await;
    assert_eq!(came, "", "the preface was not complete in time");
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_the_preface_is_closed() {
    let world = World::with(impatient).await;
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(&PREFACE[..PREFACE.len() - 1]).await.unwrap();
    let (_, took) = time::timed(raw::until_closed(&mut stream)).await;
    assert_in_time(took);
}

#[tokio::test]
async fn a_silent_client_of_http2_is_closed_when_it_does_not_answer_pings() {
    let world = World::with(impatient).await;
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(PREFACE).await.unwrap();
    let (_, took) = time::timed(raw::until_closed(&mut stream)).await;
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_dribbles_a_frame_of_http2_is_closed() {
    let world = World::with(impatient).await;
    let stream = raw::connect(world.address()).await;
    // Empty SETTINGS, then a HEADERS frame of 16,000 bytes that never becomes complete.
    let mut first = PREFACE.to_vec();
    first.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    first.extend_from_slice(&[0, 0x3e, 0x80, 1, 4, 0, 0, 0, 1]);
    let (_, took) = raw::dribble(stream, &first, &[0x82], STEP).await;
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_of_http2_that_answers_pings_stays() {
    let world = World::with(impatient).await;
    let mut client = world.client_by(&Wire::Two).await;
    client.send(Ask::get("/")).await.expect(200);
    time::pause(PATIENCE * 5).await;
    client.send(Ask::get("/")).await.expect(200);
}

#[tokio::test]
async fn a_client_that_says_nothing_in_the_tls_handshake_is_closed() {
    let (world, _) = secure(impatient).await;
    let mut stream = raw::connect(world.address()).await;
    let (came, took) = time::timed(raw::until_closed(&mut stream)).await;
    assert_eq!(came, b"");
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_dribbles_the_tls_handshake_is_closed() {
    let (world, _) = secure(impatient).await;
    let stream = raw::connect(world.address()).await;
    // A record of 512 bytes of handshake, a client's hello of which never comes more than a few.
    let (_, took) = raw::dribble(stream, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc], &[3], STEP).await;
    assert_in_time(took);
}

#[tokio::test]
async fn a_client_that_says_nothing_after_the_tls_handshake_is_closed() {
    let (world, pem) = secure(impatient).await;
    for protocols in [&["http/1.1"][..], &["h2"], &[]] {
        let mut stream = trust::connect(raw::connect(world.address()).await, &pem, protocols).await.unwrap();
        let (_, took) = time::timed(raw::until_closed(&mut stream)).await;
        assert_in_time(took);
    }
}

#[tokio::test]
async fn a_client_that_dribbles_after_the_tls_handshake_is_closed() {
    let (world, pem) = secure(impatient).await;
    for (protocol, first, each) in [("http/1.1", &b"GET / HTTP/1.1\r\n"[..], &b"x-a: 1\r\n"[..]), ("h2", b"PRI", b" ")]
    {
        let stream = trust::connect(raw::connect(world.address()).await, &pem, &[protocol]).await.unwrap();
        // Nothing that is wrong comes before the time is over.
        let each = if protocol == "h2" { &PREFACE[3..] } else { each };
        let (_, took) = raw::dribble(stream, first, each, STEP).await;
        assert_in_time(took);
    }
}

#[tokio::test]
async fn slow_clients_do_not_keep_others_waiting() {
    let world = World::with(|builder| builder.limits(Limits::default())).await;
    let mut silent = Vec::new();
    for first in [&b""[..], b"GET / HT", b"PRI * HTTP/2.0", PREFACE] {
        for _ in 0..20 {
            let mut stream = raw::connect(world.address()).await;
            stream.write_all(first).await.unwrap();
            silent.push(stream);
        }
    }
    for wire in [Wire::One, Wire::Two] {
        Client::connect(world.address(), &wire, world.keys.clone()).await.send(Ask::get("/dbs")).await.expect(200);
    }
    drop(silent);
}

#[tokio::test]
async fn clients_that_have_not_asked_yet_do_not_delay_the_end() {
    let limits = Limits { grace: time::LONG * 10, ..Limits::default() };
    for is_secure in [false, true] {
        let (world, pem) = if is_secure {
            secure(|builder| builder.limits(limits.clone())).await
        } else {
            (World::with(|builder| builder.limits(limits.clone())).await, String::new())
        };
        let mut silent = Vec::new();
        for first in [&b""[..], b"PRI * HTTP/2.0", &[0x16, 3, 1]] {
            let mut stream = raw::connect(world.address()).await;
            stream.write_all(first).await.unwrap();
            silent.push(stream);
        }
        let shaken = if is_secure {
            Some(trust::connect(raw::connect(world.address()).await, &pem, &["h2"]).await.unwrap())
        } else {
            None
        };
        // Those that come later are behind the silent ones, so all are accepted.
        let wire = if is_secure { Wire::TlsOne(pem) } else { Wire::One };
        world.client_by(&wire).await.send(Ask::get("/")).await.expect(200);
        time::soon("stopping", world.server.stop()).await;
        drop((silent, shaken));
    }
}
