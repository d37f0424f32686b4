//! Buffers for long answers, used again and again: new memory would have to be cleared by the system first, which costs
//! as much as receiving a page of the feed.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// The sizes of buffers: up to the longest page of the feed, and each at most twice as large as what is put into it, so
/// that an item that is kept does not hold much else in memory. Other answers get memory of their own.
const SIZES: [usize; 6] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

/// Free buffers of each size that are kept when none is in use.
const KEPT: usize = 2;

/// Buffers of all sizes. As many of a size are kept free as are in use, and a few: a host that is busy then never needs
/// a new one, and one at rest holds little.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pools: [Mutex<Pool>; SIZES.len()],
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Vec<u8>>,
    lent: usize,
}

impl Buffers {
    /// A buffer for `length` bytes; none if so few or so many get memory of their own.
    pub(crate) fn lend(self: &Arc<Self>, length: usize) -> Option<Lent> {
        let class = SIZES.iter().position(|size| (size / 2..=*size).contains(&length))?;
        let free = {
            let mut pool = self.pools[class].lock();
            pool.lent += 1;
            pool.free.pop()
        };
        let bytes = free.unwrap_or_else(|| Vec::with_capacity(SIZES[class]));
        Some(Lent { bytes, length, class, pools: Arc::clone(self) })
    }
}

/// A buffer under way. It goes back when the last item in it is dropped.
pub(crate) struct Lent {
    bytes: Vec<u8>,
    /// How much it is for.
    length: usize,
    class: usize,
    pools: Arc<Buffers>,
}

impl Lent {
    /// Appends bytes; those beyond the length that it was lent for are left out.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let room = self.length.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Its contents, without a copy.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.bytes.clear();
        let too_many = {
            let mut pool = self.pools.pools[self.class].lock();
            pool.lent -= 1;
            pool.free.push(std::mem::take(&mut self.bytes));
            let keep = (pool.lent + KEPT).min(pool.free.len());
            pool.free.split_off(keep)
        };
        // Given back to the system without the lock.
        drop(too_many);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Arc<Buffers>, length: usize, with: u8) -> Bytes {
        let mut lent = buffers.lend(length).unwrap();
        lent.append(&vec![with; length - 1]);
        lent.append(&[with, with]);
        lent.into_bytes()
    }

    fn free(buffers: &Buffers) -> usize {
        buffers.pools.iter().map(|pool| pool.lock().free.len()).sum()
    }

    #[test]
    fn a_buffer_is_used_again_once_nobody_looks_at_it() {
        let buffers = Arc::new(Buffers::default());
        let first = filled(&buffers, 1_000_000, 1);
        assert_eq!(first.len(), 1_000_000, "no more than it is for");
        let kept = first.slice(999_990..);
        drop(first);
        let second = filled(&buffers, 900_000, 2);
        assert!(kept.iter().all(|byte| *byte == 1) && kept.len() == 10);
        let place = second.as_ptr();
        drop(second);
        let third = filled(&buffers, 800_000, 3);
        assert_eq!((third.as_ptr(), third.len()), (place, 800_000));
        assert!(third.iter().all(|byte| *byte == 3), "nothing is left of what was in it");
    }

    #[test]
    fn short_and_very_long_answers_have_memory_of_their_own() {
        let buffers = Arc::new(Buffers::default());
        assert!(buffers.lend(0).is_none() && buffers.lend(64 * 1024 - 1).is_none());
        assert!(buffers.lend(4 * 1024 * 1024 + 1).is_none());
        drop((buffers.lend(64 * 1024), buffers.lend(4 * 1024 * 1024)));
        assert_eq!(free(&buffers), 2);
    }

    #[test]
    fn as_many_are_kept_as_are_in_use_and_a_few() {
        let buffers = Arc::new(Buffers::default());
        let mut used: Vec<_> = (0..3 * KEPT).map(|_| filled(&buffers, 200_000, 1)).collect();
        used.truncate(2 * KEPT);
        assert_eq!(free(&buffers), KEPT);
        used.truncate(KEPT);
        assert_eq!(free(&buffers), 2 * KEPT);
        drop(used);
        assert_eq!(free(&buffers), KEPT);
    }
}
