//! The bytes on disk, as `docs/format.md` describes them. Pure: slices in, values out; never panics on any input.

pub(crate) mod frame;
pub(crate) mod record;
pub(crate) mod segment;

/// Version of the format, in the `FORMAT` file and in every segment header. Raised with every change that an older
/// reader would misread.
pub(crate) const VERSION: u32 = 2;

/// The oldest version that is read. A folder of it becomes one of [`VERSION`] when it is opened.
pub(crate) const OLDEST_VERSION: u32 = 1;

/// Reads little-endian fields from a slice, one after the other. `None` once the slice is too short.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
