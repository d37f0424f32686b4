//! Appending to the log. One owner: the committer.

use std::{io, sync::Arc};

use super::room::{Room, Spare};
use crate::{
    format::{
        frame::{FrameHeader, FrameKind, HEADER_BYTES},
        segment::{self, Span},
    },
    vfs::{Vfs, VfsFile},
};

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
    /// Whether it is the room that is kept for deletes on a full disk.
    pub(crate) only_deletes: bool,
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

/// Appends frames to the active segment.
#[derive(Debug)]
pub(crate) struct LogWriter {
    vfs: Arc<dyn Vfs>,
    active: Active,
    room: Arc<Room>,
}

impl LogWriter {
    pub(crate) fn new(vfs: Arc<dyn Vfs>, active: Active, room: Arc<Room>) -> Self {
        Self { vfs, active, room }
    }

    /// The active segment, and where the next frame begins in it.
    pub(crate) fn end(&self) -> (u32, u64) {
        (self.active.number, self.active.offset)
    }

    /// Whether the frame fits, with a seal after it, and may be there: `deletes` says whether it has only deletes.
    pub(crate) fn has_room(&self, frame: &FrameBuffer, deletes: impl FnOnce() -> bool) -> bool {
        let fits = self.active.offset + (frame.bytes.len() + FRAME_MARGIN) as u64 <= self.active.capacity;
        fits && (!self.active.only_deletes || deletes())
    }

    /// Begins the next segment, with a file of `bytes` bytes if none is waiting and room for `frame` in any case, and
    /// then ends the active one. In this order a crash never leaves an ended segment without a next one, so that
    /// recovery notices when the last segment was lost. On a full disk a frame that has only deletes gets the room that is
    /// kept for them.
    pub(crate) fn roll(
        &mut self,
        bytes: u64,
        frame: &FrameBuffer,
        deletes: impl FnOnce() -> bool,
    ) -> Result<(Span, Arc<dyn VfsFile>), RollError> {
        let number = self.active.number + 1;
        let least = (segment::HEADER_BYTES + frame.bytes.len() + 2 * FRAME_MARGIN) as u64;
        let found = self.room.take_next(&*self.vfs, bytes.max(least), least);
        let (spare, only_deletes) = match found {
            Ok(spare) => (spare, false),
            Err(error) => {
                let kept = if deletes() { self.room.take_for_deletes(least) } else { None };
                (kept.ok_or(RollError::NotBegun(error))?, true)
            }
        };
        let next = begin(&*self.vfs, number, spare, bytes.max(least))?;
        self.mark(FrameKind::Seal).map_err(RollError::Halfway)?;
        // A file that stays long wastes room until it is compacted, no more.
        drop(self.active.file.resize(self.active.offset));
        self.active = Active { only_deletes, ..next };
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
    let (span, (name, file)) = (Span::one(number), spare.into_parts());
    let finish = || {
        let length = file.size()?;
        file.write_at(0, &segment::encode_header(span, length))?;
        file.sync()?;
        vfs.rename(&name, &span.file_name())?;
        Ok(if length == 0 { bytes } else { length })
    };
    let capacity = finish().map_err(|error| {
        drop(vfs.remove(&name));
        RollError::NotBegun(error)
    })?;
    vfs.sync_folder().map_err(RollError::Halfway)?;
    Ok(Active {
        number,
        file,
        offset: segment::HEADER_BYTES as u64,
        next_frame: 1,
        synced: 0,
        capacity,
        only_deletes: false,
    })
}
