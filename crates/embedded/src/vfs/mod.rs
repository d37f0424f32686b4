//! The file layer: everything the engine asks of a disk. `disk` is a real folder, [`memory`] a simulated one that
//! can lose its power.

pub(crate) mod disk;
pub mod memory;

use std::{fmt, io, sync::Arc};

/// One flat folder of files.
///
/// Names become durable with [`Vfs::sync_folder`], contents with [`VfsFile::sync`]; what was not synced may be lost,
/// wholly or in part, when the power fails.
pub trait Vfs: fmt::Debug + Send + Sync + 'static {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn VfsFile>>;

    /// Creates a file, empty, in place of any that had the name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn VfsFile>>;

    /// Renames a file, in place of any that had the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Open handles still read it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names durable.
    fn sync_folder(&self) -> io::Result<()>;

    /// Whether writing zeros ahead makes syncs cheaper, as it does on a disk.
    fn supports_preallocation(&self) -> bool;
}

/// One file.
pub trait VfsFile: fmt::Debug + Send + Sync + 'static {
    /// Reads into `buffer` from `offset` on; returns how many bytes there were.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Cuts the file, or fills it up with zeros.
    fn resize(&self, size: u64) -> io::Result<()>;
}

/// Reads exactly `buffer.len()` bytes.
pub(crate) fn read_exact_at(file: &dyn VfsFile, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(offset, buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                offset += count as u64;
                buffer = buffer.get_mut(count..).ok_or(io::ErrorKind::InvalidData)?;
            }
        }
    }
    Ok(())
}
