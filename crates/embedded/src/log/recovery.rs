//! Reading a folder when it is opened: which segments there are, which records they hold, where to go on.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind, Result, StoreId};

use super::{
    Segment, Segments, corrupt, damaged_record, io_error, is_system_file, is_temporary, looks_like_ours, room::Spare,
    store_id, writer,
};
use crate::{
    format::{
        OLDEST_VERSION, VERSION,
        frame::{self, FrameHeader, FrameKind},
        record::{self, Record},
        segment::{self, HeaderError, Span},
    },
    index::Location,
    vfs::{Vfs, VfsFile, read_exact_at},
};

pub(crate) const FORMAT_FILE: &str = "FORMAT";

/// What [`FORMAT_FILE`] says before the version.
const FORMAT: &str = "changefeed embedded";

/// What was found.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// `None` if the folder is new, or was written before stores had an id.
    pub(crate) store: Option<StoreId>,
    /// The version of the format that the folder says it has.
    pub(crate) version: u32,
    pub(crate) segments: Segments,
    pub(crate) active: writer::Active,
    /// The last session was in relaxed mode and did not end by closing: its last commits may be missing.
    pub(crate) may_have_lost: bool,
}

/// Opens a folder, or makes a new one of an empty one. Every record is handed to `visit`, in the order of the log.
/// Nothing in the folder is changed before all of it was found good.
pub(crate) fn open(
    vfs: &Arc<dyn Vfs>,
    segment_bytes: u64,
    visit: &mut dyn FnMut(Location, &Record<'_>),
) -> Result<Recovered> {
    let names = vfs.list().map_err(|error| io_error("list the folder", error))?;
    let Some(version) = format_version(&**vfs, &names)? else {
        return create(&**vfs, segment_bytes, &names);
    };
    let store = store_id::read(&**vfs, &names)?;
    let (spans, mut obsolete) = tile(&names)?;
    let mut all = Vec::with_capacity(spans.len());
    for span in spans {
        let file =
            vfs.open(&span.file_name()).map_err(|error| io_error(format!("open {}", span.file_name()), error))?;
        all.push(Segment::new(span, file));
    }
    // A crash between beginning a segment and ending the one before it leaves both without a seal, the new one blank.
    let has_blank = all.len() > 1 && all.last().map_or(Ok(false), is_blank)?;
    let growing = all.len().saturating_sub(if has_blank { 2 } else { 1 });
    let mut end = None;
    for (index, segment) in all.iter_mut().enumerate() {
        let bytes = read_file(segment)?;
        let found = read_segment(segment, &bytes, index >= growing, visit)?;
        end = end.filter(|end: &End| !end.sealed).or(Some(found));
    }
    let Some(end) = end.filter(|end| !end.sealed) else { return Err(lost_segment(&all)) };
    if has_blank && all.get(growing).is_some_and(|segment| !segment.sealed) {
        obsolete.extend(all.pop().map(|blank| blank.span.file_name()));
    }
    settle(&**vfs, &names, &obsolete, &all, &end).map_err(|error| io_error("settle what a crash left", error))?;
    let active = match all.last() {
        Some(last) if last.span == Span::one(last.span.last) => {
            let file = Arc::clone(&last.file);
            let size = file.size().map_err(|error| io_error("measure the log", error))?;
            let capacity = if vfs.supports_preallocation() { size } else { segment_bytes };
            let End { offset, next_frame, .. } = end;
            writer::Active {
                number: last.span.last,
                file,
                offset,
                next_frame,
                synced: next_frame - 1,
                capacity,
                only_deletes: false,
            }
        }
        _ => return Err(lost_segment(&all)),
    };
    let segments = Segments(all.into_iter().map(|segment| (segment.span.first, segment)).collect());
    Ok(Recovered { store, version, segments, active, may_have_lost: end.relaxed })
}

/// Makes a new store: first its first segment, then `FORMAT`, so that a folder with `FORMAT` always has a log.
fn create(vfs: &dyn Vfs, segment_bytes: u64, names: &[String]) -> Result<Recovered> {
    let first = Span::one(1);
    for name in names.iter().filter(|name| !is_temporary(name) && !is_system_file(name)) {
        let is_ours = *name == first.file_name() && {
            let file = vfs.open(name).map_err(|error| io_error(format!("open {name}"), error))?;
            is_blank(&Segment::new(first, file))?
        };
        if !is_ours {
            let message =
                format!("the folder is not a changefeed store: it has {name} but no FORMAT; choose an empty one");
            return Err(Error::new(ErrorKind::UnknownFormat, message));
        }
    }
    let write = || {
        for name in names.iter().filter(|name| is_temporary(name)) {
            vfs.remove(name)?;
        }
        let spare = Spare::prepare(vfs, "next.tmp", segment_bytes)?;
        let active = writer::begin(vfs, first.last, spare, segment_bytes)?;
        write_format(vfs)?;
        Ok(active)
    };
    let active = write().map_err(|error| io_error("make a new store", error))?;
    let mut segments = Segments::default();
    segments.0.insert(first.first, Segment::new(first, Arc::clone(&active.file)));
    Ok(Recovered { store: None, version: VERSION, segments, active, may_have_lost: false })
}

/// Says that the folder has the newest version.
fn write_format(vfs: &dyn Vfs) -> std::io::Result<()> {
    let file = vfs.create("format.tmp")?;
    file.write_at(0, format_text(VERSION).as_bytes())?;
    file.sync()?;
    vfs.rename("format.tmp", FORMAT_FILE)?;
    vfs.sync_folder()
}

/// Ends the migration of a folder: programs that know the version before only will not open it any more.
pub(crate) fn end_migration(vfs: &dyn Vfs) -> Result<()> {
    write_format(vfs).map_err(|error| io_error("write FORMAT", error))
}

/// All of [`FORMAT_FILE`], as this version writes it.
pub(crate) fn format_line() -> String {
    format_text(VERSION)
}

fn format_text(version: u32) -> String {
    format!("{FORMAT} {version}\n")
}

/// Makes sure that what was read is on disk, and not in the page cache only; then removes left-overs.
fn settle(vfs: &dyn Vfs, names: &[String], obsolete: &[String], all: &[Segment], end: &End) -> std::io::Result<()> {
    if let [.., before, _] = all {
        // It may have been ended a moment before the crash.
        before.file.sync()?;
    }
    if let Some(last) = all.last() {
        clear_tail(&*last.file, end.offset)?;
    }
    vfs.sync_folder()?;
    names.iter().filter(|name| is_temporary(name)).chain(obsolete).try_for_each(|name| vfs.remove(name))
}

fn lost_segment(all: &[Segment]) -> Error {
    let last = all.last().map_or(0, |segment| segment.span.last);
    let message =
        format!("the log ends with segment {last}, but a later one is missing: restore the folder from a backup");
    Error::new(ErrorKind::Corrupt, message)
}

/// The version of the store in the folder, one that we know; none if there is nothing that says so.
fn format_version(vfs: &dyn Vfs, names: &[String]) -> Result<Option<u32>> {
    if !names.iter().any(|name| name == FORMAT_FILE) {
        return Ok(None);
    }
    let file = vfs.open(FORMAT_FILE).map_err(|error| io_error("open FORMAT", error))?;
    let mut found = vec![0; 64];
    let count = file.read_at(0, &mut found).map_err(|error| io_error("read FORMAT", error))?;
    found.truncate(count);
    let known = (OLDEST_VERSION..=VERSION).find(|version| found == format_text(*version).as_bytes());
    known.map(Some).ok_or_else(|| unknown_format(&String::from_utf8_lossy(&found)))
}

fn unknown_format(found: &str) -> Error {
    let found = found.trim_end();
    let message = format!(
        "the folder's format is {found:?}, but this program knows \"{FORMAT} {OLDEST_VERSION}\" to \"{FORMAT} {VERSION}\" only"
    );
    Error::new(ErrorKind::UnknownFormat, message)
}

/// The spans that make up the log, and the files that compaction replaced. Complains of gaps and overlaps.
fn tile(names: &[String]) -> Result<(Vec<Span>, Vec<String>)> {
    let mut spans = Vec::new();
    for name in
        names.iter().filter(|name| ![FORMAT_FILE, store_id::STORE_FILE].contains(&name.as_str()) && !is_temporary(name))
    {
        match Span::from_file_name(name) {
            Some(span) => spans.push(span),
            // Whatever else people and their tools put here is not our business.
            None if !looks_like_ours(name) => {}
            None => {
                let message =
                    format!("the folder holds {name}, which is like a file of the store but none: move it away");
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
    Ok((kept, replaced.into_iter().map(Span::file_name).collect()))
}

/// Where a segment's records end.
#[derive(Debug)]
pub(crate) struct End {
    sealed: bool,
    offset: u64,
    next_frame: u32,
    /// The session that wrote the last frames was in relaxed mode and was not closed.
    relaxed: bool,
}

/// Visits all records of a segment, and says where they end.
pub(crate) fn read_segment<'a>(
    segment: &mut Segment,
    bytes: &'a [u8],
    may_grow: bool,
    visit: &mut dyn FnMut(Location, &Record<'a>),
) -> Result<End> {
    let span = segment.span;
    let length = match segment::check_header(bytes, span) {
        Ok(length) => length,
        Err(HeaderError::Version(version)) => return Err(unknown_format(&format!("changefeed embedded {version}"))),
        Err(HeaderError::Damaged) => return Err(corrupt(span, 0, "its header is not one of a segment")),
        Err(HeaderError::OtherSpan(other)) => {
            return Err(corrupt(span, 0, &format!("its header says {}", other.file_name())));
        }
    };
    let mut end = End { sealed: false, offset: segment::HEADER_BYTES as u64, next_frame: 1, relaxed: false };
    let is_finished = !may_grow || length == segment::WHOLE;
    while let Some(header) = read_frame(bytes, &end, segment, is_finished, visit) {
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
    if !may_grow || length == segment::WHOLE {
        return Err(corrupt(span, end.offset, "a frame of a finished segment is damaged or missing"));
    }
    if (bytes.len() as u64) < length {
        return Err(corrupt(span, bytes.len() as u64, &format!("the file was cut, it had {length} bytes")));
    }
    if let Some(proof) = frame::find_proof(bytes, end.offset as usize, end.next_frame, span.first) {
        let what = format!("a frame is damaged that was on disk before the one at byte {proof} was written");
        return Err(corrupt(span, end.offset, &what));
    }
    Ok(end)
}

/// Reads all segments again and checks them. The last one may grow meanwhile; files that compaction replaces stay readable
/// while they are open. `on_progress` gets the number of bytes that were read so far, after each segment.
pub(crate) fn verify(segments: impl Fn() -> Vec<Segment>, on_progress: &mut dyn FnMut(u64)) -> Result<u64> {
    let mut total = 0;
    for segment in segments() {
        let mut attempts = 0;
        total += loop {
            attempts += 1;
            let mut scratch = Segment::new(segment.span, Arc::clone(&segment.file));
            let bytes = read_file(&segment)?;
            let mut damaged = None;
            let read = read_segment(&mut scratch, &bytes, !segment.sealed, &mut |location, record| {
                if !record.is_whole {
                    damaged.get_or_insert(location);
                }
            });
            match read.and_then(|_| damaged.map_or(Ok(()), |location| Err(damaged_record(segment.span, location)))) {
                Ok(()) => break bytes.len() as u64,
                // A commit may have been written between two parts of the read, so that only its end was seen.
                Err(_) if !segment.sealed && attempts < 5 => {}
                Err(error) => return Err(error),
            }
        };
        on_progress(total);
    }
    Ok(total)
}

/// Visits the records of the frame at `end`; `None`, and nothing visited, if it is not whole. In a frame that had been
/// synced a record may be damaged, if all others are where they should be: whether it is still needed is up to `visit`.
fn read_frame<'a>(
    bytes: &'a [u8],
    end: &End,
    segment: &mut Segment,
    is_finished: bool,
    visit: &mut dyn FnMut(Location, &Record<'a>),
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
        let record = record::decode_claim(&payload[offset..])?;
        records.push((offset, record));
        offset += record.total;
    }
    if records.len() != header.records as usize {
        return None;
    }
    let was_synced = || is_finished || frame::find_proof(bytes, at + 1, header.number, segment.span.first).is_some();
    if records.iter().any(|(_, record)| !record.is_whole) && !was_synced() {
        return None;
    }
    for (offset, record) in records {
        let bytes = record.total as u32;
        segment.used += u64::from(bytes);
        visit(Location { segment: segment.span.first, offset: (start + offset) as u32, bytes }, &record);
    }
    Some(header)
}

/// Whether a segment was begun, but nothing was ever appended.
fn is_blank(segment: &Segment) -> Result<bool> {
    let mut start = [0; segment::HEADER_BYTES + frame::HEADER_BYTES];
    // Most have a frame, which shows without reading on.
    if read_exact_at(&*segment.file, 0, &mut start).is_ok()
        && start[segment::HEADER_BYTES..].iter().any(|byte| *byte != 0)
    {
        return Ok(false);
    }
    let bytes = read_file(segment)?;
    let is_begun = segment::check_header(&bytes, segment.span).is_ok();
    Ok(is_begun && bytes.iter().skip(segment::HEADER_BYTES).all(|byte| *byte == 0))
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

/// Zeros what a crash left after the last whole frame, and syncs.
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
