//! The log: segment files that commits append to, and that compaction rewrites.

pub(crate) mod buffers;
pub(crate) mod compaction;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod writer;

use std::{collections::BTreeMap, io, sync::Arc};

use changefeed_core::{Error, ErrorKind};

use crate::{format::segment::Span, index::Location, vfs::VfsFile};

/// Whether a name is one of files that are being made. Left-overs of a crash are removed when the folder is opened; any
/// other file, whatever it ends with, belongs to somebody else.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|stem| match stem.strip_prefix("spare-") {
        Some(number) => number.parse::<u64>().is_ok(),
        None => matches!(stem, "next" | "compact" | "format"),
    })
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
    /// Notes that a record means nothing any more.
    pub(crate) fn bury(&mut self, location: Location) {
        if let Some(segment) = self.0.get_mut(&location.segment) {
            segment.dead += u64::from(location.bytes);
        }
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
