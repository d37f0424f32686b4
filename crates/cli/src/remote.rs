//! A server at the other end of a connection: one signed request at a time.

use std::{fs, sync::Arc};

use bytes::Bytes;
use changefeed::remote::trust::{Anyone, is_loopback};
use changefeed_server::auth::Keys;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Uri, client::conn::http1};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{args::StoreArgs, clock, exit::Result, keys};

/// What stands in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'=');

/// A server.
#[derive(Debug)]
pub(crate) struct Remote {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    keys: Keys,
}

impl Remote {
    pub(crate) fn new(args: &StoreArgs) -> Result<Self> {
        let uri: Uri = args.store.parse().map_err(|error| format!("--store {}: {error}", args.store))?;
        let host = uri.host().ok_or_else(|| format!("--store {}: a URL needs a host", args.store))?.to_owned();
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let is_loopback = is_loopback(&host);
        let keys = Keys::parse(&keys::of_client(args, &host)?)?;
        let tls = secure.then(|| tls(args, is_loopback)).transpose()?;
        Ok(Self { host, port, tls, keys })
    }

    /// One request; its answer as JSON.
    pub(crate) async fn call(&self, method: &Method, path: &[&str], body: Option<Value>) -> Result<Value> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, self.port))
            .await
            .map_err(|error| format!("connect to {}:{}: is the server running? {error}", self.host, self.port))?;
        match &self.tls {
            None => self.exchange(stream, method, path, body).await,
            Some(config) => {
                let name = ServerName::try_from(host.to_owned())?;
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = connector.connect(name, stream).await.map_err(|error| {
                    format!("speak TLS with {}: {error}; pass its certificate with --ca-file", self.host)
                })?;
                self.exchange(stream, method, path, body).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, method: &Method, path: &[&str], body: Option<Value>) -> Result<Value>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = self.request(method, path, body)?;
        let answer = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((status, body))
        };
        let (ended, answer) = tokio::join!(connection, answer);
        let (status, body) = answer?;
        drop(ended);
        let value: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
        if status.is_success() {
            return Ok(value);
        }
        let message = value.get("message").and_then(Value::as_str).unwrap_or("");
        Err(format!("the server answered {}: {}", status.as_u16(), plain(message)).into())
    }

    fn request(&self, method: &Method, path: &[&str], body: Option<Value>) -> Result<Request<Full<Bytes>>> {
        let date = httpdate::fmt_http_date(clock::date());
        // A feed is signed with the link of its owner, our own calls with their whole path.
        let (kind, link) = match path {
            ["_changefeed", ..] => ("_changefeed", path.join("/")),
            [owner @ .., kind] => (*kind, owner.join("/")),
            [] => ("", String::new()),
        };
        let signature = self.keys.sign(method.as_str(), kind, &link, &date).ok_or("there is no key to sign with")?;
        let encoded: Vec<String> = path.iter().map(|part| utf8_percent_encode(part, PLAIN).to_string()).collect();
        Ok(Request::builder()
            .method(method)
            .uri(format!("/{}", encoded.join("/")))
            .header("host", format!("{}:{}", self.host, self.port))
            .header("x-ms-date", date)
            .header("x-ms-version", "2020-07-15")
            .header("authorization", signature)
            .header("connection", "close")
            .body(Full::new(body.map(|body| Bytes::from(body.to_string())).unwrap_or_default()))?)
    }
}

/// The sentence inside the message of an error.
fn plain(message: &str) -> String {
    let inner = message.strip_prefix("Message: ").and_then(|rest| rest.split("\r\n").next());
    let errors = inner.and_then(|inner| serde_json::from_str::<Value>(inner).ok());
    let first = errors.as_ref().and_then(|errors| errors.pointer("/Errors/0")).and_then(Value::as_str);
    first.unwrap_or(message).to_owned()
}

fn tls(args: &StoreArgs, is_loopback: bool) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let config = match &args.ca_file {
        Some(file) => {
            let pem = fs::read(file).map_err(|error| format!("read {}: {error}", file.display()))?;
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate?)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None if is_loopback => {
            let anyone = Arc::new(Anyone(provider));
            builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
        }
        None => return Err("https:// needs --ca-file with the certificate that vouches for the server".into()),
    };
    Ok(Arc::new(config))
}
