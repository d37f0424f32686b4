//! Baselines: what the same machine does with the same bytes when no store is in between.

use std::{
    fs::File,
    hint::black_box,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{Result, load::Sink};

/// How much a sequential reader asks for at a time.
const READ_BYTES: usize = 1024 * 1024;

/// Size of a preallocated log, which is written in a circle: many times the largest group.
const PREALLOCATED_BYTES: u64 = 64 * 1024 * 1024;

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// When its group was written and synced.
    Synced,
    /// When its group was written.
    Written,
}

/// Where appends go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// To the end of a file that grows with each of them.
    Growing,
    /// Over the zeros of a file whose blocks exist already, from its beginning again when it is full.
    Preallocated,
}

/// One file and one thread that appends to it what many writers hand over: group commit and nothing else.
#[derive(Debug)]
pub(crate) struct RawLog {
    writer: RawWriter,
    committer: JoinHandle<io::Result<()>>,
    file: File,
}

impl RawLog {
    /// A new log.
    pub(crate) fn create(path: &Path, acknowledge: Acknowledge, space: Space) -> Result<Self> {
        let mut file = File::create_new(path)?;
        if space == Space::Preallocated {
            let zeros = vec![0; READ_BYTES];
            (0..PREALLOCATED_BYTES / READ_BYTES as u64).try_for_each(|_| file.write_all(&zeros))?;
            file.sync_all()?;
            file.rewind()?;
        }
        // Each writer waits for its answer, so the channel never holds more than one record per writer.
        let (sender, receiver) = mpsc::channel();
        let ours = file.try_clone()?;
        let committer = thread::Builder::new()
            .name("raw-committer".to_owned())
            .spawn(move || commit(ours, &receiver, acknowledge, space))?;
        Ok(Self { writer: RawWriter(sender), committer, file })
    }

    /// A handle for writers.
    pub(crate) fn writer(&self) -> RawWriter {
        self.writer.clone()
    }

    /// Waits until all bytes are on disk, so that what comes next is not slowed down by them.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }

    /// Ends the committer; waits until all other writers are gone.
    pub(crate) fn close(self) -> Result<()> {
        drop(self.writer);
        Ok(self.committer.join().map_err(|_| "the raw committer panicked")??)
    }
}

#[derive(Debug)]
struct Record {
    body: Bytes,
    done: oneshot::Sender<()>,
}

/// A writer of a [`RawLog`].
#[derive(Clone, Debug)]
pub(crate) struct RawWriter(mpsc::Sender<Record>);

impl Sink for RawWriter {
    async fn write(&self, body: Bytes) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.0.send(Record { body, done })?;
        Ok(answer.await?)
    }
}

/// Takes what is queued, writes it at once, syncs once, answers. While it syncs the next group fills.
fn commit(mut file: File, records: &mpsc::Receiver<Record>, acknowledge: Acknowledge, space: Space) -> io::Result<()> {
    let (mut group, mut buffer) = (Vec::new(), Vec::new());
    let mut position = 0;
    while let Ok(first) = records.recv() {
        for record in std::iter::once(first).chain(records.try_iter()) {
            buffer.extend_from_slice(&record.body);
            group.push(record.done);
        }
        let bytes = buffer.len() as u64;
        if space == Space::Preallocated && position + bytes > PREALLOCATED_BYTES {
            position = file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&buffer)?;
        position += bytes;
        if acknowledge == Acknowledge::Synced {
            file.sync_data()?;
        }
        buffer.clear();
        for done in group.drain(..) {
            // A writer that has given up no longer wants its answer.
            let _ = done.send(());
        }
    }
    Ok(())
}

/// Writes a file of about `bytes` bytes to read back, and reads it once so that it is warm.
pub(crate) fn create_file(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create_new(path)?;
    io::copy(&mut io::repeat(b'x').take(bytes), &mut file)?;
    file.sync_all()?;
    read_file(path)?;
    Ok(())
}

/// Reads a file from its beginning to its end, 1 MiB at a time, and returns how many bytes it had.
pub(crate) fn read_file(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut total = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(total),
            bytes => total += bytes as u64,
        }
        black_box(&buffer);
    }
}

/// Reads all files of a folder and of the folders in it, and returns how many bytes they had.
pub(crate) fn read_folder(path: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in path.read_dir()? {
        let entry = entry?;
        total += if entry.file_type()?.is_dir() { read_folder(&entry.path())? } else { read_file(&entry.path())? };
    }
    Ok(total)
}

/// Reads `buffer.len()` bytes from `position` on, with one call to the operating system.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, buffer, position);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, position).map(drop);
}
