//! The summary of a lease: what a host must know to tell whether a write concerns it, and nothing else. Pure.

use std::borrow::Cow;

use changefeed_core::ETag;
use serde::Deserialize;

use super::{
    keys::{GONE, HAND_OVER, PAUSED, SESSION},
    lease::LeaseDocument,
};
use crate::lease::prefix::LeaseToken;

/// One version of a lease document, summarised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summarised {
    /// The token of the lease.
    pub token: LeaseToken,
    /// The version; none if the document does not say.
    pub etag: Option<ETag>,
    /// What only the owner changes.
    pub sign: SignOfLife,
    /// The summary.
    pub summary: LeaseSummary,
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
        let written = |sign: &Self| (sign.owner.clone(), sign.session.clone(), sign.timestamp.clone());
        self.timestamp.is_some() && self.hand_over != before.hand_over && written(self) == written(before)
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

impl LeaseSummary {
    /// Reads a document without keeping it; none if that cannot be done.
    pub fn parse(body: &[u8]) -> Option<Summarised> {
        let Skeleton { token, etag, timestamp, owner, properties } = serde_json::from_slice(body).ok()?;
        let text = |key: &str| -> Option<String> {
            let found = properties.iter().flat_map(|properties| &properties.0).find(|(own, _)| own == key);
            found.map(|(_, text)| text.to_string()).filter(|text| !text.is_empty())
        };
        let summary = Self {
            owner: owner.map(Cow::into_owned).filter(|owner| !owner.trim().is_empty()),
            session: text(SESSION),
            hand_over: text(HAND_OVER),
            paused: text(PAUSED).is_some_and(|text| text == "true"),
            gone: text(GONE).is_some_and(|text| text == "true"),
        };
        let etag = etag.and_then(|etag| ETag::new(&*etag).ok());
        let Self { owner, session, hand_over, .. } = summary.clone();
        let sign = SignOfLife { owner, session, timestamp: timestamp.map(Cow::into_owned), hand_over };
        Some(Summarised { token: token.parse().ok()?, etag, sign, summary })
    }

    /// Whether the lease is this session's, and nobody wants anything of it.
    pub fn is_undisturbed(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session) && self.hand_over.is_none() && !self.paused && !self.gone
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
    #[serde(rename = "LeaseToken", borrow)]
    token: Cow<'a, str>,
    #[serde(rename = "_etag", borrow, default)]
    etag: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(rename = "Owner", borrow, default)]
    owner: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    properties: Option<Properties<'a>>,
}

/// The properties in the order in which they stand: there are few.
struct Properties<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Properties<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Properties<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with texts")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut properties = Vec::new();
                while let Some((Text(key), Text(value))) = map.next_entry()? {
                    properties.push((key, value));
                }
                Ok(Properties(properties))
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
        let Summarised { token, sign, summary, .. } = LeaseSummary::parse(&lease.to_json()).unwrap();
        assert_eq!((token, sign), (lease.token.clone(), SignOfLife::from(lease)));
        assert_eq!(summary, LeaseSummary::from(lease), "as the whole document says");
        summary
    }

    #[test]
    fn checkpoints_and_renewals_change_nothing() {
        let before = summary(&lease());
        let mut lease = lease();
        lease.continuation = Some("\"7\"".into());
        lease.set_attempts(&Attempts { continuation: None, count: 3 });
        lease.set_status(Some(&Status::Calling { seconds: 3 }));
        lease.set_epoch(9);
        lease.touch(Timestamp::from_millis(5));
        assert_eq!(summary(&lease), before);
        assert!(before.is_undisturbed("s") && !before.is_undisturbed("t"));
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
            assert_eq!(summary(&changed).is_undisturbed("s"), at == 0, "{at}");
        }
    }

    #[test]
    fn what_is_no_lease_gives_none() {
        for body in [&b""[..], b"[]", b"{}", br#"{"LeaseToken":1}"#, br#"{"LeaseToken":"0","properties":{"a":1}}"#] {
            assert_eq!(LeaseSummary::parse(body), None);
        }
    }
}
