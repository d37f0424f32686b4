//! The lease: who works on a range, and how far they got.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{FeedRange, Mode, Timestamp};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    error::{DocumentError, JavaDialect},
    iso,
    keys::{check_version, inherited},
    members::{Extra, Members},
    read_properties::ReadProperties,
};
use crate::lease::prefix::LeaseToken;

const INCREMENTAL: &str = "Incremental Feed";
const FULL_FIDELITY: &str = "Full-Fidelity Feed";

/// Room for most leases, so that writing one does not grow its buffer again and again.
const TYPICAL_BYTES: usize = 640;

/// The kind of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseVersion {
    /// 0: for one physical range; the token is its id.
    Range,
    /// 1: for any feed range; the token is `min-max`.
    FeedRange,
}

impl LeaseVersion {
    /// The number in the document.
    pub fn number(self) -> u8 {
        match self {
            Self::Range => 0,
            Self::FeedRange => 1,
        }
    }
}

/// One lease: who works on a range, and how far they got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseDocument {
    /// Prefix and token.
    pub id: String,
    /// The partition key in a lease container with `/partitionKey`; leases of old .NET hosts have random ones.
    pub partition_key: Option<String>,
    /// The kind of the lease.
    pub version: LeaseVersion,
    /// What the lease is for, unique within the processor.
    pub token: LeaseToken,
    /// The keys it covers. Absent in leases older than 2021; then see [`LeaseDocument::range`].
    pub feed_range: Option<FeedRange>,
    /// The instance that works on it; none if it is free.
    pub owner: Option<String>,
    /// Everything up to here is done; none if nothing is and no start was stored.
    pub continuation: Option<String>,
    /// The users' properties, and our own state under keys that begin with `cf.`. Shared by copies until one changes them:
    /// a checkpoint copies the document, and changes none.
    pub properties: Arc<BTreeMap<String, String>>,
    /// When the last writer thought it wrote, in UTC. .NET hosts judge by it whether the owner is alive; we do not.
    pub timestamp: Option<String>,
    /// What the processor sees; absent in old leases, which means the latest version.
    pub mode: Option<Mode>,
    pub(super) partition_id: Option<String>,
    stored_etag: Option<String>,
    stored_ts: i64,
    extra: Extra,
    pub(super) read: ReadProperties,
}

impl LeaseDocument {
    /// A free lease that nobody has worked on, as bootstrap creates it. `partition_key` is for lease containers with
    /// `/partitionKey`, and should be the id: then two creators cannot both succeed.
    pub fn new(
        id: String,
        partition_key: Option<String>,
        version: LeaseVersion,
        token: LeaseToken,
        range: FeedRange,
        mode: Mode,
    ) -> Self {
        Self {
            id,
            partition_key,
            version,
            token,
            feed_range: Some(range),
            owner: None,
            continuation: None,
            properties: Arc::default(),
            timestamp: None,
            mode: Some(mode),
            partition_id: None,
            stored_etag: None,
            stored_ts: 0,
            extra: Extra::default(),
            read: ReadProperties::default(),
        }
    }

    /// Reads a document as the store returned it.
    ///
    /// # Errors
    /// See [`DocumentError`]. Our own properties cause none: see [`LeaseDocument::warnings`].
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut members = Members::parse(body)?;
        refuse_java(&members)?;
        let id = members.take_id()?;
        let version = take_version(&mut members)?;
        let (token, partition_id) = take_token(&mut members)?;
        let lease = Self {
            id,
            partition_key: members.take_text("partitionKey")?,
            version,
            token,
            feed_range: members.take("FeedRange", r#"of the form {"Range":{"min":"","max":"FF"}}"#)?,
            owner: members.take_text("Owner")?.filter(|owner| !owner.trim().is_empty()),
            continuation: members.take_text("ContinuationToken")?.filter(|token| !token.is_empty()),
            properties: Arc::new(members.take_properties()?),
            timestamp: members.take_text("timestamp")?,
            mode: take_mode(&mut members)?,
            partition_id,
            stored_etag: members.take_text("_etag")?,
            stored_ts: members.take("_ts", "a whole number")?.unwrap_or_default(),
            extra: members.into_extra(),
            read: ReadProperties::default(),
        };
        check_version(&lease.properties)?;
        if version == LeaseVersion::FeedRange && lease.range().is_none() {
            return Err(DocumentError::bad_field("FeedRange", "is missing, and LeaseToken is not min-max"));
        }
        Ok(lease)
    }

    /// The document as the .NET SDK would write it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(TYPICAL_BYTES);
        serde_json::to_writer(&mut text, self)
            .expect("invariant: texts, numbers and JSON that was read always serialise");
        text
    }

    /// The keys it covers: stored, or in the token. None for an old version 0 lease, whose token names them.
    pub fn range(&self) -> Option<FeedRange> {
        let in_token = || (self.version == LeaseVersion::FeedRange).then(|| self.token.to_feed_range()).flatten();
        self.feed_range.clone().or_else(in_token)
    }

    /// Whether [`LeaseDocument::range`] is none.
    pub fn has_no_range(&self) -> bool {
        self.feed_range.is_none() && self.range().is_none()
    }

    /// The version that the store wrote into the document.
    pub(super) fn stored_etag(&self) -> Option<&str> {
        self.stored_etag.as_deref()
    }

    /// Writes down that the lease is written at this moment.
    pub fn touch(&mut self, now: Timestamp) {
        self.timestamp = Some(iso::iso(now));
    }

    /// When the last writer thought it wrote; none if nobody has, or the text cannot be read.
    pub fn written_at(&self) -> Option<Timestamp> {
        self.timestamp.as_deref().and_then(iso::parse)
    }

    /// When it was created; none if it was written since.
    pub fn created_at(&self) -> Option<Timestamp> {
        let created = u64::try_from(self.stored_ts).ok().filter(|seconds| *seconds > 0 && self.timestamp.is_none());
        created.map(Timestamp::from_secs)
    }

    /// A free lease for a part of this one's keys after a split or merge: it goes on at this one's checkpoint, and
    /// inherits the users' properties, the generation, a pause and what is known of failures.
    #[must_use]
    pub fn child(&self, id: String, version: LeaseVersion, token: LeaseToken, range: FeedRange) -> Self {
        let partition_key = self.partition_key.is_some().then(|| id.clone());
        let mut child = Self::new(id, partition_key, version, token, range, self.mode.unwrap_or_default());
        child.continuation.clone_from(&self.continuation);
        child.properties = Arc::new(self.inherited_properties());
        child
    }

    /// The properties that a lease which takes this one's place inherits: the users', the generation, a pause and what is
    /// known of failures.
    pub(crate) fn inherited_properties(&self) -> BTreeMap<String, String> {
        inherited(&self.properties)
    }
}

impl Serialize for LeaseDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        if let Some(key) = &self.partition_key {
            map.serialize_entry("partitionKey", key)?;
        }
        map.serialize_entry("version", &self.version.number())?;
        map.serialize_entry("_etag", &self.stored_etag)?;
        // KEDA's scaler reads the feed of every document with this member, and keeps a host awake for a range that is
        // gone. .NET hosts read a document without it, too: those of SDK version 2 have only the other.
        if !(self.is_gone() && self.partition_id.is_some()) {
            map.serialize_entry("LeaseToken", self.token.as_str())?;
        }
        if let Some(id) = &self.partition_id {
            map.serialize_entry("PartitionId", id)?;
        }
        if let Some(range) = &self.feed_range {
            map.serialize_entry("FeedRange", range)?;
        }
        map.serialize_entry("Owner", &self.owner)?;
        map.serialize_entry("ContinuationToken", &self.continuation)?;
        map.serialize_entry("properties", &*self.properties)?;
        map.serialize_entry("timestamp", &self.timestamp)?;
        map.serialize_entry("_ts", &self.stored_ts)?;
        if let Some(mode) = self.mode {
            map.serialize_entry("Mode", mode_text(mode))?;
        }
        self.extra.serialize_into(&mut map)?;
        map.end()
    }
}

/// Java's leases have the same ids or look much the same, but other positions in them.
fn refuse_java(members: &Members<'_>) -> Result<(), DocumentError> {
    // Written by every .NET host, never by a Java host: at least one of them.
    let net = ["version", "properties", "PartitionId", "FeedRange", "Mode"];
    if members.has("feedRange") || members.has("version") && !net.iter().skip(1).any(|name| members.has(name)) {
        return Err(DocumentError::JavaDialect(JavaDialect::FeedRanges));
    }
    if members.has("LeaseToken") && !net.iter().any(|name| members.has(name)) {
        return Err(DocumentError::JavaDialect(JavaDialect::PhysicalRanges));
    }
    Ok(())
}

fn take_version(members: &mut Members<'_>) -> Result<LeaseVersion, DocumentError> {
    match members.take("version", "a whole number")?.unwrap_or_default() {
        0 => Ok(LeaseVersion::Range),
        1 => Ok(LeaseVersion::FeedRange),
        number => Err(DocumentError::UnknownVersion(number)),
    }
}

/// The token; leases of SDK version 2 have `PartitionId` in its place, and keep it.
fn take_token(members: &mut Members<'_>) -> Result<(LeaseToken, Option<String>), DocumentError> {
    let partition_id = members.take_text("PartitionId")?;
    let text = members.take_text("LeaseToken")?.or_else(|| partition_id.clone());
    let text = text.ok_or_else(|| DocumentError::bad_field("LeaseToken", "is missing"))?;
    match text.parse() {
        Ok(token) => Ok((token, partition_id)),
        Err(_) => Err(DocumentError::bad_field("LeaseToken", "cannot be the end of an id")),
    }
}

fn take_mode(members: &mut Members<'_>) -> Result<Option<Mode>, DocumentError> {
    match members.take_text("Mode")? {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case(INCREMENTAL) => Ok(Some(Mode::LatestVersion)),
        Some(text) if text.eq_ignore_ascii_case(FULL_FIDELITY) => Ok(Some(Mode::AllVersions)),
        Some(_) => Err(DocumentError::bad_field("Mode", format!("is neither {INCREMENTAL} nor {FULL_FIDELITY}"))),
    }
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::LatestVersion => INCREMENTAL,
        Mode::AllVersions => FULL_FIDELITY,
    }
}
