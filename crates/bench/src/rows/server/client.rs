//! A client that keeps its connection and asks one thing after the other.

use std::{
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use changefeed_server::auth::Keys;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    client::conn::http1::{self, SendRequest},
    header::{HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::{Result, load};

/// One connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

/// What an answer was.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, host: HeaderValue::from_str(&address.to_string())? })
    }

    pub(super) async fn ask(&mut self, method: Method, path: &str, headers: &HeaderMap, body: Bytes) -> Result<Answer> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse()?;
        *request.headers_mut() = headers.clone();
        request.headers_mut().insert(hyper::header::HOST, self.host.clone());
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        Ok(Answer { status: parts.status, headers: parts.headers, body: body.collect().await?.to_bytes() })
    }
}

/// The headers that an SDK sends with a request of this verb, kind and link. The signature is good for minutes, and
/// making it is not what is measured.
pub(super) fn signed(verb: &str, kind: &str, link: &str, more: &[(&'static str, String)]) -> Result<HeaderMap> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let signature = Keys::emulator().sign(verb, kind, link, &date).ok_or("there is no key")?;
    let mut headers = HeaderMap::new();
    let plain = [("x-ms-version", "2020-07-15".to_owned()), ("x-ms-date", date), ("authorization", signature)];
    for (name, value) in plain.into_iter().chain(more.iter().cloned()) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value)?);
    }
    Ok(headers)
}

/// Asks over and over on `connections` connections until `length` is over; returns the answers per second. `ask` is
/// given the connection and a number that grows.
pub(super) async fn ask_for<F>(address: SocketAddr, connections: u64, length: Duration, ask: F) -> Result<f64>
where
    F: for<'a> Fn(&'a mut Client, u64) -> futures::BoxFuture<'a, Result<()>> + Clone + Send + Sync + 'static,
{
    let start = Instant::now();
    let tasks = (0..connections).map(|connection| {
        let ask = ask.clone();
        tokio::spawn(async move {
            let mut client = Client::connect(address).await?;
            let mut count = 0;
            while start.elapsed() < length {
                ask(&mut client, connection + count * connections).await?;
                count += 1;
            }
            Ok(count)
        })
    });
    let answers: u64 = load::join(tasks.collect()).await?.iter().sum();
    Ok(answers as f64 / start.elapsed().as_secs_f64())
}

/// The one type that is needed of the crate of that name.
pub(super) mod futures {
    use std::{future::Future, pin::Pin};

    /// A future of any type.
    pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
}
