//! The HTTP endpoint of `run --metrics`: `/metrics`, `/healthz`, `/readyz`.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed::remote::trust::is_loopback;
use hmac::{Hmac, Mac as _};
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::Value;
use sha2::Sha256;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use super::{probe::Probe, upkeep};
use crate::{args::MetricsArgs, clock, exit::Result, keys};

/// Connections at once: a monitoring system needs one or two.
const MAX_CONNECTIONS: usize = 32;

/// How long a client may take for its headers, also between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// How long to wait when the system gives no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A secret that is shorter can be guessed.
const LEAST_KEY_BYTES: usize = 16;

/// Who may read the metrics. Health and readiness are open to anybody who reaches the endpoint.
enum Access {
    /// Clients on this machine, under a name of this machine: a page in a browser may be made to ask under another.
    ThisMachine,
    /// Whoever shows the key.
    Key(Hmac<Sha256>),
    Anybody,
}

/// A listening endpoint; it ends when this is dropped.
pub(crate) struct Endpoint {
    _tasks: JoinSet<()>,
}

struct Shared {
    access: Access,
    probe: Probe,
    handle: PrometheusHandle,
}

impl Endpoint {
    /// Refuses what [`Endpoint::start`] would refuse, and listens no longer than that takes.
    pub(crate) async fn check(args: &MetricsArgs, address: SocketAddr) -> Result<()> {
        Access::of(args, address)?;
        listen(address).await.map(drop)
    }

    /// Listens, and says where.
    ///
    /// # Errors
    /// If others could reach the endpoint and nothing says that they may; if the address is taken.
    pub(crate) async fn start(args: &MetricsArgs, address: SocketAddr, probe: Probe) -> Result<Self> {
        let access = Access::of(args, address)?;
        let listener = listen(address).await?;
        let handle = super::install()?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "metrics at http://{address}/metrics");
        let shared = Arc::new(Shared { access, probe, handle: handle.clone() });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared));
        tasks.spawn(upkeep(handle));
        Ok(Self { _tasks: tasks })
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    Ok(bound.map_err(|error| format!("listen on {address}: {error}: choose another address with --metrics"))?)
}

impl Access {
    fn of(args: &MetricsArgs, address: SocketAddr) -> Result<Self> {
        if let Some(file) = &args.metrics_key_file {
            if !address.ip().is_loopback() && !args.allow_plain {
                return Err(format!(
                    "listening on {address} without TLS shows the key of {} to the network: pass a port alone, or \
                     --allow-plain if something in front speaks TLS",
                    file.display()
                )
                .into());
            }
            return Ok(Self::Key(proof(&key(file)?)?));
        }
        if address.ip().is_loopback() {
            return Ok(Self::ThisMachine);
        }
        if args.metrics_open {
            return Ok(Self::Anybody);
        }
        Err(format!(
            "others can reach {address}: pass --metrics-key-file FILE with the key that they have to send, and \
             --allow-plain if something in front speaks TLS, or --metrics-open if anybody may read the metrics"
        )
        .into())
    }

    /// Whether a request with these headers may read the metrics; if not, what to do.
    fn check(&self, headers: &HeaderMap) -> std::result::Result<(), (StatusCode, &'static str)> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        match self {
            Self::Anybody => Ok(()),
            Self::ThisMachine => match text(header::HOST) {
                Some(host) if !is_loopback(without_port(host)) => {
                    Err((StatusCode::FORBIDDEN, "ask under the name localhost or a loopback address"))
                }
                _ => Ok(()),
            },
            Self::Key(expected) => {
                let shown = text(header::AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
                let shown = shown.and_then(|shown| proof(shown.trim()).ok());
                // Compared by what they sign, in constant time.
                let fits =
                    shown.is_some_and(|shown| expected.clone().verify_slice(&shown.finalize().into_bytes()).is_ok());
                match fits {
                    true => Ok(()),
                    false => Err((
                        StatusCode::UNAUTHORIZED,
                        "send `Authorization: Bearer KEY`, with the key of the key file",
                    )),
                }
            }
        }
    }
}

/// The key in a file, without the white space around it.
fn key(file: &Path) -> Result<String> {
    let text = keys::read(file)?;
    let key = text.trim();
    if key.len() < LEAST_KEY_BYTES || key.contains(char::is_whitespace) {
        let shown = file.display();
        return Err(format!(
            "{shown} must hold one key of at least {LEAST_KEY_BYTES} characters: make one with `openssl rand -hex 32`"
        )
        .into());
    }
    Ok(key.to_owned())
}

fn proof(key: &str) -> Result<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes())?;
    mac.update(b"metrics");
    Ok(mac)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match (accepted, Arc::clone(&slots).try_acquire_owned()) {
            (Ok((stream, _)), Ok(slot)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let _slot = slot;
                    serve(stream, shared).await;
                });
            }
            (Ok((_, peer)), Err(_)) => tracing::warn!(%peer, "a connection to the metrics was refused: too many"),
            (Err(error), _) => {
                tracing::warn!(%error, "a connection to the metrics could not be accepted");
                clock::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, &request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to the metrics ended early");
    }
}

async fn answer<B>(shared: &Shared, request: &Request<B>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
    }
    match request.uri().path() {
        "/metrics" => match shared.access.check(request.headers()) {
            Ok(()) => typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", shared.handle.render()),
            Err((status, what)) => plain(status, what),
        },
        "/healthz" => state(shared.probe.health().await),
        "/readyz" => state(shared.probe.readiness().await),
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz"),
    }
}

fn state((good, body): (bool, Value)) -> Response<Full<Bytes>> {
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    typed(status, "application/json", body.to_string())
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn typed(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
