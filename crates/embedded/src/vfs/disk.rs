//! A real folder.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{fs::FlockOperation, io::Errno};

use super::{Vfs, VfsFile};

/// The file whose lock keeps a second process out. It is never removed, and holds nothing.
const LOCK_FILE: &str = "LOCK";

/// A folder on local disk, locked against other processes as long as the value lives.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    /// Kept open: a process that has no descriptors left must still be able to sync names.
    open_folder: File,
    _lock: File,
}

/// Only the owner reads and writes files of a store.
const MODE: u32 = 0o600;

/// Why a folder could not be locked.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process, or another engine of this one, has it.
    Held,
    /// The operating system refused.
    Io(io::Error),
}

impl Disk {
    /// Creates the folder if need be, and locks it.
    pub(crate) fn lock(folder: &Path) -> Result<Self, LockError> {
        let open = || {
            fs::create_dir_all(folder)?;
            let mut options = OpenOptions::new();
            let lock = options.create(true).truncate(false).write(true).mode(MODE).open(folder.join(LOCK_FILE))?;
            // Versions before this one left it to the user's mask.
            lock.set_permissions(Permissions::from_mode(MODE))?;
            Ok::<_, io::Error>((lock, File::open(folder)?))
        };
        let (lock, open_folder) = open().map_err(LockError::Io)?;
        // The lock of the standard library is the same, but needs Rust 1.89.
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder: folder.to_owned(), open_folder, _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held),
            Err(error) => Err(LockError::Io(error.into())),
        }
    }
}

impl Vfs for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != LOCK_FILE {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn VfsFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.folder.join(name))?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn VfsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(MODE);
        Ok(Arc::new(DiskFile(options.open(self.folder.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.open_folder.sync_all()
    }

    fn supports_preallocation(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl VfsFile for DiskFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.read_at(offset, buffer),
            other => other,
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }
}
