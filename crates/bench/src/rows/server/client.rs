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

use crate::{
    Result, load,
    measure::{Round, Spread},
    process,
};

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

/// Answers per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Of time.
    pub(super) by_time: f64,
    /// Of processor time, client and server together: what a shared machine does not distort.
    pub(super) by_cpu: f64,
}

/// How much of the baseline is left per second of processor time, in words.
pub(super) fn by_cpu(rounds: &[Round<Rate>]) -> String {
    let ratio = Spread::of(rounds.iter().map(|round| round.subject.by_cpu / round.baseline.by_cpu));
    format!("{:.2} by processor time ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max)
}

/// Asks over and over on `connections` connections until `length` is over; returns the answers per second. `ask` is
/// given the connection and a number that grows.
pub(super) async fn ask_for<F>(address: SocketAddr, connections: u64, length: Duration, ask: F) -> Result<Rate>
where
    F: for<'a> Fn(&'a mut Client, u64) -> futures::BoxFuture<'a, Result<()>> + Clone + Send + Sync + 'static,
{
    let (start, before) = (Instant::now(), process::cpu_seconds()?);
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
    Ok(Rate {
        by_time: answers as f64 / start.elapsed().as_secs_f64(),
        by_cpu: answers as f64 / (process::cpu_seconds()? - before).max(0.01),
    })
}

/// The one type that is needed of the crate of that name.
pub(super) mod futures {
    use std::{future::Future, pin::Pin};

    /// A future of any type.
    pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
}
