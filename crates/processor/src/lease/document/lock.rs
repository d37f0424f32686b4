//! `.lock`: held by the one host that creates leases.

use std::collections::BTreeMap;

use changefeed_core::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    error::DocumentError,
    iso::iso,
    members::{Extra, Members},
};

const NONCE: &str = "cf.nonce";
const OWNER: &str = "cf.owner";
const TIMESTAMP: &str = "cf.timestamp";
const STORE: &str = "cf.store";
const ACCOUNT_HOST: &str = "cf.accountHost";

/// The .NET SDK's number. Containers without a time to live ignore it, so nobody may rely on it.
const TTL_SECONDS: i64 = 30;

/// The document that one host creates while it creates leases.
///
/// Whether the holder is alive is judged by watching: a lock whose etag and nonce stay the same for long is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockDocument {
    id: String,
    partition_key: Option<String>,
    ttl: Option<i64>,
    properties: BTreeMap<String, String>,
    extra: Extra,
}

impl LockDocument {
    /// A lock of ours. The nonce must be one that nobody else uses: it identifies the holder after a write with unknown
    /// outcome.
    pub fn new(id: &str, partition_key: Option<String>, nonce: &str) -> Self {
        let properties = BTreeMap::from([(NONCE.to_owned(), nonce.to_owned())]);
        Self { id: id.to_owned(), partition_key, ttl: Some(TTL_SECONDS), properties, extra: Extra::default() }
    }

    /// Names the holder and the moment, for people who look at a lock that stays.
    #[must_use]
    pub fn held_by(mut self, owner: &str, since: Timestamp) -> Self {
        self.properties.insert(OWNER.to_owned(), owner.to_owned());
        self.properties.insert(TIMESTAMP.to_owned(), iso(since));
        self
    }

    /// Says of which store and account host the leases are that its holder creates.
    #[must_use]
    pub fn for_account(mut self, store: &str, account_host: &str) -> Self {
        self.properties.insert(STORE.to_owned(), store.to_owned());
        self.properties.insert(ACCOUNT_HOST.to_owned(), account_host.to_owned());
        self
    }

    /// Reads a lock, of ours or of a .NET host.
    ///
    /// # Errors
    /// If it is not an object with an id.
    pub fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        let mut members = Members::parse(body)?;
        Ok(Self {
            id: members.take_id()?,
            partition_key: members.take_text("partitionKey")?,
            ttl: members.take("ttl", "a whole number")?,
            properties: members.take_properties()?,
            extra: members.into_extra(),
        })
    }

    /// The holder's nonce; none if a .NET host holds it.
    pub fn nonce(&self) -> Option<&str> {
        self.properties.get(NONCE).map(String::as_str)
    }

    /// The holder's instance name, if it is known.
    pub fn owner(&self) -> Option<&str> {
        self.properties.get(OWNER).map(String::as_str)
    }

    /// The identity of the store whose leases its holder creates; `None` if that is a host of .NET or of an older version.
    pub fn store(&self) -> Option<&str> {
        self.properties.get(STORE).map(String::as_str)
    }

    /// The account host in the id; `None` if a host of .NET or of an older version holds it.
    pub fn account_host(&self) -> Option<&str> {
        self.properties.get(ACCOUNT_HOST).map(String::as_str)
    }

    /// The document as it is stored.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("invariant: texts, numbers and JSON that was read always serialise")
    }
}

impl Serialize for LockDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        if let Some(key) = &self.partition_key {
            map.serialize_entry("partitionKey", key)?;
        }
        if let Some(ttl) = self.ttl {
            map.serialize_entry("ttl", &ttl)?;
        }
        if !self.properties.is_empty() {
            map.serialize_entry("properties", &self.properties)?;
        }
        self.extra.serialize_into(&mut map)?;
        map.end()
    }
}
