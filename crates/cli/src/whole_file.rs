//! Files that are replaced whole or not at all: a reader or a crash never sees half of one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Writes a file, in place of one that is there.
pub(crate) fn write(file: &Path, text: &str) -> io::Result<()> {
    let partial = partial(file);
    fs::write(&partial, text)?;
    fs::rename(&partial, file)
}

/// Finds out whether [`write`] can succeed, without a trace.
pub(crate) fn check(file: &Path) -> io::Result<()> {
    if file.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let partial = partial(file);
    fs::write(&partial, "")?;
    fs::remove_file(&partial)
}

/// The name until it is whole, beside the file.
fn partial(file: &Path) -> PathBuf {
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    partial.into()
}
