//! A gateway between the SDK and a server of this project: it forwards requests, refuses some, and changes answers to what
//! the service may answer and the server never does.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Method, Request, Response,
    body::Incoming,
    client::conn::http1::handshake,
    header::{CONNECTION, CONTENT_LENGTH, ETAG, HOST, HeaderName, HeaderValue, IF_NONE_MATCH, TRANSFER_ENCODING},
    http::request::Parts,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::http::serve;

const START_EPK: &str = "x-ms-start-epk";
const RANGE_ID: &str = "x-ms-documentdb-partitionkeyrangeid";

/// An answer of the gateway itself.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Answers a request, or has it forwarded.
pub(crate) type Answering = Arc<dyn Fn(&Asked<'_>) -> Option<Answer> + Send + Sync>;

/// A request without its body.
pub(crate) struct Asked<'a>(&'a Parts);

/// What the gateway does.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    /// Refuses reads of the feed of a part of a range.
    pub(crate) refuse_parts: bool,
    /// Answers do not name their range.
    pub(crate) hide_range_ids: bool,
    /// ETags of pages count from a thousand.
    pub(crate) shift_etags: bool,
    /// Texts in the answers about items that are others in the service.
    pub(crate) replaced: Vec<(&'static str, String)>,
    /// Answers requests that are not forwarded then.
    pub(crate) answering: Option<Answering>,
}

impl Asked<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn path(&self) -> &str {
        self.0.uri.path()
    }

    /// Whether it creates a container.
    pub(crate) fn creates_container(&self) -> bool {
        self.0.method == Method::POST && self.0.uri.path().ends_with("/colls")
    }

    /// Whether it reads changes, from now on or others.
    pub(crate) fn reads_changes(&self) -> bool {
        self.header("a-im").is_some() && self.path().ends_with("/docs")
    }

    /// What is read after: an ETag, or `*` for now.
    pub(crate) fn after(&self) -> Option<&str> {
        self.header("if-none-match")
    }

    /// Whether it is about a part of a range.
    pub(crate) fn is_of_part(&self) -> bool {
        self.header(START_EPK).is_some()
    }

    /// The range that is read; the first one if a key is read by its name.
    pub(crate) fn range(&self) -> &str {
        self.header(RANGE_ID).unwrap_or("0")
    }

    /// A page of the range without changes, with status 200, which ends at this position of a feed that ends at `newest`.
    pub(crate) fn empty_page(&self, position: u64, newest: u64) -> Answer {
        let body = json!({"_rid": "", "Documents": [], "_count": 0}).to_string();
        let builder = Response::builder().status(200).header(ETAG, format!("\"{position}\"")).header("lsn", newest);
        builder.header(RANGE_ID, self.range()).header("x-ms-item-count", 0).body(body.into()).unwrap()
    }
}

/// An error of the service.
pub(crate) fn refusal(status: u16, sub_status: u16, message: &str) -> Answer {
    let body = json!({"code": "Refused", "message": message}).to_string();
    let builder = Response::builder().status(status).header("x-ms-substatus", sub_status);
    builder.header("x-ms-retry-after-ms", 1).body(body.into()).unwrap()
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Reads of the feed.
    pub(crate) feed: usize,
    /// Those that were refused.
    pub(crate) refused: usize,
}

struct Service {
    server: SocketAddr,
    own: SocketAddr,
    rules: Rules,
    counts: Mutex<Counts>,
}

/// The gateway. Its socket is closed when it is dropped.
pub(crate) struct Gateway {
    service: Arc<Service>,
    _task: JoinSet<()>,
}

impl Gateway {
    pub(crate) async fn start(server: SocketAddr, rules: Rules) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let own = listener.local_addr().unwrap();
        let service = Arc::new(Service { server, own, rules, counts: Mutex::default() });
        let shared = Arc::clone(&service);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = Arc::clone(&shared);
                connections.spawn(serve(stream, move |request| {
                    let service = Arc::clone(&service);
                    async move { service.answer(request).await }
                }));
            }
        });
        Self { service, _task: task }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.service.own)
    }

    /// The requests since the last time.
    pub(crate) fn take_counts(&self) -> Counts {
        std::mem::take(&mut *self.service.counts.lock().unwrap())
    }
}

impl Service {
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        if let Some(answer) = self.rules.answering.as_ref().and_then(|answering| answering(&Asked(&head))) {
            return Ok(answer);
        }
        if head.headers.contains_key("a-im") {
            let refused = self.rules.refuse_parts && head.headers.contains_key(START_EPK);
            let mut counts = self.counts.lock().unwrap();
            counts.feed += 1;
            if refused {
                counts.refused += 1;
                let body = r#"{"code":"BadRequest","message":"the input is not valid"}"#;
                return Response::builder().status(400).body(body.into()).map_err(io::Error::other);
            }
        }
        let is_items = head.uri.path().contains("/docs");
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let mut forwarded = Request::builder().method(head.method).uri(path).body(Full::new(body)).unwrap();
        let is_feed = head.headers.contains_key("a-im");
        *forwarded.headers_mut() = without_connection(head.headers);
        if self.rules.shift_etags && is_feed {
            shift(forwarded.headers_mut(), IF_NONE_MATCH, -1000);
        }
        let host = HeaderValue::from_str(&self.server.to_string()).unwrap();
        forwarded.headers_mut().insert(HOST, host);
        let stream = TokioIo::new(TcpStream::connect(self.server).await?);
        let (mut sender, connection) = handshake(stream).await.map_err(io::Error::other)?;
        let exchange = async move {
            let (head, body) = sender.send_request(forwarded).await?.into_parts();
            Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
        };
        let ((head, body), ()) = tokio::try_join!(exchange, connection).map_err(io::Error::other)?;
        let mut text = String::from_utf8(body.to_vec()).map_err(io::Error::other)?;
        text = text.replace(&self.server.to_string(), &self.own.to_string());
        for (from, to) in self.rules.replaced.iter().filter(|_| is_items) {
            text = text.replace(from, to);
        }
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = head.status;
        *response.headers_mut() = without_connection(head.headers);
        if self.rules.shift_etags && is_feed {
            shift(response.headers_mut(), ETAG, 1000);
        }
        if self.rules.hide_range_ids {
            response.headers_mut().remove(RANGE_ID);
        }
        Ok(response)
    }
}

/// Adds to the number between the quotes of a header, if it has one.
fn shift(headers: &mut HeaderMap, name: HeaderName, by: i64) {
    let number = headers.get(&name).and_then(|value| value.to_str().ok()?.trim_matches('"').parse::<i64>().ok());
    if let Some(number) = number {
        headers.insert(name, HeaderValue::from_str(&format!("\"{}\"", number + by)).unwrap());
    }
}

/// The headers that are about the message, not about the connection.
fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}
