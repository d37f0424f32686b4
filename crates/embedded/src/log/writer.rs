//! Appending to the log. One owner: the committer.

use std::{io, sync::Arc};

use parking_lot::Mutex;

use crate::{
    format::{
        frame::{FrameHeader, FrameKind, HEADER_BYTES},
        segment::{self, Span},
    },
    vfs::{Vfs, VfsFile},
};

/// How much is written at a time when a file is filled with zeros ahead of use: small enough not to hold up the
/// syncs of commits for long.
const ZEROS_BYTES: usize = 1024 * 1024;

/// What must be left after a frame: its padding, a seal and the note that the store was closed.
const FRAME_MARGIN: usize = 3 * HEADER_BYTES;

/// The records of one group of commits, with room for the frame's header in front.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u32,
}

impl FrameBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], records: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(crate) fn payload(&self) -> usize {
        self.bytes.len() - HEADER_BYTES
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.records = 0;
    }

    /// Fills in the header, and zeros up to the next frame.
    fn finish(&mut self, kind: FrameKind, number: u32, synced: u32, segment: u32) -> &[u8] {
        let header = FrameHeader { kind, payload: self.payload() as u32, records: self.records, number, synced };
        self.bytes[..HEADER_BYTES].copy_from_slice(&header.encode(segment));
        self.bytes.resize(header.total_bytes() as usize, 0);
        &self.bytes
    }
}

/// The segment that grows.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn VfsFile>,
    pub(crate) offset: u64,
    pub(crate) next_frame: u32,
    /// Frames up to this number are on disk.
    pub(crate) synced: u32,
    /// Where the next segment begins at the latest.
    pub(crate) capacity: u64,
}

/// Why a new segment could not be begun.
#[derive(Debug)]
pub(crate) enum RollError {
    /// Nothing was changed: the old segment can still be appended to.
    NotBegun(io::Error),
    /// Nobody knows what is on disk.
    Halfway(io::Error),
}

impl From<RollError> for io::Error {
    fn from(error: RollError) -> Self {
        let (RollError::NotBegun(error) | RollError::Halfway(error)) = error;
        error
    }
}

/// A file that is to become a segment, under a name that nobody else uses.
#[derive(Debug)]
pub(crate) struct Spare {
    name: String,
    file: Arc<dyn VfsFile>,
}

/// Where the maintenance thread leaves a spare for the committer.
pub(crate) type SpareSlot = Arc<Mutex<Option<Spare>>>;

/// Appends frames to the active segment.
#[derive(Debug)]
pub(crate) struct LogWriter {
    vfs: Arc<dyn Vfs>,
    active: Active,
    spare: SpareSlot,
}

impl LogWriter {
    pub(crate) fn new(vfs: Arc<dyn Vfs>, active: Active, spare: SpareSlot) -> Self {
        Self { vfs, active, spare }
    }

    /// The active segment, and where the next frame begins in it.
    pub(crate) fn end(&self) -> (u32, u64) {
        (self.active.number, self.active.offset)
    }

    /// Whether the frame fits, with a seal after it.
    pub(crate) fn has_room(&self, frame: &FrameBuffer) -> bool {
        self.active.offset + (frame.bytes.len() + FRAME_MARGIN) as u64 <= self.active.capacity
    }

    /// Begins the next segment, with a file of `bytes` bytes if none is waiting and room for `frame` in any case, and
    /// then ends the active one. In this order a crash never leaves an ended segment without a next one, so that
    /// recovery notices when the last segment was lost.
    pub(crate) fn roll(&mut self, bytes: u64, frame: &FrameBuffer) -> Result<(Span, Arc<dyn VfsFile>), RollError> {
        let number = self.active.number + 1;
        let least = (segment::HEADER_BYTES + frame.bytes.len() + 2 * FRAME_MARGIN) as u64;
        let mut waiting = self.spare.lock().take();
        if let Some(small) = waiting.take_if(|spare| spare.file.size().is_ok_and(|size| size < least)) {
            // If it stays, it is removed when the folder is next opened.
            drop(self.vfs.remove(&small.name));
        }
        let make = || Spare::prepare_within(&*self.vfs, "next.tmp", bytes.max(least), least);
        let spare = waiting.map_or_else(make, Ok).map_err(RollError::NotBegun)?;
        let next = begin(&*self.vfs, number, spare, bytes.max(least))?;
        self.mark(FrameKind::Seal).map_err(RollError::Halfway)?;
        // A file that stays long wastes room until it is compacted, no more.
        drop(self.active.file.resize(self.active.offset));
        self.active = next;
        Ok((Span::one(number), Arc::clone(&self.active.file)))
    }

    /// Appends a frame in one write; returns the segment, and where in it the frame's records begin.
    pub(crate) fn append(&mut self, kind: FrameKind, frame: &mut FrameBuffer) -> io::Result<(u32, u64)> {
        let bytes = frame.finish(kind, self.active.next_frame, self.active.synced, self.active.number);
        self.active.file.write_at(self.active.offset, bytes)?;
        let base = self.active.offset;
        self.active.offset += bytes.len() as u64;
        self.active.next_frame += 1;
        Ok((self.active.number, base))
    }

    /// Appends a frame without records, durably and after everything before it: a proof that all that was on disk.
    pub(crate) fn mark(&mut self, kind: FrameKind) -> io::Result<()> {
        if self.active.synced + 1 < self.active.next_frame {
            self.sync()?;
        }
        self.append(kind, &mut FrameBuffer::new())?;
        self.sync()
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.active.file.sync()?;
        self.active.synced = self.active.next_frame - 1;
        Ok(())
    }
}

/// Turns a spare file into a segment that is ready to be appended to, durably.
pub(crate) fn begin(vfs: &dyn Vfs, number: u32, spare: Spare, bytes: u64) -> Result<Active, RollError> {
    let (span, file) = (Span::one(number), spare.file);
    let name = || {
        let length = file.size()?;
        file.write_at(0, &segment::encode_header(span, length))?;
        file.sync()?;
        vfs.rename(&spare.name, &span.file_name())?;
        Ok(if length == 0 { bytes } else { length })
    };
    let capacity = name().map_err(|error| {
        drop(vfs.remove(&spare.name));
        RollError::NotBegun(error)
    })?;
    vfs.sync_folder().map_err(RollError::Halfway)?;
    Ok(Active { number, file, offset: segment::HEADER_BYTES as u64, next_frame: 1, synced: 0, capacity })
}

impl Spare {
    /// Makes a file of `bytes` bytes, or of half of that, and so on down to `least`, on a disk that has little room left.
    pub(crate) fn prepare_within(vfs: &dyn Vfs, name: &str, bytes: u64, least: u64) -> io::Result<Self> {
        match Self::prepare(vfs, name, bytes) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && bytes > least => {
                Self::prepare_within(vfs, name, (bytes / 2).max(least), least)
            }
            other => other,
        }
    }

    /// How long the file is.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        self.file.size()
    }

    /// Removes the file. If it stays, it is removed when the folder is next opened.
    pub(crate) fn discard(self, vfs: &dyn Vfs) {
        drop(vfs.remove(&self.name));
    }

    /// Makes a file for the next segment: on a disk filled with zeros, so that the syncs of commits need not wait for
    /// the file system's own records, and a full disk is noticed before anything is written into it.
    pub(crate) fn prepare(vfs: &dyn Vfs, name: &str, bytes: u64) -> io::Result<Self> {
        let file = vfs.create(name)?;
        let fill = || {
            let zeros = vec![0; ZEROS_BYTES];
            let mut offset = 0;
            while vfs.supports_preallocation() && offset < bytes {
                let count = (bytes - offset).min(ZEROS_BYTES as u64);
                file.write_at(offset, &zeros[..count as usize])?;
                file.sync()?;
                offset += count;
            }
            Ok(())
        };
        // What was written so far must not fill up a full disk for good.
        fill().inspect_err(|_: &io::Error| drop(vfs.remove(name)))?;
        Ok(Self { name: name.to_owned(), file })
    }
}
