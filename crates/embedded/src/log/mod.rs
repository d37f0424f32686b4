//! The log: segment files that commits append to, and that compaction rewrites.

pub(crate) mod buffers;
pub(crate) mod compaction;
pub(crate) mod reader;
pub(crate) mod recent;
pub(crate) mod recovery;
pub(crate) mod room;
pub(crate) mod store_id;
pub(crate) mod writer;

use std::{collections::BTreeMap, io, sync::Arc};

use changefeed_core::{Error, ErrorKind};

use crate::{format::segment::Span, index::Location, vfs::VfsFile};

/// Whether a name is one of files that are being made. Left-overs of a crash are removed when the folder is opened; any
/// other file, whatever it ends with, belongs to somebody else.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|stem| match stem.strip_prefix("spare-") {
        Some(number) => number.parse::<u64>().is_ok(),
        None => matches!(stem, "next" | "compact" | "format" | "store"),
    })
}

/// Files that operating systems leave in any folder.
const SYSTEM_FILES: [&str; 4] = ["lost+found", "Thumbs.db", "ehthumbs.db", "desktop.ini"];

/// Whether a file may be in the folder of a new store: it is hidden, or left there by the operating system.
pub(crate) fn is_system_file(name: &str) -> bool {
    name.starts_with('.') || SYSTEM_FILES.contains(&name)
}

/// Whether a name is like those of the store. One that is and that we do not know may hold data: better ask.
pub(crate) fn looks_like_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let named = ["format", "lock", "spare-"].iter().any(|own| name.starts_with(own));
    let named = named || name == "store" || name.starts_with("store.");
    !is_system_file(&name) && (named || name.ends_with(".log") || name.ends_with(".tmp"))
}

/// One segment, as the index knows it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) span: Span,
    pub(crate) file: Arc<dyn VfsFile>,
    /// Bytes of all records.
    pub(crate) used: u64,
    /// Bytes of records that mean nothing any more.
    pub(crate) dead: u64,
    /// Whether nothing will be appended.
    pub(crate) sealed: bool,
}

impl Segment {
    pub(crate) fn new(span: Span, file: Arc<dyn VfsFile>) -> Self {
        Self { span, file, used: 0, dead: 0, sealed: false }
    }
}

/// All segments, by the first number of their spans.
#[derive(Debug, Default)]
pub(crate) struct Segments(pub(crate) BTreeMap<u32, Segment>);

impl Segments {
    /// Bytes of all records.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.values().map(|segment| segment.used).sum()
    }

    /// Notes that a record means nothing any more.
    pub(crate) fn mark_dead(&mut self, location: Location) {
        if let Some(segment) = self.0.get_mut(&location.segment) {
            segment.dead += u64::from(location.bytes);
        }
    }

    /// The error that a record is damaged and needed.
    pub(crate) fn damaged_record(&self, location: Location) -> Error {
        let span = self.0.get(&location.segment).map_or(Span::one(location.segment), |segment| segment.span);
        damaged_record(span, location)
    }

    pub(crate) fn file(&self, segment: u32) -> Option<Arc<dyn VfsFile>> {
        self.0.get(&segment).map(|segment| Arc::clone(&segment.file))
    }
}

/// An error of the operating system. `what` says what was tried.
pub(crate) fn io_error(what: impl Into<String>, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, what).with_source(error)
}

/// Damage found in a segment.
pub(crate) fn corrupt(span: Span, offset: u64, what: &str) -> Error {
    let name = span.file_name();
    Error::new(
        ErrorKind::Corrupt,
        format!("{name} is damaged at byte {offset}: {what}; nothing was changed, restore the folder from a backup"),
    )
}

/// A record in a finished part of the log does not have the checksum that it was written with.
pub(crate) fn damaged_record(span: Span, location: Location) -> Error {
    corrupt(span, location.offset.into(), "a record does not have its checksum")
}

/// Whether the disk has no room.
pub(crate) fn is_full(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(says_full)
}

fn says_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
