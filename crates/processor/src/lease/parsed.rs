//! Lease documents that this process has parsed. A version that was seen before is not parsed again, and all hosts of a
//! process share what they know of it: in a large fleet every host reads every lease again and again.
//!
//! The result depends on the bytes of the document alone, so the cache cannot be seen, except by the time it saves.

use std::{
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    document::{DocumentError, LeaseDocument, LeaseSummary, SummaryRef},
    texts::Texts,
};

/// How many bytes at the end of a document tell its versions apart: stores write their etag there. Documents that agree in
/// them only displace each other.
const TAIL: usize = 160;

/// How much the cache grows before versions that no host knows any more are dropped: a quarter, and this many.
const SLACK: usize = 64;

static PARSED: Mutex<Parsed> = Mutex::new(Parsed::new());

/// Reads a document whole.
///
/// # Errors
/// As for [`LeaseDocument::parse`].
pub(crate) fn document(body: &[u8]) -> Result<(Arc<LeaseDocument>, Arc<LeaseSummary>), DocumentError> {
    let key = key(body);
    let known = PARSED.lock().get(key, body).map(|version| (version.document.clone(), Arc::clone(&version.summary)));
    if let Some((Some(document), summary)) = known {
        return Ok((document, summary));
    }
    let mut document = LeaseDocument::parse(body)?;
    let summary = match known {
        Some((_, summary)) => summary,
        None => match summarise(body) {
            Some(summary) => summary,
            None => {
                let summary = Arc::new(LeaseSummary::from(&document));
                return Ok((Arc::new(document), summary));
            }
        },
    };
    debug_assert_eq!(&document.token, summary.token(), "both are read from the same bytes");
    document.token = summary.token().clone();
    let document = Arc::new(document.read_properties());
    let version = Version { body: body.into(), summary: Arc::clone(&summary), document: Some(Arc::clone(&document)) };
    PARSED.lock().insert(key, version);
    Ok((document, summary))
}

/// Reads what a host must know of a document to tell whether it concerns it; none if that cannot be done.
pub(crate) fn summary(body: &[u8]) -> Option<Arc<LeaseSummary>> {
    let key = key(body);
    if let Some(known) = PARSED.lock().get(key, body) {
        return Some(Arc::clone(&known.summary));
    }
    let summary = summarise(body)?;
    PARSED.lock().insert(key, Version { body: body.into(), summary: Arc::clone(&summary), document: None });
    Some(summary)
}

fn summarise(body: &[u8]) -> Option<Arc<LeaseSummary>> {
    let mut summary: LeaseSummary = SummaryRef::parse(body)?.try_into().ok()?;
    summary.share(&mut PARSED.lock().texts);
    Some(Arc::new(summary))
}

fn key(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.len().hash(&mut hasher);
    body.get(body.len().saturating_sub(TAIL)..).hash(&mut hasher);
    hasher.finish()
}

#[expect(clippy::disallowed_types, reason = "its order is never seen, and its hasher is not random")]
type NumberMap<V> = std::collections::HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

#[derive(Debug)]
struct Parsed {
    versions: NumberMap<Version>,
    texts: Texts,
    /// How many versions there may be before they are looked through.
    limit: usize,
}

#[derive(Debug)]
struct Version {
    /// A copy: what was read may be a slice of a large page.
    body: Box<[u8]>,
    summary: Arc<LeaseSummary>,
    /// The whole document, once a host has listed it.
    document: Option<Arc<LeaseDocument>>,
}

impl Parsed {
    const fn new() -> Self {
        Self { versions: NumberMap::with_hasher(BuildHasherDefault::new()), texts: Texts::new(), limit: SLACK }
    }

    fn get(&self, key: u64, body: &[u8]) -> Option<&Version> {
        self.versions.get(&key).filter(|version| *version.body == *body)
    }

    fn insert(&mut self, key: u64, version: Version) {
        if self.versions.len() >= self.limit {
            // A host keeps the summary of the last version of each lease that it saw.
            self.versions.retain(|_, version| Arc::strong_count(&version.summary) > 1);
            self.texts.drop_unused();
            self.limit = self.versions.len() + self.versions.len() / 4 + SLACK;
        }
        self.versions.insert(key, version);
    }
}

/// Hashes numbers that are hashes already.
#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(token: &str, owner: &str) -> String {
        format!(r#"{{"id":"x..{token}","version":0,"LeaseToken":"{token}","Owner":"{owner}","properties":{{}}}}"#)
    }

    #[test]
    fn a_version_is_parsed_once_and_shared() {
        let body = body("a_version_is_parsed_once", "a");
        let seen = summary(body.as_bytes()).unwrap();
        let (first, summary) = document(body.as_bytes()).unwrap();
        let (second, _) = document(body.as_bytes()).unwrap();
        assert!(Arc::ptr_eq(&seen, &summary) && Arc::ptr_eq(&first, &second));
        assert_eq!(*summary, LeaseSummary::from(&*first));
    }

    #[test]
    fn documents_that_agree_in_length_and_tail_are_not_confused() {
        let long = "x".repeat(TAIL);
        let [one, two] = ["one", "two"].map(|token| {
            format!(r#"{{"id":"x..{token}","version":0,"LeaseToken":"{token}","properties":{{"mine":"{long}"}}}}"#)
        });
        assert_eq!(key(one.as_bytes()), key(two.as_bytes()));
        for _ in 0..2 {
            for (token, body) in [("one", &one), ("two", &two)] {
                let (document, summary) = document(body.as_bytes()).unwrap();
                assert_eq!((document.token.as_str(), summary.token().as_str()), (token, token));
                assert_eq!(super::summary(body.as_bytes()).unwrap().token().as_str(), token);
            }
        }
    }

    #[test]
    fn a_lease_is_known_by_its_partition_id_where_it_has_no_token() {
        let body = br#"{"id":"x..7","PartitionId":"7","properties":{}}"#;
        for _ in 0..2 {
            assert_eq!(document(body).unwrap().1.token().as_str(), "7");
            assert_eq!(summary(body).unwrap().token().as_str(), "7");
        }
        assert!(document(b"[]").is_err() && summary(b"[]").is_none());
        assert!(summary(br#"{"id":"x.info"}"#).is_none());
    }

    #[test]
    fn versions_that_nobody_knows_are_dropped() {
        let mut parsed = Parsed::new();
        let version = |at: usize| {
            let body = body(&at.to_string(), "a");
            let summary = summarise(body.as_bytes()).unwrap();
            (Arc::clone(&summary), Version { body: body.as_bytes().into(), summary, document: None })
        };
        let mut known = Vec::new();
        for at in 0..10 * SLACK {
            let (summary, version) = version(at);
            known.extend((at % 10 == 0).then_some(summary));
            parsed.insert(at as u64, version);
        }
        assert!(parsed.versions.len() <= 3 * SLACK, "{}", parsed.versions.len());
        assert!((0..10 * SLACK).step_by(10).all(|at| parsed.versions.contains_key(&(at as u64))));
    }
}
