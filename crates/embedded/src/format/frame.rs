//! Frames: what one commit appends. A frame holds whole records and counts as written only if all of it is there.

use super::Fields;

/// Length of a frame header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Frames begin at multiples of this, so that a search for the next one is quick.
pub(crate) const ALIGNMENT: usize = 8;

const MAGIC: u32 = u32::from_le_bytes(*b"CFfr");

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Records of one group of commits.
    Data,
    /// The end of a segment: nothing follows.
    Seal,
    /// The store was closed here: everything before it was synced.
    Closed,
    /// The store was opened here, to be used in relaxed mode: commits after it may vanish with the power.
    Relaxed,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    /// Bytes of records that follow the header, without padding.
    pub(crate) payload: u32,
    /// How many records.
    pub(crate) records: u32,
    /// Position of the frame in its segment, counted from 1.
    pub(crate) number: u32,
    /// Frames up to this number were on disk before this one was written: if one of them is damaged, no crash did it.
    pub(crate) synced: u32,
}

impl FrameHeader {
    /// Header, payload and padding.
    pub(crate) fn total_bytes(&self) -> u64 {
        (HEADER_BYTES as u64 + u64::from(self.payload)).next_multiple_of(ALIGNMENT as u64)
    }

    /// `segment` is mixed into the checksum, so that bytes of another segment are never taken for this one's.
    pub(crate) fn encode(&self, segment: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.synced.to_le_bytes());
        let crc = checksum(&bytes[..24], segment);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are not the header of a frame of this segment.
    pub(crate) fn decode(bytes: &[u8], segment: u32) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != MAGIC {
            return None;
        }
        let kind = match fields.u32()? {
            0 => FrameKind::Data,
            1 => FrameKind::Seal,
            2 => FrameKind::Closed,
            3 => FrameKind::Relaxed,
            _ => return None,
        };
        let (payload, records, number, synced) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let header = Self { kind, payload, records, number, synced };
        let crc = fields.u32()?;
        (fields.u32()? == 0 && crc == checksum(bytes.get(..24)?, segment)).then_some(header)
    }
}

fn checksum(bytes: &[u8], segment: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&segment.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Where a frame begins that proves that frame `number` was on disk, searching `bytes` from `from` on.
pub(crate) fn find_proof(bytes: &[u8], from: usize, number: u32, segment: u32) -> Option<usize> {
    let mut offset = from.next_multiple_of(ALIGNMENT);
    while let Some(candidate) = bytes.get(offset..offset + HEADER_BYTES) {
        if FrameHeader::decode(candidate, segment).is_some_and(|header| header.synced >= number) {
            return Some(offset);
        }
        offset += ALIGNMENT;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FrameHeader = FrameHeader { kind: FrameKind::Data, payload: 100, records: 2, number: 9, synced: 7 };

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = HEADER.encode(3);
        assert_eq!(FrameHeader::decode(&good, 3), Some(HEADER));
        assert_eq!(FrameHeader::decode(&good, 4), None);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bad, 3), None, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_that_proves_an_earlier_one_is_found_behind_rubbish() {
        let mut bytes = vec![0xab; 1000];
        bytes[504..536].copy_from_slice(&HEADER.encode(3));
        assert_eq!(find_proof(&bytes, 1, 7, 3), Some(504));
        assert_eq!(find_proof(&bytes, 1, 8, 3), None);
        assert_eq!(find_proof(&bytes, 505, 7, 3), None);
    }
}
