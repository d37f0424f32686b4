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
    time::Instant,
};

use super::{
    body,
    limits::Limits,
    response_body::{ResponseBody, Unread},
    timeouts::{ConnectionTimer, pause, within},
    write_timeout::WriteTimeout,
};
use crate::{
    error::{ApiError, ApiResult},
    handlers::{
        health,
        metrics::{self, Asker},
    },
    headers,
    metrics::{Kind, Measured},
    router::{
        self,
        path::{BadPath, Path},
    },
    state::ServerState,
    wire::http::{Reply, Request},
};

/// The connection preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The default of hyper for the number of headers.
const HYPER_MAX_HEADERS: usize = 100;

/// The body of a refused request is read and dropped up to this length.
const SMALL_BODY_BYTES: usize = 64 * 1024;

/// How often a connection is polled whose preface is incomplete.
const PREFACE_POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// The two versions of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether the connection is encrypted.
    pub(crate) secure: bool,
}

/// Peeks at the first bytes of a plain connection to find its version of HTTP; none if they do not arrive in time.
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
            pause(PREFACE_POLL).await;
        }
    };
    within(limits.header_timeout, decide).await.flatten()
}

/// Waits for the preface of HTTP/2; none if it does not arrive in time. Hyper itself has no limit here.
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
pub(crate) async fn serve_connection<I>(
    io: I,
    version: Version,
    peer: Peer,
    state: Arc<ServerState>,
    stop: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = state.limits.clone();
    let io = TokioIo::new(WriteTimeout::new(io, limits.write_timeout));
    let unread = (version == Version::Two).then(Arc::<Unread>::default);
    let of_connection = unread.clone();
    let service = service_fn(move |request| {
        let (state, unread) = (Arc::clone(&state), of_connection.clone());
        async move { Ok::<_, Infallible>(respond(&state, request, peer, unread.as_ref()).await) }
    });
    match version {
        Version::One => {
            let timer = ConnectionTimer::default();
            let mut builder = http1::Builder::new();
            builder
                .timer(timer.clone())
                .header_read_timeout(limits.header_timeout)
                .max_buf_size(limits.max_header_bytes);
            // Other limits than hyper's own cost an allocation for each request.
            if limits.max_headers != HYPER_MAX_HEADERS {
                builder.max_headers(limits.max_headers);
            }
            let connection = pin!(builder.serve_connection(io, service));
            let ticking = async { match timer.tick(limits.header_timeout).await {} };
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

/// Drives a connection until it ends, or until `stop` and its last request has been answered. `stalled` runs beside
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
        () = stalled.as_mut() => return tracing::debug!("connection closed: the client did not read its responses"),
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
        tracing::debug!(%error, "connection ended with an error");
    }
}

/// Answers one request; a panic of its handler is a 500 for this request only.
async fn respond(
    state: &ServerState,
    mut request: hyper::Request<Incoming>,
    peer: Peer,
    unread: Option<&Arc<Unread>>,
) -> Response<ResponseBody> {
    let activity = request.headers().get(&headers::ACTIVITY_ID).filter(|given| given.len() <= 64).cloned();
    let activity = activity.unwrap_or_else(|| state.activity_ids.next());
    let (method, uri) = (request.method().clone(), std::mem::take(request.uri_mut()));
    let one = request.version() < HttpVersion::HTTP_2;
    let (mut body_is_read, mut measured, begun) = (false, Measured::default(), Instant::now());
    let answer = answer(state, &uri, request, peer, &mut body_is_read, &mut measured);
    let answered = AssertUnwindSafe(answer).catch_unwind().await;
    let mut close = false;
    let mut reply = match answered {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            // The rest of a body that was not read would have to be read before the next request.
            let gave_up = matches!(
                error.status,
                StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::REQUEST_TIMEOUT
                    | StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN
            );
            close = one && gave_up && !body_is_read;
            if error.status == StatusCode::UNAUTHORIZED {
                pause(state.auth_throttle.delay(peer.address, state.clock.wall())).await;
            }
            Reply::error(&error, shown(&activity))
        }
        Err(_) => {
            tracing::error!(%method, path = uri.path(), "a request caused a panic: please report it");
            Reply::error(&ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error"), shown(&activity))
        }
    };
    tracing::debug!(%method, path = uri.path(), status = reply.status.as_u16(), ?activity, "request answered");
    state.metrics.answered(measured, reply.status, reply.body.len(), begun.elapsed());
    reply.finish(activity);
    if close {
        reply.set(&header::CONNECTION, HeaderValue::from_static("close"));
    }
    let mut response = Response::new(ResponseBody::new(reply.body, &state.memory, unread));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

fn shown(activity: &HeaderValue) -> &str {
    activity.to_str().unwrap_or("")
}

async fn answer(
    state: &ServerState,
    uri: &Uri,
    request: hyper::Request<Incoming>,
    peer: Peer,
    body_is_read: &mut bool,
    measured: &mut Measured,
) -> ApiResult<Reply> {
    let (parts, body) = request.into_parts();
    let limits = &state.limits;
    // On HTTP/1.1 hyper has looked at that; on HTTP/2 it counts bytes only.
    if parts.headers.len() > limits.max_headers {
        let most = limits.max_headers;
        let message = format!("the request has more than {most} headers, which is the most");
        return Err(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    let raw_path = uri.path();
    let authority = uri.authority().map(hyper::http::uri::Authority::as_str);
    if parts.method == Method::GET {
        if matches!(raw_path, health::HEALTH_PATH | health::READY_PATH) {
            measured.kind = Kind::Health;
            return Ok(health::read(state.storage.as_deref()));
        }
        if raw_path == metrics::METRICS_PATH {
            measured.kind = Kind::Metrics;
            let asker = Asker { address: peer.address, headers: &parts.headers, authority };
            return metrics::read(state.render_metrics.as_ref(), &state.keys.read(), &state.account_hosts, asker);
        }
    }
    let path = Path::parse(raw_path).map_err(|bad| match bad {
        BadPath::Unknown => ApiError::not_found(bad.message()),
        _ => ApiError::bad_request(bad.message()),
    })?;
    measured.kind = Kind::of(&parts.method, &path.target, &parts.headers);
    let secure = peer.secure;
    let mut request =
        Request { method: parts.method, path, headers: parts.headers, body: Bytes::new(), authority, secure };
    // A body is only kept after authentication. A small one is read and dropped, so that the connection stays usable.
    let access = match router::authorize(state, &request) {
        Ok(access) => access,
        Err(error) => {
            *body_is_read =
                body::read(body, SMALL_BODY_BYTES.min(limits.max_body_bytes), limits.body_timeout).await.is_ok();
            return Err(error);
        }
    };
    state.memory.admit()?;
    request.body = body::read(body, limits.max_body_bytes, limits.body_timeout).await?;
    *body_is_read = true;
    measured.request_bytes = request.body.len();
    let _held = state.memory.hold(request.body.len());
    router::answer(state, &request, raw_path, access).await
}
