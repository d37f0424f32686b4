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
    fn finish(&mut self, kind: FrameKind, number: u64, segment: u32) -> &[u8] {
        let header = FrameHeader { kind, payload: self.payload() as u32, records: self.records, number };
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
    pub(crate) next_frame: u64,
    /// Where the next segment begins at the latest.
    pub(crate) capacity: u64,
}

/// Why a new segment could not be begun.
#[derive(Debug)]
pub(crate) enum RollError {
    /// Nothing was changed: the old segment can still be appended to.
    NotBegun(io::Error),
    /// The old segment may be ended and the new one not there.
    Halfway(io::Error),
}

/// A file filled with zeros, waiting to become the next segment.
pub(crate) type Spare = Arc<Mutex<Option<Arc<dyn VfsFile>>>>;

/// Name of the file behind [`Spare`].
pub(crate) const SPARE_NAME: &str = "spare.tmp";

/// Appends frames to the active segment.
#[derive(Debug)]
pub(crate) struct LogWriter {
    vfs: Arc<dyn Vfs>,
    active: Active,
    spare: Spare,
}

impl LogWriter {
    pub(crate) fn new(vfs: Arc<dyn Vfs>, active: Active, spare: Spare) -> Self {
        Self { vfs, active, spare }
    }

    /// Whether the frame fits, with a seal after it.
    pub(crate) fn has_room(&self, frame: &FrameBuffer) -> bool {
        let wanted = (frame.bytes.len() + 2 * HEADER_BYTES) as u64;
        self.active.offset + wanted <= self.active.capacity || self.active.next_frame <= 2
    }

    /// Ends the active segment, durably, and begins the next, with a file of `bytes` bytes if none is waiting.
    pub(crate) fn roll(&mut self, bytes: u64) -> Result<(Span, Arc<dyn VfsFile>), RollError> {
        let number = self.active.number + 1;
        let waiting = self.spare.lock().take();
        let file = waiting.map_or_else(|| prepare_spare(&*self.vfs, bytes), Ok).map_err(RollError::NotBegun)?;
        let end = || {
            let mut seal = FrameBuffer::new();
            self.append(FrameKind::Seal, &mut seal)?;
            self.active.file.sync()?;
            self.active.file.resize(self.active.offset)?;
            begin(&*self.vfs, number, file, bytes)
        };
        self.active = end().map_err(RollError::Halfway)?;
        Ok((Span::one(number), Arc::clone(&self.active.file)))
    }

    /// Appends a frame in one write; returns the segment, and where in it the frame's records begin.
    pub(crate) fn append(&mut self, kind: FrameKind, frame: &mut FrameBuffer) -> io::Result<(u32, u64)> {
        let bytes = frame.finish(kind, self.active.next_frame, self.active.number);
        self.active.file.write_at(self.active.offset, bytes)?;
        let base = self.active.offset;
        self.active.offset += bytes.len() as u64;
        self.active.next_frame += 1;
        Ok((self.active.number, base))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.active.file.sync()
    }
}

/// Turns a spare file into a segment that is ready to be appended to, durably.
pub(crate) fn begin(vfs: &dyn Vfs, number: u32, file: Arc<dyn VfsFile>, bytes: u64) -> io::Result<Active> {
    let span = Span::one(number);
    file.write_at(0, &segment::encode_header(span))?;
    file.sync()?;
    vfs.rename(SPARE_NAME, &span.file_name())?;
    vfs.sync_folder()?;
    let capacity = file.size()?.max(bytes);
    Ok(Active { number, file, offset: segment::HEADER_BYTES as u64, next_frame: 1, capacity })
}

/// Makes a file for the next segment: on a disk filled with zeros, so that the syncs of commits need not wait for the
/// file system's own records, and a full disk is noticed before anything is written into it.
pub(crate) fn prepare_spare(vfs: &dyn Vfs, bytes: u64) -> io::Result<Arc<dyn VfsFile>> {
    let file = vfs.create(SPARE_NAME)?;
    let zeros = vec![0; ZEROS_BYTES];
    let mut offset = 0;
    while vfs.likes_preallocation() && offset < bytes {
        let count = (bytes - offset).min(ZEROS_BYTES as u64);
        file.write_at(offset, &zeros[..count as usize])?;
        file.sync()?;
        offset += count;
    }
    Ok(file)
}
