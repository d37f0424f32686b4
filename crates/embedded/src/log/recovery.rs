//! Reading a folder when it is opened: which segments there are, which records they hold, where to go on.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind, Result};

use super::{Segment, Segments, TEMPORARY_SUFFIX, corrupt, io_error, writer};
use crate::{
    format::{
        VERSION,
        frame::{self, FrameHeader, FrameKind},
        record::{self, Record},
        segment::{self, HeaderError, Span},
    },
    index::Location,
    vfs::{Vfs, VfsFile, read_exact_at},
};

const FORMAT_FILE: &str = "FORMAT";

/// What was found.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) segments: Segments,
    pub(crate) active: writer::Active,
    /// The last session was in relaxed mode and did not end by closing: its last commits may be missing.
    pub(crate) may_have_lost: bool,
}

/// Opens a folder, or makes a new one of an empty one. Every record is handed to `visit`, in the order of the log.
pub(crate) fn open(vfs: &Arc<dyn Vfs>, segment_bytes: u64, visit: &mut dyn FnMut(Location, &Record<'_>)) -> Result<Recovered> {
    let names = vfs.list().map_err(|error| io_error("list the folder", error))?;
    check_format(&**vfs, &names)?;
    for name in names.iter().filter(|name| name.ends_with(TEMPORARY_SUFFIX)) {
        vfs.remove(name).map_err(|error| io_error(format!("remove the left-over {name}"), error))?;
    }
    let spans = tile(&**vfs, &names)?;
    let mut segments = Segments::default();
    let mut end = None;
    for (index, span) in spans.iter().enumerate() {
        let file = vfs.open(&span.file_name()).map_err(|error| io_error(format!("open {}", span.file_name()), error))?;
        let mut segment = Segment::new(*span, file);
        let bytes = read_file(&segment)?;
        end = Some(read_segment(&mut segment, &bytes, index + 1 == spans.len(), visit)?);
        segments.0.insert(span.first, segment);
    }
    let last = spans.last().map_or(0, |span| span.last);
    let (active, may_have_lost) = match end {
        Some(End { sealed: false, offset, next_frame, relaxed }) => {
            let Some(segment) = segments.0.get(&last) else { return Err(lost_active(last)) };
            let file = Arc::clone(&segment.file);
            clear_tail(&*file, offset).map_err(|error| io_error("clear the end of the log", error))?;
            let size = file.size().map_err(|error| io_error("measure the log", error))?;
            let capacity = if vfs.likes_preallocation() { size } else { segment_bytes };
            (writer::Active { number: last, file, offset, next_frame, capacity }, relaxed)
        }
        _ => {
            let begin = || {
                let file = writer::prepare_spare(&**vfs, segment_bytes)?;
                writer::begin(&**vfs, last + 1, file, segment_bytes)
            };
            let active = begin().map_err(|error| io_error("begin a segment", error))?;
            let span = Span::one(active.number);
            segments.0.insert(span.first, Segment::new(span, Arc::clone(&active.file)));
            (active, false)
        }
    };
    Ok(Recovered { segments, active, may_have_lost })
}

fn lost_active(number: u32) -> Error {
    Error::new(ErrorKind::Corrupt, format!("segment {number} is open and part of a compacted one: restore a backup"))
}

/// Checks that the folder is ours and of a version that we know; writes that down in a new one.
fn check_format(vfs: &dyn Vfs, names: &[String]) -> Result<()> {
    let wanted = format!("changefeed embedded {VERSION}\n");
    if names.iter().any(|name| name == FORMAT_FILE) {
        let file = vfs.open(FORMAT_FILE).map_err(|error| io_error("open FORMAT", error))?;
        let mut found = vec![0; 64];
        let count = file.read_at(0, &mut found).map_err(|error| io_error("read FORMAT", error))?;
        found.truncate(count);
        if found == wanted.as_bytes() {
            return Ok(());
        }
        return Err(unknown_format(&String::from_utf8_lossy(&found)));
    }
    if let Some(stranger) = names.iter().find(|name| !name.ends_with(TEMPORARY_SUFFIX)) {
        return Err(Error::new(
            ErrorKind::UnknownFormat,
            format!("the folder is not a changefeed store: it has {stranger} but no FORMAT; choose an empty folder"),
        ));
    }
    let write = || {
        let temporary = format!("format{TEMPORARY_SUFFIX}");
        let file = vfs.create(&temporary)?;
        file.write_at(0, wanted.as_bytes())?;
        file.sync()?;
        vfs.rename(&temporary, FORMAT_FILE)?;
        vfs.sync_folder()
    };
    write().map_err(|error| io_error("write FORMAT", error))
}

fn unknown_format(found: &str) -> Error {
    Error::new(
        ErrorKind::UnknownFormat,
        format!("the folder's format is {:?}, this program knows \"changefeed embedded {VERSION}\"", found.trim_end()),
    )
}

/// The spans that make up the log. Removes what compaction replaced, complains of gaps and overlaps.
fn tile(vfs: &dyn Vfs, names: &[String]) -> Result<Vec<Span>> {
    let mut spans = Vec::new();
    for name in names.iter().filter(|name| *name != FORMAT_FILE && !name.ends_with(TEMPORARY_SUFFIX)) {
        match Span::from_file_name(name) {
            Some(span) => spans.push(span),
            None => {
                let message = format!("the folder holds {name}, which is no file of the store: move it away");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
    }
    let (kept, replaced): (Vec<Span>, Vec<Span>) =
        spans.iter().partition(|span| !spans.iter().any(|other| other != *span && other.covers(**span)));
    for (before, span) in std::iter::once(0).chain(kept.iter().map(|span| span.last)).zip(&kept) {
        if span.first != before + 1 {
            let message = format!("the log has no segment between {before} and {}: restore the folder", span.first);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
    }
    for span in replaced {
        vfs.remove(&span.file_name()).map_err(|error| io_error(format!("remove {}", span.file_name()), error))?;
    }
    Ok(kept)
}

/// Where a segment's records end.
#[derive(Debug)]
pub(crate) struct End {
    sealed: bool,
    offset: u64,
    next_frame: u64,
    relaxed: bool,
}

/// Visits all records of a segment, and says where they end.
pub(crate) fn read_segment(
    segment: &mut Segment,
    bytes: &[u8],
    is_last: bool,
    visit: &mut dyn FnMut(Location, &Record<'_>),
) -> Result<End> {
    let span = segment.span;
    match segment::check_header(bytes, span) {
        Ok(()) => {}
        Err(HeaderError::Version(version)) => return Err(unknown_format(&format!("changefeed embedded {version}"))),
        Err(HeaderError::Damaged) => return Err(corrupt(span, 0, "its header is not one of a segment")),
        Err(HeaderError::OtherSpan(other)) => {
            return Err(corrupt(span, 0, &format!("its header says {}", other.file_name())));
        }
    }
    let mut end = End { sealed: false, offset: segment::HEADER_BYTES as u64, next_frame: 1, relaxed: false };
    while let Some(header) = read_frame(bytes, &end, segment, visit) {
        match header.kind {
            FrameKind::Seal => end.sealed = true,
            FrameKind::Relaxed => end.relaxed = true,
            FrameKind::Closed => end.relaxed = false,
            FrameKind::Data => {}
        }
        end.offset += header.total_bytes();
        end.next_frame += 1;
        if end.sealed {
            segment.sealed = true;
            return Ok(end);
        }
    }
    if !is_last {
        return Err(corrupt(span, end.offset, "a frame of a finished segment is damaged or missing"));
    }
    // At most one frame is not synced at any time: a later one proves that this one was, unless the mode was relaxed.
    let later = frame::find_later(bytes, end.offset as usize, end.next_frame, span.first);
    if let (Some(later), false) = (later, end.relaxed) {
        return Err(corrupt(span, end.offset, &format!("a frame is damaged, but byte {later} begins a later one")));
    }
    Ok(end)
}

/// Visits the records of the frame at `end`; `None`, and nothing visited, if it is not whole.
fn read_frame(
    bytes: &[u8],
    end: &End,
    segment: &mut Segment,
    visit: &mut dyn FnMut(Location, &Record<'_>),
) -> Option<FrameHeader> {
    let at = usize::try_from(end.offset).ok()?;
    let header = FrameHeader::decode(bytes.get(at..)?, segment.span.first)?;
    if header.number != end.next_frame {
        return None;
    }
    let start = at + frame::HEADER_BYTES;
    let payload = bytes.get(start..start + header.payload as usize)?;
    let mut records = Vec::with_capacity(header.records as usize);
    let mut offset = 0;
    while offset < payload.len() {
        let record = record::decode(&payload[offset..])?;
        records.push((offset, record));
        offset += record.total;
    }
    if records.len() != header.records as usize {
        return None;
    }
    for (offset, record) in records {
        let bytes = record.total as u32;
        segment.used += u64::from(bytes);
        visit(Location { segment: segment.span.first, offset: (start + offset) as u32, bytes }, &record);
    }
    Some(header)
}

/// All bytes of a segment.
pub(crate) fn read_file(segment: &Segment) -> Result<Vec<u8>> {
    let read = || {
        let mut bytes = vec![0; usize::try_from(segment.file.size()?).unwrap_or(usize::MAX)];
        read_exact_at(&*segment.file, 0, &mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| io_error(format!("read {}", segment.span.file_name()), error))
}

/// Zeros what a crash left after the last whole frame, and makes sure that everything before it is on disk: what was
/// read may have been in the page cache only.
fn clear_tail(file: &dyn VfsFile, offset: u64) -> std::io::Result<()> {
    let tail = file.size()?.saturating_sub(offset);
    let mut bytes = vec![0; usize::try_from(tail).unwrap_or(usize::MAX)];
    read_exact_at(file, offset, &mut bytes)?;
    if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
        bytes.truncate(last + 1);
        bytes.fill(0);
        file.write_at(offset, &bytes)?;
    }
    file.sync()
}
