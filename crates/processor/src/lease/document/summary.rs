//! The summary of a lease: what a host must know to tell whether a write concerns it, and nothing else. Pure.

use std::{borrow::Cow, sync::Arc};

use changefeed_core::{ETag, Error};
use serde::Deserialize;

use super::{
    keys::{GONE, HAND_OVER, PAUSED, SESSION},
    lease::LeaseDocument,
};
use crate::lease::{prefix::LeaseToken, texts::Texts};

/// One version of a lease document, summarised without copying: hosts read many of them to learn that nothing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryRef<'a> {
    token: Cow<'a, str>,
    etag: Option<Cow<'a, str>>,
    timestamp: Option<Cow<'a, str>>,
    owner: Option<Cow<'a, str>>,
    session: Option<Cow<'a, str>>,
    hand_over: Option<Cow<'a, str>>,
    paused: bool,
    gone: bool,
}

impl<'a> SummaryRef<'a> {
    /// Reads a document; none if that cannot be done.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let Skeleton { token, partition_id, etag, timestamp, owner, properties } = serde_json::from_slice(body).ok()?;
        let token = token.or(partition_id)?;
        let Properties { session, hand_over, paused, gone } = properties.unwrap_or_default();
        let owner = owner.filter(|owner| !owner.trim().is_empty());
        let is_true = |text: Option<Cow<'_, str>>| text.is_some_and(|text| text == "true");
        let (paused, gone) = (is_true(paused), is_true(gone));
        Some(Self { token, etag, timestamp, owner, session, hand_over, paused, gone })
    }
}

/// One version of a lease: its owner, the host that requests it, and what tells the one's writes from the other's. Immutable,
/// and shared by all hosts of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSummary {
    token: LeaseToken,
    etag: Option<ETag>,
    timestamp: Option<Box<str>>,
    owner: Option<Arc<str>>,
    session: Option<Arc<str>>,
    hand_over: Option<Box<str>>,
    paused: bool,
    gone: bool,
}

impl LeaseSummary {
    /// Shares texts with the summaries of other leases and versions.
    pub(crate) fn share(&mut self, texts: &mut Texts) {
        self.token.share(texts);
        self.owner.iter_mut().chain(&mut self.session).for_each(|text| texts.share(text));
    }

    /// The token of the lease.
    pub fn token(&self) -> &LeaseToken {
        &self.token
    }

    /// The version, as the document has it.
    pub fn etag(&self) -> Option<&ETag> {
        self.etag.as_ref()
    }

    /// The owner; none if it is free.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The instance that requests it.
    pub fn requested_by(&self) -> Option<&str> {
        self.hand_over.as_deref()
    }

    /// Whether the lease is this session's, and nobody wants anything of it.
    pub fn is_undisturbed(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session) && self.hand_over.is_none() && !self.paused && !self.gone
    }

    /// Whether nothing but checkpoints and renewals lies between two versions.
    pub fn has_same_ownership(&self, other: &Self) -> bool {
        (self.paused, self.gone) == (other.paused, other.gone)
            && self.owner == other.owner
            && self.session == other.session
            && self.hand_over == other.hand_over
    }

    /// Whether all that happened since `before` is that somebody asked for the lease or withdrew a request: a host that
    /// asks a dead owner must not make it look alive. An owner writes the time with each renewal.
    pub fn is_only_asked(&self, before: &Self) -> bool {
        self.timestamp.is_some()
            && self.hand_over != before.hand_over
            && (&self.owner, &self.session, &self.timestamp) == (&before.owner, &before.session, &before.timestamp)
    }
}

impl TryFrom<SummaryRef<'_>> for LeaseSummary {
    type Error = Error;

    fn try_from(seen: SummaryRef<'_>) -> Result<Self, Error> {
        let SummaryRef { token, etag, timestamp, owner, session, hand_over, paused, gone } = seen;
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Box::from(&*text));
        Ok(Self {
            token: token.parse()?,
            etag: etag.and_then(|etag| etag.parse().ok()),
            timestamp: owned(timestamp),
            owner: owner.as_deref().map(Arc::from),
            session: session.as_deref().map(Arc::from),
            hand_over: owned(hand_over),
            paused,
            gone,
        })
    }
}

impl From<&LeaseDocument> for LeaseSummary {
    fn from(document: &LeaseDocument) -> Self {
        Self {
            token: document.token.clone(),
            etag: document.stored_etag().and_then(|etag| etag.parse().ok()),
            timestamp: document.timestamp.as_deref().map(Box::from),
            owner: document.owner.as_deref().map(Arc::from),
            session: document.session().map(Arc::from),
            hand_over: document.hand_over().map(|asked| asked.to.into()),
            paused: document.is_paused(),
            gone: document.is_gone(),
        }
    }
}

#[derive(Deserialize)]
struct Skeleton<'a> {
    #[serde(rename = "LeaseToken", borrow, default)]
    token: Option<Cow<'a, str>>,
    /// Stands for the token in leases of SDK version 2 and in tombstones.
    #[serde(rename = "PartitionId", borrow, default)]
    partition_id: Option<Cow<'a, str>>,
    #[serde(rename = "_etag", borrow, default)]
    etag: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(rename = "Owner", borrow, default)]
    owner: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    properties: Option<Properties<'a>>,
}

/// The properties that a summary needs; empty texts count as none.
#[derive(Default)]
struct Properties<'a> {
    session: Option<Cow<'a, str>>,
    hand_over: Option<Cow<'a, str>>,
    paused: Option<Cow<'a, str>>,
    gone: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Properties<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Properties<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with texts")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut properties = Properties::default();
                while let Some((Text(key), Text(value))) = map.next_entry()? {
                    let wanted = match &*key {
                        SESSION => &mut properties.session,
                        HAND_OVER => &mut properties.hand_over,
                        PAUSED => &mut properties.paused,
                        GONE => &mut properties.gone,
                        _ => continue,
                    };
                    *wanted = Some(value).filter(|value| !value.is_empty());
                }
                Ok(properties)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// A text that is borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use changefeed_core::{FeedRange, Mode, Timestamp};

    use super::*;
    use crate::lease::document::{Attempts, LeaseVersion, Status};

    fn lease() -> LeaseDocument {
        let token = "0".parse().unwrap();
        let mut lease =
            LeaseDocument::new("x..0".into(), None, LeaseVersion::Range, token, FeedRange::full(), Mode::LatestVersion);
        lease.owner = Some("a \"b\"".into());
        lease.set_session(Some("s"));
        Arc::make_mut(&mut lease.properties).insert("mine".into(), "with \n escapes".into());
        lease
    }

    fn summary(lease: &LeaseDocument) -> LeaseSummary {
        let json = lease.to_json();
        let summary = LeaseSummary::try_from(SummaryRef::parse(&json).unwrap()).unwrap();
        assert_eq!(summary, LeaseSummary::from(lease), "as the whole document says");
        summary
    }

    #[test]
    fn checkpoints_and_renewals_change_nothing() {
        let before = summary(&lease());
        assert!(before.is_undisturbed("s") && !before.is_undisturbed("t"));
        let mut lease = lease();
        lease.continuation = Some("\"7\"".into());
        lease.set_attempts(&Attempts { continuation: None, count: 3 });
        lease.set_status(Some(&Status::Calling { seconds: 3 }));
        lease.set_epoch(9);
        lease.touch(Timestamp::from_millis(5));
        let after = summary(&lease);
        assert!(after.has_same_ownership(&before) && after != before);
    }

    #[test]
    fn owners_requests_pauses_and_tombstones_show() {
        let changes: [fn(&mut LeaseDocument); 5] = [
            |lease| lease.owner = None,
            |lease| lease.set_session(Some("t")),
            |lease| lease.set_hand_over(Some("c")),
            |lease| lease.set_paused(true),
            |lease| lease.set_gone(true),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut changed = lease();
            change(&mut changed);
            assert!(!summary(&changed).has_same_ownership(&summary(&lease())), "{at}");
            assert_eq!(summary(&changed).is_undisturbed("s"), at == 0, "{at}");
        }
    }

    #[test]
    fn what_is_no_lease_gives_none() {
        for body in [&b""[..], b"[]", b"{}", br#"{"LeaseToken":1}"#, br#"{"LeaseToken":"0","properties":{"a":1}}"#] {
            assert_eq!(SummaryRef::parse(body), None);
        }
    }
}
