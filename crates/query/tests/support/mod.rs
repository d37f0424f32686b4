//! Items to query and a caller that pages through them as a server would.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "every test binary uses a part of this")]

use std::collections::BTreeMap;

use changefeed_query::{Bound, Flow, Query, Row, SqlError};

/// 2024-02-29T12:34:56.789Z.
pub const NOW: i64 = 1_709_210_096_789;

/// Items by position, with their rids.
#[derive(Default, Clone)]
pub struct Items(pub BTreeMap<String, (String, String)>);

impl Items {
    pub fn of(bodies: &[&str]) -> Self {
        let mut items = Self::default();
        for (index, body) in bodies.iter().enumerate() {
            items.put(index, body);
        }
        items
    }

    pub fn put(&mut self, index: usize, body: &str) {
        self.0.insert(format!("p{index:05}"), (rid(index as u64), body.to_owned()));
    }

    /// One page as a server makes it.
    pub fn page(
        &self,
        bound: &Bound,
        continuation: Option<&str>,
        max_items: usize,
    ) -> Result<(Vec<String>, Option<String>), SqlError> {
        let mut run = bound.start(continuation, max_items, NOW)?;
        let after = run.begin_after().map(str::to_owned);
        let mut left = self.0.iter().filter(|(p, _)| after.as_ref().is_none_or(|a| *p > a)).peekable();
        while let Some((position, (rid, body))) = left.next_if(|_| run.wants_more()) {
            if run.push(Row { position, rid, body: body.as_bytes() })? == Flow::Done {
                break;
            }
        }
        let page = run.finish(left.peek().is_none())?;
        Ok((page.rows.into_iter().map(|row| String::from_utf8(row).unwrap()).collect(), page.continuation))
    }

    /// All rows, in pages.
    pub fn pages(&self, bound: &Bound, max_items: usize) -> Result<Vec<String>, SqlError> {
        let mut rows = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let (page, next) = self.page(bound, continuation.as_deref(), max_items)?;
            assert!(page.len() <= max_items);
            rows.extend(page);
            match next {
                None => return Ok(rows),
                Some(_) if next == continuation => panic!("no progress"),
                _ => continuation = next,
            }
        }
    }
}

/// A rid as the server writes them: base64 of the container and the number of the document, little endian.
pub fn rid(number: u64) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = vec![0, 0x3c, 0xa2, 0, 0x80, 1, 0, 1];
    bytes.extend_from_slice(&number.to_le_bytes());
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

pub fn bind(text: &str) -> Bound {
    bind_with(text, serde_json::json!({}))
}

pub fn bind_with(text: &str, parameters: serde_json::Value) -> Bound {
    let parameters = parameters.as_object().unwrap().iter().map(|(n, v)| (n.clone(), v.clone()));
    let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    query.bind(&parameters.collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The rows of a query over the bodies.
pub fn rows(text: &str, bodies: &[&str]) -> Vec<String> {
    Items::of(bodies).pages(&bind(text), 100).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The only row of `SELECT VALUE expr FROM c`, or `undefined`.
pub fn value(expr: &str, body: &str) -> String {
    let mut found = rows(&format!("SELECT VALUE {expr} FROM c"), &[body]);
    assert!(found.len() <= 1);
    found.pop().unwrap_or_else(|| "undefined".to_owned())
}

/// Why a query is refused.
pub fn refusal(text: &str) -> SqlError {
    match Query::parse(text).and_then(|query| query.bind(&[])) {
        Ok(_) => panic!("{text} should be refused"),
        Err(error) => error,
    }
}
