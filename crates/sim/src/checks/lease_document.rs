//! Lease documents as the checks read them: from plain JSON, independently of the processor.

use std::collections::BTreeMap;

use serde_json::Value;

use super::key_range::KeyRange;

/// Identifies a document: its id, and its partition key where the container has one.
pub type DocumentKey = (String, Option<String>);

/// A lease document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseDocument {
    /// Its id and partition key.
    pub key: DocumentKey,
    /// The lease token.
    pub token: String,
    /// The keys that the document names, if it does.
    pub range: Option<KeyRange>,
    /// The owner, if any.
    pub owner: Option<String>,
    /// The stored position.
    pub continuation: Option<String>,
    /// When its last writer says it was written.
    pub timestamp: Option<String>,
    properties: BTreeMap<String, String>,
}

/// A start position that is no continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The oldest change.
    Beginning,
    /// The first change at or after a moment, in milliseconds since the epoch.
    Time(u64),
}

impl LeaseDocument {
    /// Reads a document; none if it is no lease.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let token = text("LeaseToken").or_else(|| text("PartitionId"))?;
        let is_feed_range = value.get("version").and_then(Value::as_u64) == Some(1);
        let stored = value
            .get("FeedRange")
            .and_then(|range| range.get("Range"))
            .and_then(|bounds| KeyRange::parse(bounds.get("min")?.as_str()?, bounds.get("max")?.as_str()?));
        let range = stored.or_else(|| KeyRange::from_token(&token).filter(|_| is_feed_range));
        let entries = value.get("properties").and_then(Value::as_object).into_iter().flatten();
        let properties = entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        Some(Self {
            key: (text("id")?, text("partitionKey")),
            token,
            range,
            owner: text("Owner").filter(|owner| !owner.trim().is_empty()),
            continuation: text("ContinuationToken").filter(|token| !token.is_empty()),
            timestamp: text("timestamp"),
            properties,
        })
    }

    /// The stored position as a number, if there is one.
    pub fn position(&self) -> Option<u64> {
        position(self.continuation.as_deref())
    }

    /// How often the lease changed owners.
    pub fn epoch(&self) -> u64 {
        self.number("cf.epoch")
    }

    /// How often an operator moved it.
    pub fn generation(&self) -> u64 {
        self.number("cf.generation")
    }

    /// The session of the owner, where it writes one.
    pub fn session(&self) -> Option<&str> {
        self.text("cf.session")
    }

    /// The instance that requests it.
    pub fn requested_by(&self) -> Option<&str> {
        self.text("cf.hand-over")
    }

    /// Whether an operator has paused it.
    pub fn is_paused(&self) -> bool {
        self.text("cf.paused") == Some("true")
    }

    /// Whether it is a tombstone.
    pub fn is_gone(&self) -> bool {
        self.text("cf.gone") == Some("true")
    }

    /// Whether one item of it is being delivered alone, because a batch with it failed or crashed a process.
    pub fn isolates(&self) -> bool {
        let search = self.text("cf.search").and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let alone = search.is_some_and(|search| search["window"] == 1 && search["first"].is_string());
        alone || self.text("cf.suspect").is_some()
    }

    /// The expiration that its owner promised, in milliseconds: it counts only if the owner itself wrote it, because
    /// .NET hosts copy properties.
    pub fn promise(&self) -> Option<u64> {
        let own = self.owner.is_some() && self.text("cf.owner") == self.owner.as_deref();
        self.text("cf.expiration").filter(|_| own)?.parse().ok()
    }

    /// A start position that is no continuation.
    pub fn start(&self) -> Option<Start> {
        match self.text("cf.start").filter(|_| self.continuation.is_none())?.split_once(' ') {
            None => Some(Start::Beginning),
            Some((_, millis)) => millis.parse().ok().map(Start::Time),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// The LSN up to which a continuation of the embedded store has passed everything. One that lies inside an LSN names
/// the last key after a dot.
pub fn position(continuation: Option<&str>) -> Option<u64> {
    let text = continuation?.trim_matches('"');
    match text.split_once('.') {
        Some((lsn, _)) => lsn.parse::<u64>().ok()?.checked_sub(1),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_counts_only_if_its_owner_wrote_it() {
        let promise = |owner: &str| {
            let body = format!(
                r#"{{"id":"x..0","LeaseToken":"0","Owner":"{owner}","properties":{{"cf.owner":"a","cf.expiration":"8000"}}}}"#
            );
            LeaseDocument::parse(body.as_bytes()).expect("a lease").promise()
        };
        assert_eq!((promise("a"), promise("dotnet")), (Some(8000), None));
    }

    #[test]
    fn a_document_without_a_token_is_no_lease() {
        assert_eq!(LeaseDocument::parse(br#"{"id":"x.info"}"#), None);
        assert_eq!(LeaseDocument::parse(b"[]"), None);
    }
}
