//! A client that signs each request, over one connection that it keeps.

use std::{
    net::{IpAddr, SocketAddr},
    time::SystemTime,
};

use bytes::Bytes;
use changefeed_server::{auth::Keys, path::Path};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpSocket,
    task::JoinSet,
};

use super::{time, trust};

/// How a client reaches the server. TLS with the certificate that is trusted.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    One,
    Two,
    TlsOne(String),
    TlsTwo(String),
}

/// A request to be signed and sent.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// Signed by another key, for another verb or path, or at another time.
    pub(crate) keys: Option<Keys>,
    pub(crate) signed_verb: Option<String>,
    pub(crate) signed_path: Option<String>,
    pub(crate) at: Option<SystemTime>,
    pub(crate) unsigned: bool,
}

impl Ask {
    pub(crate) fn new(method: &str, path: impl Into<String>) -> Self {
        Self {
            method: method.to_owned(),
            path: path.into(),
            headers: Vec::new(),
            body: Bytes::new(),
            keys: None,
            signed_verb: None,
            signed_path: None,
            at: None,
            unsigned: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: impl Into<String>, body: impl ToString) -> Self {
        Self::new("POST", path).body(body.to_string())
    }

    pub(crate) fn put(path: impl Into<String>, body: impl ToString) -> Self {
        Self::new("PUT", path).body(body.to_string())
    }

    pub(crate) fn patch(path: impl Into<String>, body: impl ToString) -> Self {
        Self::new("PATCH", path).body(body.to_string())
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// With the partition key `[value]`.
    pub(crate) fn key(self, value: &str) -> Self {
        let value = Value::from(value);
        self.with("x-ms-documentdb-partitionkey", format!("[{value}]"))
    }

    /// For one physical range.
    pub(crate) fn range(self, id: &str) -> Self {
        self.with("x-ms-documentdb-partitionkeyrangeid", id)
    }

    /// As a read of the change feed.
    pub(crate) fn feed(self) -> Self {
        self.with("a-im", "Incremental Feed")
    }

    /// As a read of the feed of all versions and deletes.
    pub(crate) fn all_versions(self) -> Self {
        self.with("a-im", "Full-Fidelity Feed").with("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15")
    }

    /// As a query.
    pub(crate) fn query(path: impl Into<String>, sql: &str) -> Self {
        Self::post(path, serde_json::json!({ "query": sql }))
            .with("content-type", "application/query+json")
            .with("x-ms-documentdb-isquery", "True")
    }

    /// As a transactional batch.
    pub(crate) fn batch(path: impl Into<String>, operations: &Value) -> Self {
        Self::post(path, operations)
            .with("x-ms-cosmos-is-batch-request", "True")
            .with("x-ms-cosmos-batch-atomic", "True")
            .with("x-ms-cosmos-batch-continue-on-error", "False")
    }

    /// The headers that sign it: date and authorization.
    pub(crate) fn signature(&self, keys: &Keys) -> Vec<(String, String)> {
        if self.unsigned {
            return Vec::new();
        }
        let date = httpdate::fmt_http_date(self.at.unwrap_or_else(time::now));
        let path = self.signed_path.as_ref().unwrap_or(&self.path);
        let (kind, link) = match Path::parse(path) {
            Ok(path) => (path.kind, path.links[0].to_string()),
            // What is no path is refused before anybody looks at its signature.
            Err(_) => ("", String::new()),
        };
        let verb = self.signed_verb.as_ref().unwrap_or(&self.method);
        let signature = self.keys.as_ref().unwrap_or(keys).sign(verb, kind, &link, &date).unwrap();
        vec![("x-ms-date".to_owned(), date), ("authorization".to_owned(), signature)]
    }

    /// As the bytes of an HTTP/1.1 request, with the length of the body.
    pub(crate) fn bytes(&self, keys: &Keys) -> Vec<u8> {
        let mut head = self.head(keys, &[("content-length", &self.body.len().to_string())]);
        head.extend_from_slice(&self.body);
        head
    }

    /// The bytes before the body, with more headers.
    pub(crate) fn head(&self, keys: &Keys, more: &[(&str, &str)]) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: localhost\r\n", self.method, self.path);
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        for (name, value) in self.signature(keys).into_iter().chain(self.headers.clone()).chain(more) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn substatus(&self) -> Option<u32> {
        self.header("x-ms-substatus").map(|text| text.parse().unwrap())
    }

    pub(crate) fn etag(&self) -> String {
        self.header("etag").unwrap_or_else(|| panic!("no etag: {self:?}")).to_owned()
    }

    /// Itself, if it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    pub(crate) fn documents(&self) -> Vec<Value> {
        self.json()["Documents"].as_array().unwrap_or_else(|| panic!("no documents: {self:?}")).clone()
    }

    /// The ids of the documents, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.documents().iter().map(|document| document["id"].as_str().unwrap().to_owned()).collect()
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// One connection to a server.
pub(crate) struct Client {
    sender: Sender,
    pub(crate) keys: Keys,
    authority: String,
    scheme: &'static str,
    /// Drives the connection; ended with the client.
    connection: JoinSet<()>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, wire: &Wire, keys: Keys) -> Self {
        Self::connect_from(IpAddr::from([127, 0, 0, 1]), address, wire, keys).await
    }

    /// From one of the many addresses of this machine.
    pub(crate) async fn connect_from(own: IpAddr, address: SocketAddr, wire: &Wire, keys: Keys) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).unwrap();
        let stream = time::soon("connecting", socket.connect(address)).await.unwrap();
        let mut connection = JoinSet::new();
        let (sender, scheme) = match wire {
            Wire::One => (one(stream, &mut connection).await, "http"),
            Wire::Two => (two(stream, &mut connection).await, "http"),
            Wire::TlsOne(pem) => {
                let stream = trust::connect(stream, pem, &["http/1.1"]).await.unwrap();
                (one(stream, &mut connection).await, "https")
            }
            Wire::TlsTwo(pem) => {
                let stream = trust::connect(stream, pem, &["h2"]).await.unwrap();
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                (two(stream, &mut connection).await, "https")
            }
        };
        Self { sender, keys, authority: address.to_string(), scheme, connection }
    }

    /// The answer to a request; an error if the connection is of no more use.
    pub(crate) async fn try_send(&mut self, ask: Ask) -> hyper::Result<Reply> {
        let mut request = Request::builder().method(ask.method.as_str());
        request = match self.sender {
            Sender::One(_) => request.uri(&ask.path).header("host", &self.authority),
            Sender::Two(_) => request.uri(format!("{}://{}{}", self.scheme, self.authority, ask.path)),
        };
        for (name, value) in ask.signature(&self.keys).into_iter().chain(ask.headers) {
            request = request.header(name, value.into_bytes());
        }
        let request = request.body(Full::new(ask.body)).unwrap();
        let sent = async {
            let response = match &mut self.sender {
                Sender::One(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
                Sender::Two(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
            };
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        time::soon("an answer", sent).await
    }

    /// The answer to a request.
    pub(crate) async fn send(&mut self, ask: Ask) -> Reply {
        let shown = format!("{} {}", ask.method, ask.path);
        self.try_send(ask).await.unwrap_or_else(|error| panic!("{shown}: {error:?}"))
    }
}

async fn one<S>(stream: S, tasks: &mut JoinSet<()>) -> Sender
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    Sender::One(sender)
}

async fn two<S>(stream: S, tasks: &mut JoinSet<()>) -> Sender
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    Sender::Two(sender)
}
