//! Files that are replaced whole or not at all: a reader, a crash or a power cut never leaves half of one. What is no file, such
//! as a device or a pipe, is written to.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// So many links are followed, as the system does.
const MOST_LINKS: u32 = 40;

/// Writes a file, in place of one that is there. A link stays, and what it points to is replaced.
pub(crate) fn write(file: &Path, text: &str) -> io::Result<()> {
    let before = fs::metadata(file).ok();
    if before.as_ref().is_some_and(|found| !found.is_file()) {
        return OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes());
    }
    let file = target(file)?;
    let partial = partial(&file);
    let mut new = File::create(&partial)?;
    if let Some(before) = before {
        // Nobody may read it now who could not before.
        new.set_permissions(before.permissions())?;
    }
    new.write_all(text.as_bytes())?;
    // Without this a name could survive a power cut that its bytes do not.
    new.sync_all()?;
    fs::rename(&partial, &file)?;
    File::open(folder(&file))?.sync_all()
}

/// Finds out whether [`write`] can succeed, without a trace.
pub(crate) fn check(file: &Path) -> io::Result<()> {
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Opening a pipe would wait for its reader.
        Ok(found) if !found.is_file() => return Ok(access(file, Access::WRITE_OK)?),
        _ => {}
    }
    let partial = partial(&target(file)?);
    fs::write(&partial, "")?;
    fs::remove_file(&partial)
}

/// What links lead to, whether or not it is there.
fn target(file: &Path) -> io::Result<PathBuf> {
    let mut target = file.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => target = folder(&target).join(fs::read_link(&target)?),
            _ => return Ok(target),
        }
    }
    Err(io::Error::other("too many links, one to the next"))
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The name until it is whole, beside the file.
fn partial(file: &Path) -> PathBuf {
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    partial.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_stays_and_its_file_is_replaced_with_the_same_permissions() {
        let folder = std::env::temp_dir().join(format!("changefeed-whole-file-{}", std::process::id()));
        fs::create_dir_all(folder.join("data")).unwrap();
        let (link, file) = (folder.join("link"), folder.join("data/file"));
        symlink("data/middle", &link).unwrap();
        symlink("file", folder.join("data/middle")).unwrap();
        for text in ["one", "two"] {
            check(&link).unwrap();
            write(&link, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        write(&link, "three").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.join("data")).unwrap().count(), 2, "nothing is left behind");
        symlink("loop", folder.join("loop")).unwrap();
        assert!(write(&folder.join("loop"), "").unwrap_err().to_string().contains("too many links"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_device_is_written_to() {
        let device = Path::new("/dev/null");
        check(device).unwrap();
        write(device, "text").unwrap();
        assert!(!fs::metadata(device).unwrap().is_file());
        assert!(!Path::new("/dev/null.partial").exists());
        assert_eq!(check(Path::new("/")).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
