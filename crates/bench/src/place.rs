//! Where the data goes: a fresh folder, removed at the end.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

use crate::Result;

/// File systems that live in memory, where a sync costs nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// A fresh folder for one run.
#[derive(Debug)]
pub(crate) struct Place {
    root: Folder,
}

impl Place {
    /// A folder of its own inside `parent`, or inside the system's folder for temporary files. Says where on stderr.
    pub(crate) fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(env::temp_dir, Path::to_owned);
        let path = parent.join(format!("changefeed-bench-{}", process::id()));
        fs::create_dir_all(&parent)
            .and_then(|()| fs::create_dir(&path))
            .map_err(|error| format!("create folder {}: {error}", path.display()))?;
        let root = Folder(path.canonicalize()?);
        let kind = fs::read_to_string("/proc/mounts").ok().and_then(|mounts| kind_of(&mounts, &root.0));
        let kind = kind.as_deref().unwrap_or("unknown file system");
        eprintln!("data in {} ({kind})", root.0.display());
        if IN_MEMORY.contains(&kind) {
            eprintln!("warning: {kind} is in memory, where a sync is free: pass --dir with a folder on a real disk");
        }
        Ok(Self { root })
    }

    /// A folder for one experiment, removed when the value is dropped.
    pub(crate) fn folder(&self, name: &str) -> Result<Folder> {
        let path = self.root.0.join(name);
        fs::create_dir(&path).map_err(|error| format!("create folder {}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

/// A folder that is removed with all it holds when the value is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The path of something in it.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("warning: {} is left behind: {error}", self.0.display());
        }
    }
}

/// Copies a folder with all it holds.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The kind of the file system that holds `path`, by the text of `/proc/mounts`: that of the longest mount point above
/// it, and of the last one mounted there.
fn kind_of(mounts: &str, path: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        // Spaces in mount points are written in octal.
        Some((PathBuf::from(words.next()?.replace("\\040", " ")), words.next()?))
    });
    mounts
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.components().count())
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\ntmpfs /data tmpfs rw 0 0\n\
                          /dev/vdb /data xfs rw 0 0\n/dev/vdc /my\\040disk btrfs rw 0 0\nbroken\n";

    #[test]
    fn the_longest_and_last_mount_point_decides() {
        let cases = [
            ("/home/x", "ext4"),
            ("/tmp/a/b", "tmpfs"),
            ("/tmpfile", "ext4"),
            ("/data", "xfs"),
            ("/my disk/a", "btrfs"),
        ];
        for (path, kind) in cases {
            assert_eq!(kind_of(MOUNTS, Path::new(path)).as_deref(), Some(kind), "{path}");
        }
        assert_eq!(kind_of("", Path::new("/home")), None);
    }

    #[test]
    fn a_copied_folder_holds_the_same_files_and_the_place_is_removed() {
        let place = Place::new(None).unwrap();
        let root = place.root.0.clone();
        let folder = place.folder("copy").unwrap();
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/c"), "text").unwrap();
        copy(&folder.join("a"), &folder.join("z")).unwrap();
        assert_eq!(fs::read_to_string(folder.join("z/b/c")).unwrap(), "text");
        drop(folder);
        drop(place);
        assert!(!root.exists());
    }
}
