//! Where the store is: a fresh folder, removed at the end unless it is to be kept.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
};

use crate::exit::Result;

/// The folder of one run.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Folder {
    /// The folder `keep`, which must be new or empty, or a temporary one.
    pub(crate) fn choose(keep: Option<&Path>) -> Result<Self> {
        let Some(path) = keep else {
            let path = env::temp_dir().join(format!("changefeed-demo-{}", process::id()));
            fs::create_dir(&path).map_err(|error| {
                format!(
                    "create the folder {}: {error}; choose another with: changefeed demo --keep DIR",
                    path.display()
                )
            })?;
            return Ok(Self { path, kept: false });
        };
        let refused = |error: io::Error| format!("use the folder {}: {error}", path.display());
        fs::create_dir_all(path).map_err(refused)?;
        if fs::read_dir(path).map_err(refused)?.next().is_some() {
            let (shown, other) = (path.display(), path.join("demo"));
            let other = other.display();
            return Err(format!("the folder {shown} is not empty; try: changefeed demo --keep {other}").into());
        }
        Ok(Self { path: path.to_owned(), kept: true })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it stays.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            drop(writeln!(io::stderr(), "warning: {} is left behind: {error}", self.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_goes_and_a_kept_one_stays_and_must_be_empty() {
        let temporary = Folder::choose(None).unwrap();
        let path = temporary.path().to_owned();
        let kept = Folder::choose(Some(&path.join("kept"))).unwrap();
        fs::write(kept.path().join("file"), "text").unwrap();
        drop(kept);
        let error = Folder::choose(Some(&path.join("kept"))).unwrap_err().to_string();
        assert!(error.contains("is not empty; try: changefeed demo --keep"), "{error}");
        drop(temporary);
        assert!(!path.exists());
    }
}
