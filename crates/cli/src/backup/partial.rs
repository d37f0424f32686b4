//! A folder that gets its name when it is complete. Until then it is called `NAME.partial`, and what a killed process left
//! there is replaced by the next.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::exit::Result;

/// A folder under a temporary name, removed unless it is finished.
#[derive(Debug)]
pub(crate) struct Partial {
    path: PathBuf,
    target: PathBuf,
    /// Locked: one process at a time makes the folder.
    folder: File,
    finished: bool,
}

impl Partial {
    /// Begins a folder that is to be called `target`, which must not be there or be empty.
    pub(crate) fn begin(target: &Path) -> Result<Self> {
        let shown = target.display();
        let Some(name) = target.file_name() else { return Err(format!("{shown} is no name for a folder").into()) };
        match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(format!("{shown} is not empty: choose another folder").into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("read {shown}: {error}").into()),
        }
        let mut partial = OsString::from(name);
        partial.push(".partial");
        let path = target.with_file_name(partial);
        let begun = begin(&path).map_err(|error| format!("make the folder {}: {error}", path.display()))?;
        match begun {
            Some(folder) => Ok(Self { path, target: target.to_owned(), folder, finished: false }),
            None => Err(format!("another process is making {shown}: wait until it has ended").into()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn make_folder(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| format!("make {}: {error}", path.display()).into())
    }

    /// Creates a file that only this user may read.
    pub(crate) fn create(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        opened.map_err(|error| format!("make {}: {error}", path.display()).into())
    }

    /// Writes a file, durably.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut file = self.create(name)?;
        let written = io::Write::write_all(&mut file, bytes).and_then(|()| file.sync_all());
        written.map_err(|error| format!("write {name}: {error}").into())
    }

    /// Makes the names in a folder inside durable.
    pub(crate) fn sync_folder(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        File::open(&path)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| format!("sync {}: {error}", path.display()).into())
    }

    /// Gives the folder its name, durably.
    pub(crate) fn finish(mut self) -> Result<()> {
        let target = &self.target;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let finish = || {
            self.folder.sync_all()?;
            fs::rename(&self.path, target)?;
            File::open(parent)?.sync_all()
        };
        finish().map_err(|error| format!("give {} its name: {error}", target.display()))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // What stays is replaced the next time.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// Makes the folder, or takes over and empties that of a process that has ended; none if that is running.
fn begin(path: &Path) -> io::Result<Option<File>> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let folder = File::open(path)?;
    if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(Some(folder))
}
