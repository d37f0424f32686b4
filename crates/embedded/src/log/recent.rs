//! The newest records of the log, in memory as they were written: whoever follows the feed needs neither the file nor
//! its checksums.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    format::{
        record::{self, ChangeId},
        segment::Span,
    },
    index::Location,
};

/// Records are kept in pieces of about this many bytes, so that a body that is kept does not hold much else in memory.
const PIECE_BYTES: usize = 64 * 1024;

/// What a piece takes beside its bytes.
const PIECE_OVERHEAD: usize = 96;

/// Pieces in the order of the log. Changed by the committer and by compaction only.
#[derive(Debug)]
pub(crate) struct Recent {
    pieces: VecDeque<Piece>,
    bytes: usize,
    limit: usize,
}

/// Whole records, one behind the other.
#[derive(Debug)]
pub(crate) struct Piece {
    segment: u32,
    offset: u32,
    bytes: Bytes,
}

impl Piece {
    fn weight(&self) -> usize {
        self.bytes.len() + PIECE_OVERHEAD
    }
}

impl Recent {
    /// Holds about `limit` bytes; none at all if that is 0.
    pub(crate) fn new(limit: usize) -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, limit }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.limit > 0
    }

    /// Takes in pieces that lie behind everything that is here.
    pub(crate) fn extend(&mut self, pieces: Vec<Piece>) {
        self.bytes += pieces.iter().map(Piece::weight).sum::<usize>();
        self.pieces.extend(pieces);
        while self.bytes > self.limit
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.bytes -= oldest.weight();
        }
    }

    /// Forgets segments whose records compaction has put elsewhere: others may lie at their offsets now.
    pub(crate) fn forget(&mut self, span: Span) {
        self.pieces.retain(|piece| !(span.first..=span.last).contains(&piece.segment));
        self.bytes = self.pieces.iter().map(Piece::weight).sum();
    }

    /// Looks records up, the quicker the closer they are to the one before.
    pub(crate) fn search(&self) -> Search<'_> {
        Search { pieces: &self.pieces, at: 0 }
    }
}

/// Copies records that were written at `offset` of a segment.
pub(crate) fn copy(segment: u32, mut offset: u32, mut records: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    while !records.is_empty() {
        let (piece, rest) = records.split_at(piece_length(records));
        pieces.push(Piece { segment, offset, bytes: Bytes::copy_from_slice(piece) });
        offset += piece.len() as u32;
        records = rest;
    }
    pieces
}

/// How many of `records`, by bytes, make up a piece: at least one.
fn piece_length(records: &[u8]) -> usize {
    let mut length = 0;
    while length < PIECE_BYTES
        && let Some(next) = records.get(length..).and_then(record::length)
        && length + next <= records.len()
    {
        length += next;
    }
    if length == 0 { records.len() } else { length }
}

/// A search for several records.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pieces: &'a VecDeque<Piece>,
    at: usize,
}

impl Search<'_> {
    /// The body of a record; none if it is not here.
    pub(crate) fn body(&mut self, container: u32, change_id: ChangeId, location: Location) -> Option<Bytes> {
        let piece = self.piece(location)?;
        let start = location.offset.checked_sub(piece.offset)? as usize;
        let record = piece.bytes.get(start..)?.get(..location.bytes as usize)?;
        let body = record::body_of(record, container, change_id)?;
        Some(piece.bytes.slice_ref(body))
    }

    /// The last piece that begins at or before a location.
    fn piece(&mut self, location: Location) -> Option<&Piece> {
        let wanted = (location.segment, location.offset);
        let begins = |at: usize| self.pieces.get(at).map(|piece| (piece.segment, piece.offset));
        let is_it = |at: usize| {
            begins(at).is_some_and(|begin| begin <= wanted) && begins(at + 1).is_none_or(|next| next > wanted)
        };
        self.at = match self.at {
            same if is_it(same) => same,
            before if is_it(before + 1) => before + 1,
            _ => self.pieces.partition_point(|piece| (piece.segment, piece.offset) <= wanted).checked_sub(1)?,
        };
        self.pieces.get(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{RecordHeader, RecordKind};

    const CONTAINER: u32 = 3;

    /// Records with these LSNs, whose bodies say so, and where they lie if they are written at `offset`.
    fn records(segment: u32, offset: u32, lsns: std::ops::Range<u64>) -> (Vec<u8>, Vec<(ChangeId, Location)>) {
        let mut bytes = Vec::new();
        let places = lsns.map(|lsn| {
            let change_id = ChangeId { lsn, op: 0 };
            let header = RecordHeader {
                kind: RecordKind::Put,
                container: CONTAINER,
                change_id,
                previous: ChangeId::default(),
                document_number: lsn,
                timestamp: 0,
                ttl: 0,
            };
            let at = offset + bytes.len() as u32;
            let length = record::append(&mut bytes, &header, &[1, 2], "id", &[body(lsn).as_bytes()]);
            (change_id, Location { segment, offset: at, bytes: length as u32 })
        });
        let places = places.collect();
        (bytes, places)
    }

    fn body(lsn: u64) -> String {
        format!("{{\"lsn\":{lsn},\"text\":\"{}\"}}", "x".repeat(lsn as usize % 50))
    }

    /// Which of the records are there, by LSN.
    fn found(recent: &Recent, places: &[(ChangeId, Location)]) -> Vec<u64> {
        let mut search = recent.search();
        let found = places.iter().filter_map(|(change_id, location)| {
            let held = search.body(CONTAINER, *change_id, *location)?;
            assert_eq!(held, body(change_id.lsn));
            Some(change_id.lsn)
        });
        found.collect()
    }

    #[test]
    fn what_was_written_is_found_in_any_order_and_nothing_else() {
        let mut recent = Recent::new(1 << 20);
        let mut all = Vec::new();
        for (segment, offset, lsns) in [(1, 96, 0..10), (1, 5000, 10..11), (1, 9000, 11..30), (2, 96, 30..40)] {
            let (bytes, places) = records(segment, offset, lsns);
            recent.extend(copy(segment, offset, &bytes));
            all.extend(places);
        }
        assert_eq!(found(&recent, &all), (0..40).collect::<Vec<_>>());
        all.reverse();
        assert_eq!(found(&recent, &all), (0..40).rev().collect::<Vec<_>>());
        let (change_id, location) = all[17];
        let body = |container, lsn, segment, offset| {
            recent.search().body(container, ChangeId { lsn, ..change_id }, Location { segment, offset, ..location })
        };
        let Location { segment, offset, .. } = location;
        assert!(body(CONTAINER, change_id.lsn, segment, offset).is_some());
        assert_eq!(body(CONTAINER + 1, change_id.lsn, segment, offset), None);
        assert_eq!(body(CONTAINER, change_id.lsn + 1, segment, offset), None);
        assert_eq!(body(CONTAINER, change_id.lsn, segment + 1, offset), None);
        assert_eq!(body(CONTAINER, change_id.lsn, segment, offset + 1), None);
        assert_eq!(body(CONTAINER, change_id.lsn, 0, 0), None);
        assert_eq!(body(CONTAINER, change_id.lsn, segment, 1 << 30), None);
    }

    #[test]
    fn the_oldest_make_room_for_the_newest() {
        let (bytes, places) = records(1, 96, 0..5000);
        let limit = 3 * PIECE_BYTES;
        for step in [1, 100, 5000] {
            let mut recent = Recent::new(limit);
            for group in places.chunks(step) {
                let start = group[0].1.offset;
                let end = group.last().map_or(start, |(_, last)| last.offset + last.bytes);
                recent.extend(copy(1, start, &bytes[(start - 96) as usize..(end - 96) as usize]));
                assert!(recent.bytes <= limit);
            }
            let found = found(&recent, &places);
            assert_eq!(found, (5000 - found.len() as u64..5000).collect::<Vec<_>>());
            let held: u32 = places[5000 - found.len()..].iter().map(|(_, location)| location.bytes).sum();
            assert!(held as usize > limit / 3, "{held} bytes in steps of {step}");
        }
    }

    #[test]
    fn no_piece_is_much_longer_than_it_should_be() {
        let (bytes, _) = records(1, 96, 0..5000);
        let mut recent = Recent::new(1 << 30);
        recent.extend(copy(1, 96, &bytes));
        assert!(recent.pieces.len() > 3);
        assert!(recent.pieces.iter().all(|piece| piece.bytes.len() < PIECE_BYTES + 1000));
        assert_eq!(recent.pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>(), bytes.len());
    }

    #[test]
    fn compacted_segments_are_forgotten_and_a_limit_of_nothing_holds_nothing() {
        let mut recent = Recent::new(1 << 20);
        let mut none = Recent::new(0);
        let mut all = Vec::new();
        for segment in 1..=4 {
            let (bytes, places) = records(segment, 96, u64::from(segment) * 10..u64::from(segment) * 10 + 3);
            recent.extend(copy(segment, 96, &bytes));
            none.extend(copy(segment, 96, &bytes));
            all.extend(places);
        }
        assert!(recent.is_wanted() && !none.is_wanted() && found(&none, &all).is_empty());
        recent.forget(Span { first: 2, last: 3 });
        assert_eq!(found(&recent, &all), [10, 11, 12, 40, 41, 42]);
        recent.forget(Span { first: 1, last: 4 });
        assert_eq!((recent.bytes, recent.pieces.len()), (0, 0));
    }
}
