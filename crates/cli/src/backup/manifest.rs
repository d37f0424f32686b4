//! The manifest of a backup: which files it has, and their checksums.

use std::{fmt::Write as _, fs, path::Path};

use changefeed_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{change_line::time, exit::Result};

/// The file in the folder of a backup.
pub(crate) const NAME: &str = "manifest.json";

const FORMAT: &str = "changefeed-backup";
const VERSION: u32 = 1;

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    /// The identity of the store.
    pub(crate) store: String,
    /// When it was made, for people.
    created: String,
    pub(crate) files: Vec<FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// In hexadecimal.
    pub(crate) sha256: String,
}

impl Manifest {
    pub(crate) fn new(store: &str, created: Timestamp, files: Vec<FileEntry>) -> Self {
        let (format, store) = (FORMAT.to_owned(), store.to_owned());
        Self { format, version: VERSION, store, created: time(created), files }
    }

    /// Reads the manifest of the backup in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let file = folder.join(NAME);
        let shown = file.display();
        let text = fs::read(&file)
            .map_err(|error| format!("read {shown}: {error}; pass the folder that `changefeed backup` made"))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| format!("{shown} is damaged: {error}"))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            let (format, version) = (&manifest.format, manifest.version);
            return Err(format!(
                "{shown} is of {format:?}, version {version}, but this program knows {FORMAT:?}, version {VERSION} only"
            )
            .into());
        }
        match manifest.files.iter().find(|file| !is_plain(&file.name)) {
            Some(file) => Err(format!("{shown} is damaged: {:?} is no name of a file", file.name).into()),
            None => Ok(manifest),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Whether a name stays in its folder: names come from a file that anybody may have written.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.') && name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_'))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
