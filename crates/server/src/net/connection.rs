//! One connection: which HTTP it speaks, and its requests one after the other.

use std::{
    convert::Infallible,
    future::Future,
    io::Cursor,
    net::IpAddr,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::{
    Method, Response, StatusCode, Uri, Version as HttpVersion,
    body::Incoming,
    header::{self, HeaderValue},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    sync::watch,
};

use super::{
    body,
    failures::Failures,
    memory::MemoryBudget,
    response_body::{ResponseBody, Unread},
    timer::{Waits, pause, within},
    write_timeout::WriteTimeout,
};
use crate::{
    Limits,
    activity::Activities,
    exchange::{Reply, Request},
    names,
    path::Path,
    problem::{Answer, Problem},
    service::Service,
    storage,
};

/// What a client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The most headers of a request that hyper takes unless told otherwise.
const HYPER_MAX_HEADERS: usize = 100;

/// The body of a refused request is read away up to this length.
const SMALL_BODY_BYTES: usize = 64 * 1024;

/// How often a connection that has not decided on its version yet is looked at.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// The two versions of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) service: Service,
    pub(crate) limits: Limits,
    pub(crate) failures: Failures,
    pub(crate) activities: Activities,
    pub(crate) memory: Arc<MemoryBudget>,
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether the connection is encrypted.
    pub(crate) secure: bool,
}

/// Looks at the first bytes of a plain connection without taking them; none if they do not come in time.
pub(crate) async fn version(stream: &TcpStream, limits: &Limits) -> Option<Version> {
    let mut first = [0; PREFACE.len()];
    let decide = async {
        loop {
            let count = stream.peek(&mut first).await.ok().filter(|count| *count > 0)?;
            let seen = first.get(..count)?;
            if !PREFACE.starts_with(seen) {
                return Some(Version::One);
            }
            if count == PREFACE.len() {
                return Some(Version::Two);
            }
            pause(LOOK).await;
        }
    };
    within(limits.header_timeout, decide).await.flatten()
}

/// A connection whose preface of HTTP/2 has come; none if it does not come in time. Hyper itself would wait for ever.
pub(crate) async fn after_preface<S>(
    mut stream: S,
    limits: &Limits,
) -> Option<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut preface = [0; PREFACE.len()];
    within(limits.header_timeout, stream.read_exact(&mut preface)).await?.ok()?;
    let (rest, writer) = tokio::io::split(stream);
    Some(tokio::io::join(Cursor::new(preface).chain(rest), writer))
}

/// Serves a connection until it ends, or until `stop` and its last request has been answered.
pub(crate) async fn serve<I>(io: I, version: Version, peer: Peer, serving: Arc<Serving>, stop: watch::Receiver<bool>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = serving.limits.clone();
    let io = TokioIo::new(WriteTimeout::new(io, limits.write_timeout));
    let unread = (version == Version::Two).then(Arc::<Unread>::default);
    let of_connection = unread.clone();
    let service = service_fn(move |request| {
        let (serving, unread) = (Arc::clone(&serving), of_connection.clone());
        async move { Ok::<_, Infallible>(respond(&serving, request, peer, unread.as_ref()).await) }
    });
    match version {
        Version::One => {
            let waits = Waits::default();
            let mut builder = http1::Builder::new();
            builder
                .timer(waits.clone())
                .header_read_timeout(limits.header_timeout)
                .max_buf_size(limits.max_header_bytes);
            // Other limits than hyper's own cost an allocation for each request.
            if limits.max_headers != HYPER_MAX_HEADERS {
                builder.max_headers(limits.max_headers);
            }
            let connection = pin!(builder.serve_connection(io, service));
            let ticking = async { match waits.tick(limits.header_timeout).await {} };
            drive(connection, http1::Connection::graceful_shutdown, stop, ticking).await;
        }
        Version::Two => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.max_streams)
                .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .keep_alive_interval(limits.keep_alive)
                .keep_alive_timeout(limits.keep_alive);
            let connection = pin!(builder.serve_connection(io, service));
            let unread = unread.unwrap_or_default();
            drive(connection, http2::Connection::graceful_shutdown, stop, unread.stalled(limits.write_timeout)).await;
        }
    }
}

/// Lets a connection go on until it ends, or until `stop` and its last request has been answered. `stalled` runs beside
/// it all the time, and ends it when it ends.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    shut_down: impl FnOnce(Pin<&mut C>),
    mut stop: watch::Receiver<bool>,
    stalled: impl Future<Output = ()>,
) where
    C: Future<Output = hyper::Result<()>>,
{
    let mut stalled = pin!(stalled);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        _ = stop.wait_for(|stop| *stop) => None,
        () = stalled.as_mut() => return tracing::debug!("a client did not read its responses: connection closed"),
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            shut_down(connection.as_mut());
            tokio::select! {
                biased;
                ended = connection => ended,
                () = stalled => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Answers one request; a panic on the way is a 500 for this request only.
async fn respond(
    serving: &Serving,
    mut request: hyper::Request<Incoming>,
    peer: Peer,
    unread: Option<&Arc<Unread>>,
) -> Response<ResponseBody> {
    let activity = request.headers().get(&names::ACTIVITY_ID).filter(|given| given.len() <= 64).cloned();
    let activity = activity.unwrap_or_else(|| serving.activities.next());
    let (method, uri) = (request.method().clone(), std::mem::take(request.uri_mut()));
    let one = request.version() < HttpVersion::HTTP_2;
    let mut body_is_read = false;
    let answer = answer(serving, &uri, request, peer.secure, &mut body_is_read);
    let answered = AssertUnwindSafe(answer).catch_unwind().await;
    let mut close = false;
    let mut reply = match answered {
        Ok(Ok(reply)) => reply,
        Ok(Err(problem)) => {
            // The rest of a body that was not read would have to be read before the next request.
            let gave_up = matches!(
                problem.status,
                StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::REQUEST_TIMEOUT
                    | StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN
            );
            close = one && gave_up && !body_is_read;
            if problem.status == StatusCode::UNAUTHORIZED {
                pause(serving.failures.note(peer.address, serving.service.clock.wall())).await;
            }
            Reply::problem(&problem, shown(&activity))
        }
        Err(_) => {
            tracing::error!(%method, path = uri.path(), "a request made the server panic: please report it");
            Reply::problem(&Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error"), shown(&activity))
        }
    };
    tracing::debug!(%method, path = uri.path(), status = reply.status.as_u16(), ?activity, "answered");
    reply.finish(activity);
    if close {
        reply.set(&header::CONNECTION, HeaderValue::from_static("close"));
    }
    let mut response = Response::new(ResponseBody::new(reply.body, &serving.memory, unread));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

fn shown(activity: &HeaderValue) -> &str {
    activity.to_str().unwrap_or("")
}

async fn answer(
    serving: &Serving,
    uri: &Uri,
    request: hyper::Request<Incoming>,
    secure: bool,
    body_is_read: &mut bool,
) -> Answer<Reply> {
    let (parts, body) = request.into_parts();
    let limits = &serving.limits;
    // On HTTP/1.1 hyper has looked at that; on HTTP/2 it counts bytes only.
    if parts.headers.len() > limits.max_headers {
        let most = limits.max_headers;
        let message = format!("the request has more than {most} headers, which is the most");
        return Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    let raw_path = uri.path();
    if raw_path == storage::HEALTH_PATH && parts.method == Method::GET {
        return Ok(storage::health(serving.service.storage.as_deref()));
    }
    let path = Path::parse(raw_path).map_err(|bad| match bad {
        crate::path::BadPath::Unknown => Problem::not_found(bad.message()),
        _ => Problem::bad_request(bad.message()),
    })?;
    let authority = uri.authority().map(hyper::http::uri::Authority::as_str);
    let mut request =
        Request { method: parts.method, path, headers: parts.headers, body: Bytes::new(), authority, secure };
    // Nobody makes us hold a body without a key. What is small is read away, so that the connection can stay.
    let access = match serving.service.authorize(&request) {
        Ok(access) => access,
        Err(problem) => {
            *body_is_read =
                body::read(body, SMALL_BODY_BYTES.min(limits.max_body_bytes), limits.body_timeout).await.is_ok();
            return Err(problem);
        }
    };
    serving.memory.admit()?;
    request.body = body::read(body, limits.max_body_bytes, limits.body_timeout).await?;
    *body_is_read = true;
    let _held = serving.memory.hold(request.body.len());
    serving.service.answer(&request, raw_path, access).await
}
