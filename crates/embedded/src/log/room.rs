//! Room on disk that is made before it is needed: for the next segment, and for what a full disk must still allow.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::says_full;
use crate::vfs::{Vfs, VfsFile};

/// How much is written at a time when a file is filled with zeros ahead of use: small enough not to hold up the
/// syncs of commits for long.
const ZEROS_BYTES: usize = 1024 * 1024;

/// What is kept for a full disk: a part of the log, but at least and at most so many bytes. A segment can be compacted on
/// a full disk once what is left of it fits.
const PART_FOR_DELETES: u64 = 16;
const PART_FOR_COMPACTION: u64 = 8;
const LEAST_KEPT_BYTES: u64 = 64 * 1024;
const MOST_FOR_DELETES: u64 = 1024 * 1024;
const MOST_FOR_COMPACTION: u64 = 16 * 1024 * 1024;

/// Files that stand for room. The maintenance thread makes them; the committer and compaction take them.
///
/// Without those for a full disk, a disk that commits have filled up to the last byte would stay full: there would be no room
/// to note a delete, and none to write what is left of a segment after it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Becomes the next segment.
    next: Mutex<Option<Spare>>,
    /// Becomes a segment that only deletes are written to, on a full disk.
    deletes: Mutex<Option<Spare>>,
    /// Is removed on a full disk, for compaction to write in its place.
    compaction: Mutex<Option<Spare>>,
    /// Whether the last two are not both there, because the disk is full. Then what compaction frees must not become a
    /// segment before they are.
    scarce: AtomicBool,
    /// So that no two files have one name: the one before may still be in use.
    made: AtomicU64,
}

impl Room {
    /// A file for the next segment: the one that waits, or a new one of `bytes` bytes, or on a disk with little room of less,
    /// down to `least`.
    pub(crate) fn take_next(&self, vfs: &dyn Vfs, bytes: u64, least: u64) -> io::Result<Spare> {
        let mut waiting = self.next.lock().take();
        if let Some(small) = waiting.take_if(|spare| spare.bytes() < least) {
            small.discard(vfs);
        }
        match waiting {
            Some(spare) => Ok(spare),
            None if self.scarce.load(Ordering::Relaxed) => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "No space left on device but what is kept for deletes and compaction",
            )),
            None => Spare::prepare_within(vfs, "next.tmp", bytes, least),
        }
    }

    /// The file that is kept for deletes, if it is there and has room for `least` bytes.
    pub(crate) fn take_for_deletes(&self, least: u64) -> Option<Spare> {
        let taken = self.deletes.lock().take_if(|spare| spare.bytes() >= least)?;
        self.scarce.store(true, Ordering::Relaxed);
        tracing::warn!("the disk is full: deletes take the room that is kept for them");
        Some(taken)
    }

    /// How much room compaction can have on a full disk.
    pub(crate) fn for_compaction(&self) -> u64 {
        let bytes = |slot: &Mutex<Option<Spare>>| slot.lock().as_ref().map_or(0, Spare::bytes);
        bytes(&self.next) + bytes(&self.compaction)
    }

    /// Removes the files whose room compaction can have: it writes in their place.
    pub(crate) fn give_up_for_compaction(&self, vfs: &dyn Vfs) {
        tracing::warn!("the disk is full: compaction takes the room that is kept for it");
        self.scarce.store(true, Ordering::Relaxed);
        for slot in [&self.next, &self.compaction] {
            if let Some(spare) = slot.lock().take() {
                spare.discard(vfs);
            }
        }
    }

    /// Makes what is missing for a full disk, beside a log of `used` bytes.
    pub(crate) fn prepare_reserves(&self, vfs: &dyn Vfs, used: u64) -> io::Result<()> {
        let for_compaction = (used / PART_FOR_COMPACTION).clamp(LEAST_KEPT_BYTES, MOST_FOR_COMPACTION);
        let for_deletes = (used / PART_FOR_DELETES).clamp(LEAST_KEPT_BYTES, MOST_FOR_DELETES);
        let prepared = self
            .prepare(vfs, &self.compaction, for_compaction)
            .and_then(|()| self.prepare(vfs, &self.deletes, for_deletes));
        self.scarce.store(prepared.as_ref().is_err_and(says_full), Ordering::Relaxed);
        prepared
    }

    /// Makes the file for the next segment, if none waits.
    pub(crate) fn prepare_next(&self, vfs: &dyn Vfs, bytes: u64) -> io::Result<()> {
        if self.next.lock().is_none() {
            let made = self.make(vfs, bytes)?;
            *self.next.lock() = Some(made);
        }
        Ok(())
    }

    fn prepare(&self, vfs: &dyn Vfs, slot: &Mutex<Option<Spare>>, bytes: u64) -> io::Result<()> {
        // Made larger than needed, so that it is seldom made again while the log grows, and smaller once the log has shrunk.
        if slot.lock().as_ref().is_some_and(|spare| (bytes..=4 * bytes).contains(&spare.bytes())) {
            return Ok(());
        }
        match self.make(vfs, bytes.next_power_of_two()) {
            Ok(made) => {
                if let Some(short) = slot.lock().replace(made) {
                    short.discard(vfs);
                }
                Ok(())
            }
            // A short one is better than none.
            Err(_) if slot.lock().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn make(&self, vfs: &dyn Vfs, bytes: u64) -> io::Result<Spare> {
        let name = format!("spare-{}.tmp", self.made.fetch_add(1, Ordering::Relaxed));
        Spare::prepare(vfs, &name, bytes)
    }
}

/// A file that is to become a segment, under a name that nobody else uses.
#[derive(Debug)]
pub(crate) struct Spare {
    name: String,
    file: Arc<dyn VfsFile>,
}

impl Spare {
    /// Makes a file of `bytes` bytes, or of half of that, and so on down to `least`, on a disk that has little room left.
    fn prepare_within(vfs: &dyn Vfs, name: &str, bytes: u64, least: u64) -> io::Result<Self> {
        match Self::prepare(vfs, name, bytes) {
            Err(error) if says_full(&error) && bytes > least => {
                Self::prepare_within(vfs, name, (bytes / 2).max(least), least)
            }
            other => other,
        }
    }

    fn bytes(&self) -> u64 {
        self.file.size().unwrap_or(0)
    }

    /// Its name and the file.
    pub(crate) fn into_parts(self) -> (String, Arc<dyn VfsFile>) {
        (self.name, self.file)
    }

    /// Removes the file. If it stays, it is removed when the folder is next opened.
    fn discard(self, vfs: &dyn Vfs) {
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
