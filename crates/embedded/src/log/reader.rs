//! Reading records back. Neighbours are read together, and bodies are slices of what was read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use changefeed_core::{Error, ErrorKind, Result};

use super::{buffers::Buffers, io_error, recent::Search};
use crate::{
    format::record::{self, ChangeId},
    index::Location,
    vfs::{VfsFile, read_exact_at},
};

/// Records at most this far apart are read in one go: a little waste costs less than another call.
const GAP_BYTES: u32 = 16 * 1024;

/// One read is at most this long, so that a body that is kept does not hold much else in memory.
const RUN_BYTES: u32 = 512 * 1024;

/// One record to read.
#[derive(Clone, Debug)]
pub(crate) struct RecordRead {
    pub(crate) container: u32,
    pub(crate) change_id: ChangeId,
    pub(crate) location: Location,
    /// Its body, if that is in memory.
    pub(crate) body: Option<Bytes>,
}

impl RecordRead {
    /// A record, with its body if that is among the recent ones.
    pub(crate) fn new(container: u32, change_id: ChangeId, location: Location, recent: &mut Search<'_>) -> Self {
        Self { container, change_id, location, body: recent.body(container, change_id, location) }
    }
}

/// The files that the records are in. Holding them keeps their bytes readable whatever compaction does.
pub(crate) type Files = BTreeMap<u32, Arc<dyn VfsFile>>;

/// The bodies of the records, in the same order.
pub(crate) fn read_bodies(files: &Files, mut reads: Vec<RecordRead>, buffers: &Arc<Buffers>) -> Result<Vec<Bytes>> {
    let mut bodies = Vec::with_capacity(reads.len());
    let mut next = 0;
    while let Some(first) = reads.get_mut(next) {
        if let Some(body) = first.body.take() {
            bodies.push(body);
            next += 1;
            continue;
        }
        let Location { segment, offset: start, .. } = first.location;
        let run = &reads[next..];
        let run = &run[..run_length(run)];
        next += run.len();
        let end = run.last().map_or(start, |last| last.location.offset + last.location.bytes);
        let bytes = read_run(files, segment, start, (end - start) as usize, buffers)?;
        let of_run = run.iter().map(|one| body(&bytes, (one.location.offset - start) as usize, one));
        if is_sparse(run, end - start) {
            bodies.extend(copied(of_run, run.len())?);
        } else {
            for body in of_run {
                bodies.push(bytes.slice_ref(body?));
            }
        }
    }
    Ok(bodies)
}

/// Whether most of what was read belongs to other records.
fn is_sparse(run: &[RecordRead], length: u32) -> bool {
    run.iter().map(|one| one.location.bytes).sum::<u32>() < length / 2
}

/// Bodies in memory of their own: what was read between them is let go, and the next read finds its buffer in the
/// caches still.
fn copied<'a>(bodies: impl Iterator<Item = Result<&'a [u8]>>, count: usize) -> Result<Vec<Bytes>> {
    let mut together = Vec::new();
    let mut ends = Vec::with_capacity(count);
    for body in bodies {
        together.extend_from_slice(body?);
        ends.push(together.len());
    }
    let together = Bytes::from(together);
    let mut start = 0;
    let cut = |end| together.slice(std::mem::replace(&mut start, end)..end);
    Ok(ends.into_iter().map(cut).collect())
}

/// The body of one record: as it lies in memory, or read from its file into memory of its own.
pub(crate) fn read_body(file: Option<&dyn VfsFile>, read: RecordRead) -> Result<Bytes> {
    if let Some(body) = read.body {
        return Ok(body);
    }
    let Location { segment, offset, bytes: count } = read.location;
    let file = file.ok_or_else(|| not_open(segment))?;
    let mut bytes = vec![0; count as usize];
    read_exact_at(file, offset.into(), &mut bytes).map_err(|error| unread(segment, offset, bytes.len(), error))?;
    let run = Bytes::from(bytes);
    Ok(run.slice_ref(body(&run, 0, &read)?))
}

fn run_length(reads: &[RecordRead]) -> usize {
    let Some(first) = reads.first() else { return 0 };
    let mut end = first.location.offset + first.location.bytes;
    let more = reads.iter().skip(1).take_while(|next| {
        let at = next.location;
        let near = at.segment == first.location.segment && at.offset >= end && at.offset - end <= GAP_BYTES;
        let fits = near && next.body.is_none() && at.offset + at.bytes - first.location.offset <= RUN_BYTES;
        if fits {
            end = at.offset + at.bytes;
        }
        fits
    });
    1 + more.count()
}

fn read_run(files: &Files, segment: u32, offset: u32, count: usize, buffers: &Arc<Buffers>) -> Result<Bytes> {
    let file = files.get(&segment).ok_or_else(|| not_open(segment))?;
    let read = buffers.filled(count, |bytes| read_exact_at(&**file, offset.into(), bytes));
    read.map_err(|error| unread(segment, offset, count, error))
}

/// A record is said to lie in a segment that is not there.
fn not_open(segment: u32) -> Error {
    Error::new(ErrorKind::Corrupt, format!("segment {segment} is not open"))
}

fn unread(segment: u32, offset: u32, count: usize, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Corrupt, format!("segment {segment} was cut: it ends before byte {offset} + {count}"))
        }
        _ => io_error(format!("read {count} bytes at {offset} of segment {segment}"), error),
    }
}

fn body<'a>(run: &'a [u8], offset: usize, read: &RecordRead) -> Result<&'a [u8]> {
    let record = run.get(offset..).and_then(record::decode);
    match record {
        Some(record) if record.header.container == read.container && record.header.change_id == read.change_id => {
            Ok(record.body)
        }
        _ => {
            let Location { segment, offset, .. } = read.location;
            let lsn = read.change_id.lsn;
            let message = format!("the record of lsn {lsn} at byte {offset} of segment {segment} is damaged");
            Err(Error::new(ErrorKind::Corrupt, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::record::{RecordHeader, RecordKind},
        vfs::{Vfs, memory::MemoryDisk},
    };

    const LENGTH: usize = 500;

    /// A segment of so many records, and where to find them.
    fn segment(count: u16) -> (Files, Vec<RecordRead>) {
        let mut bytes = Vec::new();
        let records = (0..count).map(|number| {
            let change_id = ChangeId { lsn: number.into(), op: 0 };
            let header = RecordHeader {
                kind: RecordKind::Put,
                container: 1,
                change_id,
                previous: ChangeId { lsn: 0, op: 0 },
                document_number: 0,
                timestamp: 0,
                ttl: 0,
            };
            let offset = bytes.len() as u32;
            let body = [number as u8; LENGTH];
            let length = record::append(&mut bytes, &header, &[], "id", &[&body]) as u32;
            RecordRead { container: 1, change_id, location: Location { segment: 0, offset, bytes: length }, body: None }
        });
        let records = records.collect();
        let file = MemoryDisk::default().create("segment").unwrap();
        file.write_at(0, &bytes).unwrap();
        (Files::from([(0, file)]), records)
    }

    /// Reads every so many of 400 records; whether the buffer that they were read into is still held by their bodies.
    fn holds_its_buffer(step: usize) -> bool {
        let (files, records) = segment(400);
        let reads: Vec<_> = records.into_iter().step_by(step).collect();
        let buffers = Arc::default();
        let bodies = read_bodies(&files, reads.clone(), &buffers).unwrap();
        assert_eq!(bodies.len(), reads.len());
        for (body, one) in bodies.iter().zip(&reads) {
            assert!(body.len() == LENGTH && body.iter().all(|byte| *byte == one.change_id.lsn as u8), "{one:?}");
        }
        Arc::strong_count(&buffers) > 1
    }

    #[test]
    fn bodies_that_lie_apart_do_not_hold_what_is_between_them() {
        assert!(holds_its_buffer(1) && holds_its_buffer(2));
        assert!(!holds_its_buffer(3));
    }
}
