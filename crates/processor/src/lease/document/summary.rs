//! The summary of a lease: what a host must know to tell whether a write concerns it, and nothing else. Pure.

use std::borrow::Cow;

use serde::Deserialize;

use super::{
    keys::{GONE, HAND_OVER, PAUSED, SESSION},
    lease::LeaseDocument,
};

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

    /// The token of the lease.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The version; none if the document does not say.
    pub fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// Whether the lease is this session's, and nobody wants anything of it.
    pub fn is_undisturbed(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session) && self.hand_over.is_none() && !self.paused && !self.gone
    }
}

impl PartialEq<LeaseSummary> for SummaryRef<'_> {
    fn eq(&self, other: &LeaseSummary) -> bool {
        let LeaseSummary { owner, session, hand_over, paused, gone } = other;
        (self.paused, self.gone) == (*paused, *gone)
            && self.owner.as_deref() == owner.as_deref()
            && self.session.as_deref() == session.as_deref()
            && self.hand_over.as_deref() == hand_over.as_deref()
    }
}

/// What tells a write of the owner from a request for the lease: a host that asks a dead owner must not make it look
/// alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignOfLife {
    owner: Option<String>,
    session: Option<String>,
    timestamp: Option<String>,
    hand_over: Option<String>,
}

impl SignOfLife {
    /// Whether all that happened since `before` is that somebody asked for the lease or withdrew a request. An owner
    /// writes the time with each renewal.
    pub fn is_only_asked(&self, before: &Self) -> bool {
        self.timestamp.is_some()
            && self.hand_over != before.hand_over
            && (&self.owner, &self.session, &self.timestamp) == (&before.owner, &before.session, &before.timestamp)
    }
}

impl From<&SummaryRef<'_>> for SignOfLife {
    fn from(seen: &SummaryRef<'_>) -> Self {
        let [owner, session, timestamp, hand_over] = [&seen.owner, &seen.session, &seen.timestamp, &seen.hand_over]
            .map(|text| text.as_deref().map(str::to_owned));
        Self { owner, session, timestamp, hand_over }
    }
}

impl From<&LeaseDocument> for SignOfLife {
    fn from(document: &LeaseDocument) -> Self {
        let LeaseSummary { owner, session, hand_over, .. } = LeaseSummary::from(document);
        Self { owner, session, timestamp: document.timestamp.clone(), hand_over }
    }
}

/// Who owns a lease and who asks for it. A checkpoint or a renewal changes nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSummary {
    owner: Option<String>,
    session: Option<String>,
    hand_over: Option<String>,
    paused: bool,
    gone: bool,
}

impl From<&SummaryRef<'_>> for LeaseSummary {
    fn from(seen: &SummaryRef<'_>) -> Self {
        let [owner, session, hand_over] =
            [&seen.owner, &seen.session, &seen.hand_over].map(|text| text.as_deref().map(str::to_owned));
        Self { owner, session, hand_over, paused: seen.paused, gone: seen.gone }
    }
}

impl From<&LeaseDocument> for LeaseSummary {
    fn from(document: &LeaseDocument) -> Self {
        Self {
            owner: document.owner.clone(),
            session: document.session().map(str::to_owned),
            hand_over: document.hand_over().map(|asked| asked.to),
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
        lease.properties.insert("mine".into(), "with \n escapes".into());
        lease
    }

    fn summary(lease: &LeaseDocument) -> LeaseSummary {
        let json = lease.to_json();
        let seen = SummaryRef::parse(&json).unwrap();
        let summary = LeaseSummary::from(&seen);
        assert_eq!((seen.token(), SignOfLife::from(&seen)), (lease.token.as_str(), SignOfLife::from(lease)));
        assert_eq!(seen, summary);
        assert_eq!(summary, LeaseSummary::from(lease), "as the whole document says");
        summary
    }

    #[test]
    fn checkpoints_and_renewals_change_nothing() {
        let before = summary(&lease());
        let json = lease().to_json();
        let undisturbed = |session: &str| SummaryRef::parse(&json).unwrap().is_undisturbed(session);
        assert!(undisturbed("s") && !undisturbed("t"));
        let mut lease = lease();
        lease.continuation = Some("\"7\"".into());
        lease.set_attempts(&Attempts { continuation: None, count: 3 });
        lease.set_status(Some(&Status::Calling { seconds: 3 }));
        lease.set_epoch(9);
        lease.touch(Timestamp::from_millis(5));
        assert_eq!(summary(&lease), before);
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
            assert_ne!(summary(&changed), summary(&lease()), "{at}");
            assert_eq!(SummaryRef::parse(&changed.to_json()).unwrap().is_undisturbed("s"), at == 0, "{at}");
        }
    }

    #[test]
    fn what_is_no_lease_gives_none() {
        for body in [&b""[..], b"[]", b"{}", br#"{"LeaseToken":1}"#, br#"{"LeaseToken":"0","properties":{"a":1}}"#] {
            assert_eq!(SummaryRef::parse(body), None);
        }
    }
}
