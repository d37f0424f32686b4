//! Records: one change of one item.

use super::Fields;

/// Length of the fixed part; EPK, id and body follow.
pub(crate) const FIXED_BYTES: usize = 64;

/// What a record says about its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A new version.
    Put,
    /// Deleted by a caller.
    Delete,
    /// Deleted because its time to live was over.
    Expire,
    /// Not an item: LSNs up to `lsn` are used up in the range that holds its EPK, all-versions history up to
    /// `previous.lsn` is gone there, and document numbers up to `document_number` are used up in the container.
    Watermark,
}

/// Position of one write among those of its key: the LSN, and the place in the batch that shares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeId {
    pub(crate) lsn: u64,
    pub(crate) op: u16,
}

/// The fixed fields of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) container: u32,
    pub(crate) change_id: ChangeId,
    /// Where the version before this one is; LSN 0 if there was none.
    pub(crate) previous: ChangeId,
    /// The document number in `_rid`, given when the item was created.
    pub(crate) document_number: u64,
    /// Milliseconds since the epoch.
    pub(crate) timestamp: u64,
    /// Time to live of the item in seconds: 0 not set, -1 never expires.
    pub(crate) ttl: i32,
}

/// A record as it lies in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) epk: &'a [u8],
    pub(crate) id: &'a str,
    pub(crate) body: &'a [u8],
    /// Length of the whole record.
    pub(crate) total: usize,
    /// Whether its checksum is right. If not, it may be anything.
    pub(crate) is_whole: bool,
}

/// Appends a record whose body is `body` in several pieces. Returns its length.
///
/// EPKs are at most 255 bytes, ids at most 1,023 bytes and bodies at most a few MiB, which their types guarantee.
pub(crate) fn append(out: &mut Vec<u8>, header: &RecordHeader, epk: &[u8], id: &str, body: &[&[u8]]) -> usize {
    let start = out.len();
    let body_bytes: usize = body.iter().map(|piece| piece.len()).sum();
    let total = FIXED_BYTES + epk.len() + id.len() + body_bytes;
    out.reserve(total);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(total as u32).to_le_bytes());
    out.push(header.kind as u8);
    out.push(epk.len() as u8);
    out.extend_from_slice(&header.change_id.op.to_le_bytes());
    out.extend_from_slice(&header.container.to_le_bytes());
    out.extend_from_slice(&header.change_id.lsn.to_le_bytes());
    out.extend_from_slice(&header.previous.lsn.to_le_bytes());
    out.extend_from_slice(&header.previous.op.to_le_bytes());
    out.extend_from_slice(&(id.len() as u16).to_le_bytes());
    out.extend_from_slice(&(body_bytes as u32).to_le_bytes());
    out.extend_from_slice(&header.document_number.to_le_bytes());
    out.extend_from_slice(&header.timestamp.to_le_bytes());
    out.extend_from_slice(&header.ttl.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(epk);
    out.extend_from_slice(id.as_bytes());
    for piece in body {
        out.extend_from_slice(piece);
    }
    let crc = crc32fast::hash(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    total
}

/// The record at the beginning of `bytes`; `None` if it is cut or damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    decode_claim(bytes).filter(|record| record.is_whole)
}

/// What the record at the beginning of `bytes` claims to be, damaged or not; `None` if it cannot be one.
pub(crate) fn decode_claim(bytes: &[u8]) -> Option<Record<'_>> {
    let mut fields = Fields(bytes);
    let crc = fields.u32()?;
    let total = usize::try_from(fields.u32()?).ok()?;
    let whole = bytes.get(..total)?;
    if total < FIXED_BYTES {
        return None;
    }
    let is_whole = crc == crc32fast::hash(whole.get(4..)?);
    let mut fields = Fields(whole.get(8..)?);
    let kind = match fields.u8()? {
        0 => RecordKind::Put,
        1 => RecordKind::Delete,
        2 => RecordKind::Expire,
        3 => RecordKind::Watermark,
        _ => return None,
    };
    let epk_bytes = fields.u8()?;
    let op = fields.u16()?;
    let container = fields.u32()?;
    let lsn = fields.u64()?;
    let previous_lsn = fields.u64()?;
    let previous_op = fields.u16()?;
    let id_bytes = fields.u16()?;
    let body_bytes = fields.u32()?;
    let (document_number, timestamp, ttl) = (fields.u64()?, fields.u64()?, fields.i32()?);
    // Version 1 had a number here that means nothing any more.
    fields.take(4)?;
    let epk = fields.take(epk_bytes.into())?;
    let id = std::str::from_utf8(fields.take(id_bytes.into())?).ok()?;
    let body = fields.take(usize::try_from(body_bytes).ok()?)?;
    let header = RecordHeader {
        kind,
        container,
        change_id: ChangeId { lsn, op },
        previous: ChangeId { lsn: previous_lsn, op: previous_op },
        document_number,
        timestamp,
        ttl,
    };
    fields.0.is_empty().then_some(Record { header, epk, id, body, total, is_whole })
}

/// The length of the record at the beginning of `bytes`, which is trusted to be one.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let length = Fields(bytes.get(4..)?).u32()?;
    usize::try_from(length).ok().filter(|length| *length >= FIXED_BYTES)
}

/// The body of a record that never left memory, so that no checksum is needed; none if it is another record.
pub(crate) fn body_of(record: &[u8], container: u32, change_id: ChangeId) -> Option<&[u8]> {
    let (fixed, rest) = record.split_at_checked(FIXED_BYTES)?;
    let mut fields = Fields(fixed.get(9..)?);
    let epk_bytes = usize::from(fields.u8()?);
    let op = fields.u16()?;
    if fields.u32()? != container || (ChangeId { lsn: fields.u64()?, op }) != change_id {
        return None;
    }
    let id_bytes = usize::from(Fields(fixed.get(34..)?).u16()?);
    rest.get(epk_bytes + id_bytes..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (RecordHeader, Vec<u8>) {
        let header = RecordHeader {
            kind: RecordKind::Expire,
            container: 7,
            change_id: ChangeId { lsn: 1 << 40, op: 99 },
            previous: ChangeId { lsn: 5, op: 3 },
            document_number: 1 << 50,
            timestamp: 1_794_774_980_123,
            ttl: -1,
        };
        let mut bytes = Vec::new();
        append(&mut bytes, &header, &[1, 2, 3], "é-id", &[b"{\"a\":", b"1}"]);
        (header, bytes)
    }

    #[test]
    fn a_record_survives_its_bytes() {
        let (header, bytes) = sample();
        let record = decode(&bytes).unwrap();
        assert_eq!(
            record,
            Record { header, epk: &[1, 2, 3], id: "é-id", body: b"{\"a\":1}", total: bytes.len(), is_whole: true }
        );
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (_, good) = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
        for length in 0..good.len() {
            assert_eq!(decode(&good[..length]), None, "length {length}");
        }
    }
}
