//! Connections of clients of the SDK, which speak HTTP/2 from the start, and of others, which speak HTTP/1.1.

use std::io;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// How each connection of HTTP/2 begins.
const PREFACE: &[u8; 3] = b"PRI";

/// Answers the requests of a connection until it ends. An error ends it.
pub(crate) async fn serve<A>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> A + Send)
where
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let mut first = [0; PREFACE.len()];
    while stream.peek(&mut first).await.is_ok_and(|read| (1..PREFACE.len()).contains(&read)) {}
    let (stream, answer) = (TokioIo::new(stream), service_fn(answer));
    // A client may leave at any time.
    if first == *PREFACE {
        drop(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await);
    } else {
        drop(http1::Builder::new().serve_connection(stream, answer).await);
    }
}
