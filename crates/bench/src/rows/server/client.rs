//! A client that keeps its connection and asks one thing after the other.
//!
//! It is as thin as can be: what it sends lies ready as bytes, signature included, and of an answer it looks at the
//! status and the length only. It shares the machine with the server, so whatever it spends is taken from both sides of
//! a ratio alike and brings them closer together; a client of hyper would also spend more on an answer with many
//! headers than on one with few, which is its own affair and not the server's.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use changefeed_server::auth::Keys;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    Result, load,
    measure::{Round, Spread},
    process,
};

/// Room for an answer, so that reading one seldom takes more than one call.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// One connection.
pub(super) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What an answer was.
pub(super) struct Answer<'a> {
    pub(super) status: &'a str,
    head: &'a str,
    pub(super) body: &'a [u8],
}

impl Answer<'_> {
    /// A header's value, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        Self::with_buffer(address, BUFFER_BYTES).await
    }

    /// A client that can receive answers of up to `bytes`.
    pub(super) async fn with_buffer(address: SocketAddr, bytes: usize) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: vec![0; bytes] })
    }

    /// Sends a request whose answer must have this status.
    pub(super) async fn expect(&mut self, status: &str, request: &[u8]) -> Result<()> {
        let answer = self.ask(request).await?;
        if answer.status == status {
            return Ok(());
        }
        let body = String::from_utf8_lossy(answer.body).into_owned();
        Err(format!("a request was answered with {} instead of {status}: {body}", answer.status).into())
    }

    /// Sends a request as it is and reads its answer.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        let mut count = self.more(0).await?;
        let head_bytes = loop {
            match head_bytes(self.received.get(..count).unwrap_or_default()) {
                Some(bytes) => break bytes,
                None => count = self.more(count).await?,
            }
        };
        let head = std::str::from_utf8(self.received.get(..head_bytes).unwrap_or_default())?;
        let body_bytes: usize = match header(head, "content-length") {
            Some(length) => length.parse()?,
            // Such an answer has no body.
            None if matches!(head.split(' ').nth(1), Some("204" | "304")) => 0,
            None => return Err("an answer without a length".into()),
        };
        while count < head_bytes + body_bytes {
            count = self.more(count).await?;
        }
        let (head, rest) = self.received.split_at(head_bytes);
        let head = std::str::from_utf8(head)?;
        let status = head.split(' ').nth(1).ok_or("an answer without a status")?;
        Ok(Answer { status, head, body: rest.get(..body_bytes).unwrap_or_default() })
    }

    /// Reads on after the first `count` bytes; how many there are then.
    async fn more(&mut self, count: usize) -> Result<usize> {
        let free = self.received.get_mut(count..).filter(|free| !free.is_empty()).ok_or("an answer is too long")?;
        match self.stream.read(free).await? {
            0 => Err("the server closed the connection".into()),
            read => Ok(count + read),
        }
    }
}

/// The length of the head, if all of it is there.
fn head_bytes(received: &[u8]) -> Option<usize> {
    received.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// What comes before the body of a request, as an SDK sends it. The signature is good for minutes, and making it is not
/// what is measured.
pub(super) fn head(verb: &str, path: &str, link: &str, body_bytes: usize, more: &[(&str, &str)]) -> Result<String> {
    signed_head((verb, "docs"), path, link, body_bytes, more)
}

/// The same for any type of resource.
pub(super) fn signed_head(
    (verb, kind): (&str, &str),
    path: &str,
    link: &str,
    body_bytes: usize,
    more: &[(&str, &str)],
) -> Result<String> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let signature = Keys::emulator().sign(verb, kind, link, &date).ok_or("there is no key")?;
    let mut head = format!(
        "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-version: 2020-07-15\r\nx-ms-date: {date}\r\n\
         authorization: {signature}\r\n"
    );
    for (name, value) in more {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if body_bytes > 0 {
        head.push_str(&format!("content-length: {body_bytes}\r\n"));
    }
    head.push_str("\r\n");
    Ok(head)
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

/// Asks over and over on `connections` connections until `length` is over; returns the answers per second. `request`
/// gives the bytes of the request with this number, which grows. Every answer must have the status `wanted`.
pub(super) async fn ask_for<F>(
    address: SocketAddr,
    connections: u64,
    length: Duration,
    wanted: &'static str,
    request: F,
) -> Result<Rate>
where
    F: Fn(u64) -> Arc<[u8]> + Clone + Send + 'static,
{
    let (start, before) = (Instant::now(), process::cpu_seconds()?);
    let tasks = (0..connections).map(|connection| {
        let request = request.clone();
        tokio::spawn(async move {
            let mut client = Client::connect(address).await?;
            let mut count = 0;
            while start.elapsed() < length {
                let answer = client.ask(&request(connection + count * connections)).await?;
                if answer.status != wanted || answer.body.is_empty() {
                    return Err(format!("a request was answered with {}", answer.status).into());
                }
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
