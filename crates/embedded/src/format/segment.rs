//! Segment files: their names and their 64-byte header.

use super::{Fields, OLDEST_VERSION, VERSION};

/// Length of the header; the first frame follows it.
pub(crate) const HEADER_BYTES: usize = 64;

/// The length in the header of a segment that was written in one go: it has its seal from the beginning.
pub(crate) const WHOLE: u64 = u64::MAX;

const MAGIC: &[u8; 8] = b"CFEEDSEG";
const SUFFIX: &str = ".log";

/// What a segment is: the numbers of the log segments whose records it holds, `first..=last`.
///
/// A segment as written by commits has `first == last`; compaction makes one of several neighbours. The spans of all
/// segments of a folder follow each other without gap; one that lies within another's span is a left-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Span {
    pub(crate) fn one(number: u32) -> Self {
        Self { first: number, last: number }
    }

    pub(crate) fn file_name(self) -> String {
        format!("{:08x}-{:08x}{SUFFIX}", self.first, self.last)
    }

    pub(crate) fn from_file_name(name: &str) -> Option<Self> {
        let (first, last) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let number = |text: &str| (text.len() == 8).then(|| u32::from_str_radix(text, 16).ok()).flatten();
        let span = Self { first: number(first)?, last: number(last)? };
        (1 <= span.first && span.first <= span.last && span.file_name() == name).then_some(span)
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// Why a header is not one of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Damaged or not a segment at all.
    Damaged,
    /// A format that this program does not know.
    Version(u32),
    /// The name says another span than the header.
    OtherSpan(Span),
}

/// `length` is how long the file is made before it is used, 0 if it grows with its frames, or [`WHOLE`].
pub(crate) fn encode_header(span: Span, length: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&span.first.to_le_bytes());
    bytes.extend_from_slice(&span.last.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let mut header = [0; HEADER_BYTES];
    header[..bytes.len()].copy_from_slice(&bytes);
    header
}

/// Returns the length that the file was made with.
pub(crate) fn check_header(bytes: &[u8], expected: Span) -> Result<u64, HeaderError> {
    let parse = || {
        let mut fields = Fields(bytes);
        let magic = fields.take(8)?;
        let (version, first, last) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (length, crc) = (fields.u64()?, fields.u32()?);
        let whole = magic == MAGIC && crc == crc32fast::hash(bytes.get(..28)?);
        whole.then_some((version, Span { first, last }, length))
    };
    match parse() {
        None => Err(HeaderError::Damaged),
        Some((version, ..)) if !(OLDEST_VERSION..=VERSION).contains(&version) => Err(HeaderError::Version(version)),
        Some((_, span, _)) if span != expected => Err(HeaderError::OtherSpan(span)),
        Some((.., length)) => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_survives_its_file_name() {
        let span = Span { first: 3, last: 0xabc };
        assert_eq!(span.file_name(), "00000003-00000abc.log");
        assert_eq!(Span::from_file_name(&span.file_name()), Some(span));
        for name in ["", "x", "00000003-00000002.log", "00000000-00000000.log", "3-4.log", "00000003-0000000G.log"] {
            assert_eq!(Span::from_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let span = Span::one(7);
        let good = encode_header(span, 9);
        assert_eq!(check_header(&good, span), Ok(9));
        for bit in 0..32 * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check_header(&bad, span).is_err(), "bit {bit}");
        }
        assert_eq!(check_header(&good[..28], span), Err(HeaderError::Damaged));
        assert_eq!(check_header(&good, Span::one(8)), Err(HeaderError::OtherSpan(span)));
    }
}
