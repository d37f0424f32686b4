//! The HTTP client: connections, TLS, versions.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{Error, ErrorKind, Result};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, client::danger::ServerCertVerifier, crypto::ring};

use crate::{
    connector::Connector,
    roots::{Roots, Source, in_pem},
    trust::Anyone,
};

/// Idle connections are closed by the client: earlier than by the server, which waits 60 s for the next request. A
/// request that meets a closing connection would leave a write unknown.
const IDLE: Duration = Duration::from_secs(20);

/// How often a silent connection is tested, and how long the test may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A connection whose packets are dropped silently ends after [`KEEP_ALIVE`] and this many unanswered probes, also while
/// it waits for a long request: the defaults of most systems would take eleven minutes.
const PROBES: u32 = 2;
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// How much is read from a connection of HTTP/1.1 at once: large enough for few reads, and small enough to stay in the
/// caches of a core, and below the size from which the allocator gets memory from the system each time.
pub(crate) const READ_BYTES: usize = 120 << 10;

/// A feed page is sent without waiting for the client in between.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Which version of HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpVersion {
    /// With TLS what the server prefers, HTTP/1.1 without.
    #[default]
    Auto,
    /// HTTP/1.1: one connection for each request under way.
    Http1,
    /// HTTP/2: one connection for all.
    Http2,
}

/// A client that keeps connections.
pub(crate) type Http = Client<Connector, Full<Bytes>>;

/// Whose certificates are trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust<'a> {
    /// Those that the operating system trusts.
    System,
    /// These, in PEM form.
    Certificates(&'a str),
    /// Those in a file in PEM form, which may change.
    File(&'a Path),
    /// Any: for a server on this machine.
    Anyone,
}

/// Makes a client.
pub(crate) fn client(secure: bool, version: HttpVersion, trust: Trust<'_>, connect_timeout: Duration) -> Result<Http> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(PROBE_INTERVAL));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_connect_timeout(Some(connect_timeout));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(secure, trust)?).https_or_http();
    let connector = match version {
        HttpVersion::Auto => connector.enable_all_versions().wrap_connector(tcp),
        HttpVersion::Http1 => connector.enable_http1().wrap_connector(tcp),
        HttpVersion::Http2 => connector.enable_http2().wrap_connector(tcp),
    };
    Ok(build(Connector::Network(connector), version))
}

/// Makes a client that connects to a socket in the file system.
pub(crate) fn socket_client(path: &Path) -> Http {
    build(Connector::Socket(path.into()), HttpVersion::Http1)
}

fn build(connector: Connector, version: HttpVersion) -> Http {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http1_max_buf_size(READ_BYTES)
        .http2_only(version == HttpVersion::Http2)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE);
    builder.build(connector)
}

fn tls(secure: bool, trust: Trust<'_>) -> Result<ClientConfig> {
    let refused = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(format!("set up TLS: {error}")))?;
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Certificates(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in in_pem(pem.as_bytes()).map_err(refused)? {
                roots.add(certificate).map_err(|error| refused(format!("the certificate cannot be used: {error}")))?;
            }
            return Ok(config.with_root_certificates(roots).with_no_client_auth());
        }
        Trust::File(path) => Arc::new(Roots::load(Source::File(path.to_owned()), provider)?),
        Trust::System if secure => Arc::new(Roots::load(Source::System, provider)?),
        Trust::System => return Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth()),
        Trust::Anyone => Arc::new(Anyone(provider)),
    };
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}
