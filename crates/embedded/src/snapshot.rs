//! A snapshot: the files of the store as they are at one moment, readable while commits and compaction go on.

use std::{collections::BTreeSet, fmt, sync::Arc};

use changefeed_core::{Error, ErrorKind, Result, StoreId};

use crate::{
    engine::Engine,
    log::{
        Segment, damaged_record, io_error,
        recovery::{self, FORMAT_FILE, format_line},
    },
    vfs::read_exact_at,
};

/// The files of a store at one moment. Keeps them open, so that compaction does not take them away: disk space is freed
/// when the snapshot is dropped. The identity of the store is not among them: a folder that is made of these files gets an
/// identity of its own when it is opened.
pub struct Snapshot {
    store: StoreId,
    files: Vec<File>,
    /// Records that are damaged and that newer ones have replaced, by segment and offset: they do no harm.
    superseded: BTreeSet<(u32, u32)>,
}

/// One file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotFile {
    /// Its name in the folder.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
}

struct File {
    shown: SnapshotFile,
    content: Content,
}

enum Content {
    /// The line that names the format.
    Format,
    /// A segment. Of the one that grows only what was committed belongs to the snapshot; the rest reads as zeros.
    Segment(Segment, Option<u64>),
}

impl Engine {
    /// Takes a snapshot of everything that is committed now. Costs one sync and no copy; reads and writes go on.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the store was closed or stopped itself, [`ErrorKind::Io`] if a file cannot be measured.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let shared = &self.threads.shared;
        let (active, segments, superseded) = {
            // Nothing is appended, and no segment is begun, while the committer is held.
            let mut committer = shared.committer.lock();
            committer.sync()?;
            let state = shared.inner.state.read();
            let segments: Vec<Segment> = state.segments.0.values().cloned().collect();
            (committer.end(), segments, state.damaged.clone())
        };
        let format = SnapshotFile { name: FORMAT_FILE.to_owned(), bytes: format_line().len() as u64 };
        let mut files = vec![File { shown: format, content: Content::Format }];
        for segment in segments {
            let name = segment.span.file_name();
            let size = segment.file.size().map_err(|error| io_error(format!("measure {name}"), error))?;
            let end = (segment.span.last == active.0).then_some(active.1);
            files.push(File { shown: SnapshotFile { name, bytes: size }, content: Content::Segment(segment, end) });
        }
        Ok(Snapshot { store: shared.inner.store.clone(), files, superseded })
    }
}

impl Snapshot {
    /// Returns the identity of the store that it is a snapshot of.
    pub fn store_id(&self) -> &StoreId {
        &self.store
    }

    /// Returns the files, in the order of the log.
    pub fn files(&self) -> impl Iterator<Item = &SnapshotFile> {
        self.files.iter().map(|file| &file.shown)
    }

    /// Reads a file whole and checks all its checksums. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] names the place of the first damage, [`ErrorKind::Io`] if it cannot be read,
    /// [`ErrorKind::InvalidArgument`] if there is no such file.
    pub fn check(&self, name: &str) -> Result<()> {
        let file = self.file(name)?;
        let Content::Segment(segment, end) = &file.content else { return Ok(()) };
        let length = usize::try_from(file.shown.bytes).unwrap_or(usize::MAX);
        let bytes = self.read(name, 0, length)?;
        let mut scratch = Segment::new(segment.span, Arc::clone(&segment.file));
        let mut damaged = None;
        recovery::read_segment(&mut scratch, &bytes, end.is_some(), &mut |location, record| {
            if !record.is_whole && !self.superseded.contains(&(location.segment, location.offset)) {
                damaged.get_or_insert(location);
            }
        })?;
        damaged.map_or(Ok(()), |location| Err(damaged_record(segment.span, location)))
    }

    /// Reads up to `length` bytes of a file from `offset` on; fewer at its end. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::InvalidArgument`] if there is no such file.
    pub fn read(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let file = self.file(name)?;
        let left = usize::try_from(file.shown.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left)];
        match &file.content {
            Content::Format => {
                let line = format_line();
                let line = line.as_bytes().iter().skip(usize::try_from(offset).unwrap_or(usize::MAX));
                bytes.iter_mut().zip(line).for_each(|(to, from)| *to = *from);
            }
            Content::Segment(segment, end) => {
                let committed = end.unwrap_or(u64::MAX).saturating_sub(offset);
                let count = bytes.len().min(usize::try_from(committed).unwrap_or(usize::MAX));
                let (written, _) = bytes.split_at_mut(count);
                read_exact_at(&*segment.file, offset, written)
                    .map_err(|error| io_error(format!("read {name}"), error))?;
            }
        }
        Ok(bytes)
    }

    fn file(&self, name: &str) -> Result<&File> {
        self.files
            .iter()
            .find(|file| file.shown.name == name)
            .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("the snapshot has no file {name}")))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({} files of store {})", self.files.len(), self.store)
    }
}
