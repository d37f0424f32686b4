//! The HTTP client: connections, TLS, versions.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{Error, ErrorKind, Result};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::trust::Anyone;

/// Idle connections are closed by the client: earlier than by the server, which waits 60 s for the next request. A
/// request that meets a closing connection would leave a write unknown.
const IDLE: Duration = Duration::from_secs(20);

/// How often a silent connection is tested, and how long the test may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How much is read from a connection of HTTP/1.1 at once: large enough for few reads, and small enough to stay in the
/// caches of a core, and below the size from which the allocator gets memory from the system each time.
const READ_BYTES: usize = 120 << 10;

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
pub(crate) type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Whose certificates are trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust<'a> {
    /// Those that the operating system trusts.
    System,
    /// These, in PEM form.
    Certificates(&'a str),
    /// Any: for a server on this machine.
    Anyone,
}

/// Makes a client.
pub(crate) fn client(secure: bool, version: HttpVersion, trust: Trust<'_>, connect_timeout: Duration) -> Result<Http> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_connect_timeout(Some(connect_timeout));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(secure, trust)?).https_or_http();
    let connector = match version {
        HttpVersion::Auto => connector.enable_all_versions().wrap_connector(tcp),
        HttpVersion::Http1 => connector.enable_http1().wrap_connector(tcp),
        HttpVersion::Http2 => connector.enable_http2().wrap_connector(tcp),
    };
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
    Ok(builder.build(connector))
}

fn tls(secure: bool, trust: Trust<'_>) -> Result<ClientConfig> {
    let refused = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Certificates(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| refused(unreadable(&error)))?;
                roots.add(certificate).map_err(|error| refused(unreadable(&error)))?;
            }
            if roots.is_empty() {
                return Err(refused(
                    "the certificate holds no BEGIN CERTIFICATE block: pass it in PEM form".to_owned(),
                ));
            }
        }
        // What cannot be read is missing later, and the refused certificate is then named.
        Trust::System if secure => {
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::System | Trust::Anyone => {}
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(format!("set up TLS: {error}")))?;
    if let Trust::Anyone = trust {
        let anyone = Arc::new(Anyone(Arc::new(ring::default_provider())));
        return Ok(config.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth());
    }
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn unreadable(error: &dyn fmt::Display) -> String {
    format!("the certificate cannot be read: {error}: pass it in PEM form")
}
