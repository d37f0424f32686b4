//! A small client that blocks: one connection, one signed request at a time.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, UNIX_EPOCH},
};

use changefeed_core::{Clock as _, SystemClock};
use changefeed_server::{auth::Keys, path::Path};
use serde_json::{Value, json};

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) continuation: Option<String>,
    pub(crate) substatus: Option<String>,
    pub(crate) retry_after_ms: Option<String>,
    pub(crate) body: Value,
}

/// A connection.
pub(crate) struct Http {
    stream: BufReader<TcpStream>,
    pub(crate) keys: Keys,
}

impl Http {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream: BufReader::new(stream), keys: Keys::emulator() })
    }

    /// The answer to a request with these headers.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let now = UNIX_EPOCH + Duration::from_millis(SystemClock.wall().as_millis());
        let date = httpdate::fmt_http_date(now);
        let parsed = Path::parse(path).unwrap();
        let signature = self.keys.sign(method, parsed.kind, &parsed.links[0], &date).unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nauthorization: {signature}\r\n\
             content-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.push_str(body);
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        let header = |name: &str| {
            let line = lines.iter().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}: ")));
            line.map(|line| line[name.len() + 2..].to_owned())
        };
        let length = header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
        let (etag, continuation) = (header("etag"), header("x-ms-continuation"));
        let (substatus, retry_after_ms) = (header("x-ms-substatus"), header("x-ms-retry-after-ms"));
        Ok(Answer { status, etag, continuation, substatus, retry_after_ms, body })
    }

    /// Makes the container `db/c`.
    pub(crate) fn make_container(&mut self) {
        assert_eq!(self.send("POST", "/dbs", &[], r#"{"id":"db"}"#).unwrap().status, 201);
        let container = json!({ "id": "c", "partitionKey": { "paths": ["/id"], "kind": "Hash", "version": 2 } });
        assert_eq!(self.send("POST", "/dbs/db/colls", &[], &container.to_string()).unwrap().status, 201);
    }

    /// Writes an item; whether it was acknowledged.
    pub(crate) fn write(&mut self, id: &str, number: u64) -> io::Result<u16> {
        let key = format!("[\"{id}\"]");
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "True")];
        let body = json!({ "id": id, "n": number }).to_string();
        Ok(self.send("POST", "/dbs/db/colls/c/docs", &headers, &body)?.status)
    }

    /// All items of `db/c` that the list or the feed of its ranges shows.
    pub(crate) fn items(&mut self) -> Vec<Value> {
        let (mut all, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut headers = vec![("x-ms-max-item-count", "1000")];
            if let Some(next) = &next {
                headers.push(("x-ms-continuation", next.as_str()));
            }
            let page = self.send("GET", "/dbs/db/colls/c/docs", &headers, "").unwrap();
            assert_eq!(page.status, 200, "{page:?}");
            all.extend(page.body["Documents"].as_array().unwrap().iter().cloned());
            next = page.continuation;
            if next.is_none() {
                return all;
            }
        }
    }

    /// All changes of one range of `db/c`, from the beginning.
    pub(crate) fn feed(&mut self, range: &str) -> Vec<Value> {
        let (mut all, mut etag) = (Vec::new(), "\"0\"".to_owned());
        loop {
            let headers = [
                ("a-im", "Incremental Feed"),
                ("x-ms-documentdb-partitionkeyrangeid", range),
                ("if-none-match", etag.as_str()),
            ];
            let page = self.send("GET", "/dbs/db/colls/c/docs", &headers, "").unwrap();
            if page.status == 304 {
                return all;
            }
            assert_eq!(page.status, 200, "{page:?}");
            all.extend(page.body["Documents"].as_array().unwrap().iter().cloned());
            etag = page.etag.unwrap();
        }
    }
}
