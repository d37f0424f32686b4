//! Lease documents that this process has parsed. A version that was seen before is not parsed again, and all hosts of a
//! process share what they know of it: in a large fleet every host reads every lease again and again.
//!
//! The result depends on the bytes of the document alone, so the cache cannot be seen, except by the time it saves.
//!
//! A store may give the same buffer to all its readers. Such a buffer is found by its address, so that a document is neither
//! hashed nor compared for each of a thousand hosts.

use std::{
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
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

/// A buffer that was read this many times in a row is kept by its store, too, so that keeping it costs no memory. A buffer that
/// is read once or twice may be a slice of a large page.
const READS_OF_SHARED_BUFFER: u8 = 8;

static PARSED: Mutex<Parsed> = Mutex::new(Parsed::new());

/// Reads a document whole.
///
/// # Errors
/// As for [`LeaseDocument::parse`].
pub(crate) fn document(body: &Bytes) -> Result<(Arc<LeaseDocument>, Arc<LeaseSummary>), DocumentError> {
    let known = PARSED.lock().get(body).map(|version| (version.document.clone(), Arc::clone(&version.summary)));
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
    PARSED.lock().insert(Version::new(body, Arc::clone(&summary), Some(Arc::clone(&document))));
    Ok((document, summary))
}

/// Reads what a host must know of a document to tell whether it concerns it; none if that cannot be done.
pub(crate) fn summary(body: &Bytes) -> Option<Arc<LeaseSummary>> {
    if let Some(known) = PARSED.lock().get(body) {
        return Some(Arc::clone(&known.summary));
    }
    let summary = summarise(body)?;
    PARSED.lock().insert(Version::new(body, Arc::clone(&summary), None));
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

/// The address of a buffer.
fn address(body: &Bytes) -> u64 {
    body.as_ptr().addr() as u64
}

#[expect(clippy::disallowed_types, reason = "its order is never seen, and its hasher is not random")]
type NumberMap<V> = std::collections::HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

#[derive(Debug)]
struct Parsed {
    versions: NumberMap<Version>,
    /// The keys of versions whose buffers are shared, by the address of the buffer.
    shared: NumberMap<u64>,
    texts: Texts,
    /// How many versions there may be before they are looked through.
    limit: usize,
}

#[derive(Debug)]
struct Version {
    /// A copy, or the buffer that the store shares.
    body: Bytes,
    summary: Arc<LeaseSummary>,
    /// The whole document, once a host has listed it.
    document: Option<Arc<LeaseDocument>>,
    /// The address of the buffer that was last read, and how many times in a row. Says nothing about its content: the
    /// buffer may have been freed.
    last_read: (u64, u8),
}

impl Version {
    fn new(body: &Bytes, summary: Arc<LeaseSummary>, document: Option<Arc<LeaseDocument>>) -> Self {
        Self { body: Bytes::copy_from_slice(body), summary, document, last_read: (address(body), 1) }
    }

    fn is_of(&self, body: &Bytes) -> bool {
        self.is_in(body) || self.body == *body
    }

    /// Whether the body is the very buffer that is kept here, and therefore has the same bytes.
    fn is_in(&self, body: &Bytes) -> bool {
        std::ptr::eq(&*self.body, &**body)
    }

    /// Counts one more read of a buffer. Returns whether it is shared from now on.
    fn count_read(&mut self, buffer: &Bytes) -> bool {
        let reads = match self.last_read {
            (last, reads) if last == address(buffer) => reads.saturating_add(1),
            _ => 1,
        };
        self.last_read = (address(buffer), reads);
        reads == READS_OF_SHARED_BUFFER
    }
}

impl Parsed {
    const fn new() -> Self {
        Self {
            versions: NumberMap::with_hasher(BuildHasherDefault::new()),
            shared: NumberMap::with_hasher(BuildHasherDefault::new()),
            texts: Texts::new(),
            limit: SLACK,
        }
    }

    fn get(&mut self, body: &Bytes) -> Option<&Version> {
        let shared = self.shared.get(&address(body)).copied();
        if let Some(key) = shared.filter(|key| self.versions.get(key).is_some_and(|version| version.is_in(body))) {
            return self.versions.get(&key);
        }
        let key = key(body);
        let version = self.versions.get_mut(&key).filter(|version| version.is_of(body))?;
        if version.count_read(body) {
            self.shared.remove(&address(&version.body));
            self.shared.insert(address(body), key);
            version.body = body.clone();
        }
        Some(version)
    }

    fn insert(&mut self, version: Version) {
        if self.versions.len() >= self.limit {
            // A host keeps the summary of the last version of each lease that it saw.
            self.versions.retain(|_, version| {
                let known = Arc::strong_count(&version.summary) > 1;
                if !known {
                    self.shared.remove(&address(&version.body));
                }
                known
            });
            self.texts.drop_unused();
            self.limit = self.versions.len() + self.versions.len() / 4 + SLACK;
        }
        if let Some(displaced) = self.versions.insert(key(&version.body), version) {
            self.shared.remove(&address(&displaced.body));
        }
    }
}

/// Hashes numbers that are hashes or addresses already.
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
        // The golden ratio: spreads addresses, whose lowest bits are equal, over all bits.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(token: &str, owner: &str) -> Bytes {
        let json =
            format!(r#"{{"id":"x..{token}","version":0,"LeaseToken":"{token}","Owner":"{owner}","properties":{{}}}}"#);
        json.into()
    }

    /// The same bytes in another buffer.
    fn copied(body: &Bytes) -> Bytes {
        Bytes::copy_from_slice(body)
    }

    #[test]
    fn a_version_is_parsed_once_and_shared() {
        let body = body("a_version_is_parsed_once", "a");
        let seen = summary(&body).unwrap();
        let (first, summary) = document(&body).unwrap();
        let (second, _) = document(&copied(&body)).unwrap();
        assert!(Arc::ptr_eq(&seen, &summary) && Arc::ptr_eq(&first, &second));
        assert_eq!(*summary, LeaseSummary::from(&*first));
    }

    #[test]
    fn documents_that_agree_in_length_and_tail_are_not_confused() {
        let long = "x".repeat(TAIL);
        let [one, two] = ["one", "two"].map(|token| {
            Bytes::from(format!(
                r#"{{"id":"x..{token}","version":0,"LeaseToken":"{token}","properties":{{"mine":"{long}"}}}}"#
            ))
        });
        assert_eq!(key(&one), key(&two));
        // Also while one of them is found by its address.
        for turns in [1, 1, READS_OF_SHARED_BUFFER, 1] {
            for (token, body) in [("one", &one), ("two", &two)] {
                for _ in 0..turns {
                    let (document, summary) = document(body).unwrap();
                    assert_eq!((document.token.as_str(), summary.token().as_str()), (token, token));
                    assert_eq!(super::summary(body).unwrap().token().as_str(), token);
                }
            }
        }
    }

    #[test]
    fn a_lease_is_known_by_its_partition_id_where_it_has_no_token() {
        let body = Bytes::from_static(br#"{"id":"x..7","PartitionId":"7","properties":{}}"#);
        for _ in 0..2 {
            assert_eq!(document(&body).unwrap().1.token().as_str(), "7");
            assert_eq!(summary(&body).unwrap().token().as_str(), "7");
        }
        let array = Bytes::from_static(b"[]");
        assert!(document(&array).is_err() && summary(&array).is_none());
        assert!(summary(&Bytes::from_static(br#"{"id":"x.info"}"#)).is_none());
    }

    #[test]
    fn a_buffer_is_kept_once_it_was_read_often_and_freed_with_its_version() {
        let mut parsed = Parsed::new();
        let body = body("a_buffer_is_kept", "a");
        let summary = summarise(&body).unwrap();
        parsed.insert(Version::new(&body, Arc::clone(&summary), None));
        for _ in 2..READS_OF_SHARED_BUFFER {
            assert!(parsed.get(&body).is_some() && body.is_unique());
        }
        for _ in 0..2 {
            assert!(parsed.get(&body).is_some() && !body.is_unique());
            assert!(parsed.get(&copied(&body)).is_some(), "the same bytes elsewhere");
            assert!(parsed.get(&body.slice(..body.len() - 1)).is_none(), "other bytes at the same address");
        }
        drop(summary);
        parsed.limit = 0;
        parsed.insert(Version::new(&Bytes::from_static(b"{}"), summarise(&body).unwrap(), None));
        assert!(body.is_unique() && parsed.shared.is_empty());
    }

    #[test]
    fn versions_that_nobody_knows_are_dropped() {
        let mut parsed = Parsed::new();
        let mut known = Vec::new();
        for at in 0..10 * SLACK {
            let body = body(&at.to_string(), "a");
            let summary = summarise(&body).unwrap();
            parsed.insert(Version::new(&body, Arc::clone(&summary), None));
            known.extend((at % 10 == 0).then_some((body, summary)));
        }
        assert!(parsed.versions.len() <= 3 * SLACK, "{}", parsed.versions.len());
        assert!(known.iter().all(|(body, _)| parsed.get(body).is_some()));
    }
}
