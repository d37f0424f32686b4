//! The documents of a processor of another implementation, read: leases, and what says when they were created.

use std::collections::BTreeMap;

use changefeed_core::{FeedRange, Mode, Timestamp};
use serde_json::Value;

use super::java::JavaLease;
use crate::lease::document::{DocumentError, InfoDocument, JavaDialect, LeaseDocument, StartPosition};

/// Who wrote a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LeaseDialect {
    /// The .NET SDK, version 3, and this library. Such leases need no conversion if the processor has the same name.
    DotNet,
    /// The change feed processor library for .NET, version 2.
    DotNetV2,
    /// Java's `handleChanges`: one lease for each physical range, named after database and container.
    JavaRanges,
    /// Java's `handleLatestVersionChanges` and `handleAllVersionsAndDeletesChanges`: one lease for each feed range.
    JavaFeedRanges,
}

/// A document of the source.
pub(super) enum SourceDocument {
    Lease(ForeignLease),
    /// `.info`.
    Marker(Marker),
    /// `.lock`, with its id: leases are being created.
    Lock(String),
    /// One that says nothing about leases.
    Other,
}

/// A lease of another implementation.
pub(super) struct ForeignLease {
    pub(super) id: String,
    pub(super) dialect: LeaseDialect,
    pub(super) owner: Option<String>,
    pub(super) mode: Mode,
    pub(super) keys: Keys,
    /// Where it goes on or begins; none if only its hosts know.
    pub(super) start: Option<StartPosition>,
    /// When it was created, if nobody has written it since.
    pub(super) created: Option<Timestamp>,
    /// What the new lease takes over.
    pub(super) properties: BTreeMap<String, String>,
    /// Whether it is a tombstone of ours.
    pub(super) gone: bool,
}

/// What a foreign lease is for.
pub(super) enum Keys {
    /// The physical range with this id.
    Physical(String),
    Range(FeedRange),
}

/// The document that says that leases were created.
pub(super) struct Marker {
    pub(super) id: String,
    pub(super) document: InfoDocument,
    /// When hosts of the other implementation created it.
    pub(super) created: Option<Timestamp>,
}

impl SourceDocument {
    /// Reads a document; an error has its id and says what is wrong.
    pub(super) fn parse(body: &[u8]) -> Result<Self, (String, String)> {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let id = value["id"].as_str().unwrap_or_default();
        let is_lease = value.get("LeaseToken").is_some() || value.get("PartitionId").is_some();
        match id.rsplit_once('.').map(|(_, kind)| kind) {
            Some("info") if !is_lease => {
                Marker::parse(body, &value).map(Self::Marker).map_err(|why| (id.to_owned(), why))
            }
            Some("lock") if !is_lease => Ok(Self::Lock(id.to_owned())),
            Some("time" | "reset") if !is_lease => Ok(Self::Other),
            _ => ForeignLease::parse(body, &value).map(Self::Lease).map_err(|why| (id.to_owned(), why)),
        }
    }

    /// The lease that it is, if it is one.
    pub(super) fn into_lease(self) -> Option<ForeignLease> {
        match self {
            Self::Lease(lease) => Some(lease),
            Self::Marker(_) | Self::Lock(_) | Self::Other => None,
        }
    }
}

impl Marker {
    fn parse(body: &[u8], value: &Value) -> Result<Self, String> {
        let document = InfoDocument::parse(body).map_err(|error| error.to_string())?;
        let written = value["_ts"].as_u64().filter(|seconds| *seconds > 0).map(Timestamp::from_secs);
        let created = written.and_then(|written| document.dot_net_creation(written));
        Ok(Self { id: value["id"].as_str().unwrap_or_default().to_owned(), document, created })
    }
}

impl ForeignLease {
    fn parse(body: &[u8], value: &Value) -> Result<Self, String> {
        match LeaseDocument::parse(body) {
            Ok(lease) => Ok(Self::dot_net(lease, value)),
            Err(DocumentError::JavaDialect(dialect)) => {
                JavaLease::parse(body, dialect).map(|lease| Self::java(lease, dialect))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn dot_net(lease: LeaseDocument, value: &Value) -> Self {
        let dialect = match value.get("LeaseToken").is_some() || lease.is_gone() {
            true => LeaseDialect::DotNet,
            false => LeaseDialect::DotNetV2,
        };
        let keys = match lease.range() {
            Some(range) => Keys::Range(range),
            None => Keys::Physical(lease.token.as_str().to_owned()),
        };
        Self {
            dialect,
            mode: lease.mode.unwrap_or_default(),
            keys,
            start: lease.continuation.clone().map(StartPosition::Continuation).or_else(|| lease.start()),
            created: lease.created_at(),
            properties: lease.inherited_properties(),
            gone: lease.is_gone(),
            id: lease.id,
            owner: lease.owner,
        }
    }

    fn java(lease: JavaLease, dialect: JavaDialect) -> Self {
        let dialect = match dialect {
            JavaDialect::PhysicalRanges => LeaseDialect::JavaRanges,
            JavaDialect::FeedRanges => LeaseDialect::JavaFeedRanges,
        };
        let keys = match lease.range {
            Some(range) => Keys::Range(range),
            None => Keys::Physical(lease.token),
        };
        let JavaLease { id, owner, mode, start, .. } = lease;
        Self { id, dialect, owner, mode, keys, start, created: None, properties: BTreeMap::new(), gone: false }
    }

    /// The id of the document that says when the leases of its processor were created.
    pub(super) fn marker_id(&self) -> String {
        let prefix = self.id.rsplit_once("..").map_or(self.id.as_str(), |(prefix, _)| prefix);
        format!("{prefix}.info")
    }
}
