//! Reading records back. Neighbours are read together, and bodies are slices of what was read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use changefeed_core::{Error, ErrorKind, Result};

use super::{buffers::Buffers, io_error};
use crate::{
    format::record::{self, Place},
    index::Location,
    vfs::{VfsFile, read_exact_at},
};

/// Records at most this far apart are read in one go: a little waste costs less than another call.
const GAP_BYTES: u32 = 16 * 1024;

/// One read is at most this long, so that a body that is kept does not hold much else in memory.
const RUN_BYTES: u32 = 512 * 1024;

/// A record that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) container: u32,
    pub(crate) place: Place,
    pub(crate) location: Location,
}

/// The files that the wanted records are in. Holding them keeps their bytes readable whatever compaction does.
pub(crate) type Files = BTreeMap<u32, Arc<dyn VfsFile>>;

/// The bodies of the wanted records, in the same order.
pub(crate) fn read_bodies(files: &Files, wanted: &[Wanted], buffers: &Arc<Buffers>) -> Result<Vec<Bytes>> {
    let mut bodies = Vec::with_capacity(wanted.len());
    let mut rest = wanted;
    while let Some(first) = rest.first() {
        let (run, tail) = rest.split_at(run_length(rest));
        rest = tail;
        let start = first.location.offset;
        let end = run.last().map_or(start, |last| last.location.offset + last.location.bytes);
        let bytes = read_run(files, first.location.segment, start, (end - start) as usize, buffers)?;
        for one in run {
            let offset = (one.location.offset - start) as usize;
            bodies.push(body(&bytes, offset, one)?);
        }
    }
    Ok(bodies)
}

/// The body of one record, in memory of its own.
pub(crate) fn read_body(file: &dyn VfsFile, wanted: &Wanted) -> Result<Bytes> {
    let Location { segment, offset, bytes: count } = wanted.location;
    let mut bytes = vec![0; count as usize];
    read_exact_at(file, offset.into(), &mut bytes).map_err(|error| unread(segment, offset, bytes.len(), error))?;
    let run = Bytes::from(bytes);
    body(&run, 0, wanted)
}

fn run_length(wanted: &[Wanted]) -> usize {
    let Some(first) = wanted.first() else { return 0 };
    let mut end = first.location.offset + first.location.bytes;
    let more = wanted.iter().skip(1).take_while(|next| {
        let at = next.location;
        let near = at.segment == first.location.segment && at.offset >= end && at.offset - end <= GAP_BYTES;
        let fits = near && at.offset + at.bytes - first.location.offset <= RUN_BYTES;
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
pub(crate) fn not_open(segment: u32) -> Error {
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

fn body(run: &Bytes, offset: usize, wanted: &Wanted) -> Result<Bytes> {
    let record = run.get(offset..).and_then(record::decode);
    match record {
        Some(record) if record.header.container == wanted.container && record.header.place == wanted.place => {
            Ok(run.slice_ref(record.body))
        }
        _ => {
            let Location { segment, offset, .. } = wanted.location;
            let lsn = wanted.place.lsn;
            let message = format!("the record of lsn {lsn} at byte {offset} of segment {segment} is damaged");
            Err(Error::new(ErrorKind::Corrupt, message))
        }
    }
}
