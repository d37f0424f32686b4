//! Activity ids: one for each request, to find it in the logs of client and server.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::HeaderValue;

/// The form of a UUID: its length, and the positions of its dashes among hexadecimal digits.
const UUID_CHARS: usize = 36;
const DASHES: [usize; 4] = [8, 13, 18, 23];
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Generates ids in the form of UUIDs: random at the start, then counted, so that no request waits for the system.
#[derive(Debug)]
pub(crate) struct ActivityIds {
    start: u64,
    next: AtomicU64,
}

impl ActivityIds {
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 16];
        if getrandom::fill(&mut bytes).is_err() {
            tracing::warn!("the system gives no random numbers: activity ids may repeat those of other servers");
        }
        let [start, next] = [0, 8].map(|at| {
            let mut half = [0; 8];
            half.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(half)
        });
        Self { start, next: AtomicU64::new(next) }
    }

    /// Returns the next id.
    pub(crate) fn next(&self) -> HeaderValue {
        let low = self.next.fetch_add(1, Ordering::Relaxed);
        // Version and variant of a random UUID.
        let high = self.start & 0xffff_ffff_ffff_0fff | 0x4000;
        let low = low & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
        let mut text = [b'-'; UUID_CHARS];
        let mut digits = [high, low].into_iter().flat_map(|half| (0..16).rev().map(move |at| half >> (4 * at) & 15));
        for char in text.iter_mut().enumerate().filter(|(at, _)| !DASHES.contains(at)).map(|(_, char)| char) {
            *char = digits.next().map_or(b'0', |digit| HEX[digit as usize]);
        }
        HeaderValue::from_bytes(&text)
            .unwrap_or_else(|_| HeaderValue::from_static("00000000-0000-4000-8000-000000000000"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_all_different() {
        let activities = ActivityIds::new();
        let (one, two) = (activities.next(), activities.next());
        assert_ne!(one, two);
        assert_ne!(ActivityIds::new().next(), one);
        let text = one.to_str().unwrap();
        let lengths: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(text.as_bytes()[14], b'4', "the version of a random UUID: {text}");
        assert!(matches!(text.as_bytes()[19], b'8'..=b'b'), "{text}");
    }
}
