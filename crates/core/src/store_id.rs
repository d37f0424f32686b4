//! Store ids: the identity that a store has from its creation.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Error, ErrorKind, Result};

/// The identity of a store, given at its creation and never changed. Cheap to clone.
///
/// Resource ids and LSNs begin at the same numbers in every new store. Positions that are kept elsewhere (leases,
/// bookmarks) are therefore compared with the store id first: in another store, the same numbers mean other changes.
/// Our own stores use 128 random bits as hexadecimal text; other stores may use any text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(Arc<str>);

impl StoreId {
    /// The most characters that an id may have.
    pub const MAX_CHARS: usize = 128;

    /// Checks and takes an id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] unless it has 1 to 128 characters, all of them printable ASCII without spaces.
    pub fn new(id: impl Into<Arc<str>>) -> Result<Self> {
        let id = id.into();
        if (1..=Self::MAX_CHARS).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(id));
        }
        let shown: String = id.chars().take(64).collect();
        let message = format!("{shown:?} is not a store id: use 1 to 128 printable ASCII characters without spaces");
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// Creates the id made of these bits, which should be random: 32 lower-case hexadecimal digits.
    pub fn from_bits(bits: u128) -> Self {
        Self(format!("{bits:032x}").into())
    }

    /// Returns whether the id consists of random bits, so that another id means another store. An id that is a name may
    /// be one of several that its store has.
    pub fn is_random(&self) -> bool {
        self.0.len() == 32 && self.0.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        Self::new(id)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

impl Serialize for StoreId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for StoreId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bits_are_32_hexadecimal_digits() {
        let id = StoreId::from_bits(0xab);
        assert_eq!(id.as_str(), "000000000000000000000000000000ab");
        assert_eq!(id.to_string().parse::<StoreId>().unwrap(), id);
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<StoreId>(&format!("\"{id}\"")).unwrap(), id);
    }

    #[test]
    fn random_ids_are_told_from_names() {
        assert!(StoreId::from_bits(u128::MAX).is_random());
        for name in ["localhost:8081", "shop.documents.azure.com", "000000000000000000000000000000AB", "abc"] {
            assert!(!StoreId::new(name).unwrap().is_random(), "{name}");
        }
    }

    #[test]
    fn other_stores_use_any_printable_text() {
        assert_eq!(StoreId::new("shop.documents.azure.com").unwrap().as_str(), "shop.documents.azure.com");
        for bad in ["", "a b", "a\n", "é", &"x".repeat(129)] {
            assert_eq!(StoreId::new(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad:?}");
        }
    }
}
