//! Buffers that long reads go into, used again and again: a new one would have to be zeroed first, which costs as much
//! as filling it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// The sizes of buffers: up to the longest read, and each at most twice as large as what is put into it, so that a
/// body that is kept does not hold much else in memory. Shorter reads get memory of their own.
const SIZES: [usize; 4] = [64 << 10, 128 << 10, 256 << 10, 512 << 10];

/// Free buffers of each size that are kept when none is in use: 7.5 MiB in all.
const KEPT: usize = 8;

/// Buffers of all sizes. As many of a size are kept free as are in use, and a few: readers that work in turns then
/// never need a new one, and a store at rest holds little.
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
    /// Fills `count` bytes.
    ///
    /// # Errors
    /// That of `fill`.
    pub(crate) fn filled<E>(
        self: &Arc<Self>,
        count: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let Some(class) = SIZES.iter().position(|size| (size / 2..=*size).contains(&count)) else {
            let mut bytes = vec![0; count];
            fill(&mut bytes)?;
            return Ok(Bytes::from(bytes));
        };
        let free = {
            let mut pool = self.pools[class].lock();
            pool.lent += 1;
            pool.free.pop()
        };
        let bytes = free.unwrap_or_else(|| vec![0; SIZES[class]]);
        let mut lent = PooledBuffer { bytes, count, class, pool: Arc::clone(self) };
        fill(&mut lent.bytes[..count])?;
        Ok(Bytes::from_owner(lent))
    }
}

/// A buffer in use. It returns to its pool when the last body in it is dropped.
struct PooledBuffer {
    bytes: Vec<u8>,
    /// The number of bytes that were filled. Bytes beyond it are undefined.
    count: usize,
    class: usize,
    pool: Arc<Buffers>,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let too_many = {
            let mut pool = self.pool.pools[self.class].lock();
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

    fn filled(buffers: &Arc<Buffers>, count: usize, with: u8) -> Bytes {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(with);
            Ok::<(), ()>(())
        };
        buffers.filled(count, fill).unwrap()
    }

    fn free(buffers: &Buffers) -> [usize; SIZES.len()] {
        [0, 1, 2, 3].map(|class: usize| buffers.pools[class].lock().free.len())
    }

    #[test]
    fn a_buffer_is_used_again_once_nobody_looks_at_it() {
        let buffers = Arc::new(Buffers::default());
        let first = filled(&buffers, 100_000, 1);
        let kept = first.slice(99_990..);
        drop(first);
        let second = filled(&buffers, 120_000, 2);
        assert!(kept.iter().all(|byte| *byte == 1) && kept.len() == 10);
        let change_id = second.as_ptr();
        drop(second);
        let third = filled(&buffers, 70_000, 3);
        assert_eq!((third.as_ptr(), third.len()), (change_id, 70_000));
        assert!(third.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn short_and_very_long_reads_have_memory_of_their_own_and_failed_ones_give_it_back() {
        let buffers = Arc::new(Buffers::default());
        drop((filled(&buffers, 32 * 1024 - 1, 1), filled(&buffers, 512 * 1024 + 1, 1)));
        assert_eq!(free(&buffers), [0; 4]);
        assert!(buffers.filled(512 * 1024, |_| Err(())).is_err());
        assert_eq!(free(&buffers), [0, 0, 0, 1]);
    }

    #[test]
    fn as_many_are_kept_as_are_in_use_and_a_few() {
        let buffers = Arc::new(Buffers::default());
        let mut used: Vec<_> = (0..3 * KEPT).map(|_| filled(&buffers, 200_000, 1)).collect();
        used.truncate(2 * KEPT);
        assert_eq!(free(&buffers), [0, 0, KEPT, 0]);
        used.truncate(KEPT);
        assert_eq!(free(&buffers), [0, 0, 2 * KEPT, 0]);
        drop(used);
        assert_eq!(free(&buffers), [0, 0, KEPT, 0]);
    }
}
