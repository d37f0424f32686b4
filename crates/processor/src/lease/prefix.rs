//! Names in the lease container: the prefix that all documents of one processor share, and the token of a lease.
//!
//! The .NET SDK composes the same ids; one different byte and two fleets would process everything twice.

use std::{borrow::Borrow, cmp::Ordering, fmt, str::FromStr, sync::Arc};

use changefeed_core::{
    ContainerIdentity, Error, ErrorKind, FeedRange, ItemId, MAX_ID_BYTES, RangeId, Result, stable_hash::fnv1a_128,
};
use serde::{Serialize, Serializer};

use super::texts::Texts;

/// What must stay free behind the prefix: `..` and two keys of 16 bytes in hexadecimal with a `-` between them.
const ROOM_FOR_TOKEN: usize = 2 + 65;

/// The beginning of every id that belongs to one processor: name, account host, database and container.
///
/// `ordersacct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=` is processor `orders` on a container of account `acct`.
#[derive(Clone, PartialEq, Eq)]
pub struct LeasePrefix(String);

impl LeasePrefix {
    /// The prefix of the processor `name` on the `monitored` container. The name may be empty, as in the .NET SDK.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the name contains a `'` (it would break the queries of .NET hosts), a
    /// control character or one of `/ \ # ?`, or if it leaves no room for lease ids of at most 1,023 bytes.
    pub fn new(name: &str, monitored: &ContainerIdentity) -> Result<Self> {
        let problem = if name.contains(['\'', '/', '\\', '#', '?']) {
            "contains one of ' / \\ # ?"
        } else if name.chars().any(char::is_control) {
            "contains a control character"
        } else {
            ""
        };
        if !problem.is_empty() {
            return Err(refused(name, problem, "choose a name of letters, digits, dots and dashes"));
        }
        let ContainerIdentity { account_host, database, container, .. } = monitored;
        let text = format!("{name}{account_host}_{database}_{container}");
        let excess = (text.len() + ROOM_FOR_TOKEN).saturating_sub(MAX_ID_BYTES);
        if excess > 0 {
            return Err(refused(name, "is too long for lease ids", &format!("make it {excess} bytes shorter")));
        }
        ItemId::new(text.as_str())?;
        Ok(Self(text))
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the document that says "leases were created once".
    pub fn info_id(&self) -> String {
        format!("{}.info", self.0)
    }

    /// The id of the document that one host creates while it creates leases.
    pub fn lock_id(&self) -> String {
        format!("{}.lock", self.0)
    }

    /// The document in which a reset leaves the start positions for hosts that run.
    pub(crate) fn reset_id(&self) -> String {
        format!("{}.reset", self.0)
    }

    /// The document that is written to learn the store's time.
    pub(crate) fn time_id(&self) -> String {
        format!("{}.time", self.0)
    }

    /// The id of a lease: what the .NET SDK makes, if that is a valid id. The bounds of hierarchical partition keys can
    /// make it longer than 1,023 bytes behind a long name; then the token is cut and a hash of all of it follows. Hosts of
    /// the .NET SDK find such leases by their prefix and read the token inside, as we do; they could not have created
    /// them. Leases that an older version has created are found in the same way: it cut ids at 255 characters.
    pub fn lease_id(&self, token: &LeaseToken) -> String {
        let mut id = format!("{}..{token}", self.0);
        if id.len() > MAX_ID_BYTES {
            let hash = format!("~{:032x}", fnv1a_128([token.as_str()]));
            let mut end = MAX_ID_BYTES - hash.len();
            while !id.is_char_boundary(end) {
                end -= 1;
            }
            id.truncate(end);
            id.push_str(&hash);
        }
        id
    }

    /// What the ids of all leases begin with.
    pub fn leases(&self) -> String {
        format!("{}..", self.0)
    }

    /// The token of the lease with this id, cut if it was too long for an id; none if it is not the id of a lease of
    /// this processor.
    pub fn token_of(&self, id: &str) -> Option<LeaseToken> {
        id.strip_prefix(&self.0)?.strip_prefix("..")?.parse().ok()
    }
}

impl fmt::Display for LeasePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LeasePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeasePrefix({self})")
    }
}

fn refused(name: &str, problem: &str, remedy: &str) -> Error {
    let shown: String = name.chars().take(64).collect();
    Error::new(ErrorKind::InvalidArgument, format!("processor name {shown:?} {problem}: {remedy}"))
}

/// What a lease is for: the id of a physical range (version 0), or a feed range as `min-max` (version 1). Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeaseToken(Arc<str>);

impl LeaseToken {
    /// Returns the token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Shares the text with equal tokens.
    pub(crate) fn share(&mut self, texts: &mut Texts) {
        texts.share(&mut self.0);
    }

    /// Returns the token read as the id of a physical range. Only the version of the lease says whether it is one.
    pub fn to_range_id(&self) -> Option<RangeId> {
        self.0.parse().ok()
    }

    /// Returns the token read as a feed range.
    pub fn to_feed_range(&self) -> Option<FeedRange> {
        self.0.parse().ok()
    }
}

impl Ord for LeaseToken {
    fn cmp(&self, other: &Self) -> Ordering {
        // Mostly a token is compared with itself, and reading it would take most of the time.
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for LeaseToken {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<str> for LeaseToken {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&RangeId> for LeaseToken {
    fn from(id: &RangeId) -> Self {
        Self(id.as_str().into())
    }
}

impl From<&FeedRange> for LeaseToken {
    fn from(range: &FeedRange) -> Self {
        Self(range.to_string().into())
    }
}

impl FromStr for LeaseToken {
    type Err = Error;

    /// Takes any text that can end an id, without control characters: tokens are shown as they are.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let shown = text.chars().take(64).collect::<String>();
            Error::new(ErrorKind::InvalidArgument, format!("{shown:?} is not a lease token"))
        };
        match ItemId::new(text) {
            Ok(_) if text.chars().any(char::is_control) => Err(refused()),
            Ok(_) => Ok(Self(text.into())),
            Err(error) => Err(refused().with_source(error)),
        }
    }
}

impl Serialize for LeaseToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseToken({self})")
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::PartitionKeyDefinition;

    use super::*;

    fn monitored() -> ContainerIdentity {
        ContainerIdentity {
            store: changefeed_core::StoreId::from_bits(1),
            account_host: "acct.documents.azure.com".into(),
            database_name: "shop".into(),
            container_name: "orders".into(),
            database: "kEgGAA==".parse().unwrap(),
            container: "kEgGAMy0JpU=".parse().unwrap(),
            partition_key: PartitionKeyDefinition::id(),
        }
    }

    fn token(text: &str) -> LeaseToken {
        text.parse().unwrap()
    }

    #[test]
    fn ids_are_composed_as_in_the_net_sdk() {
        let prefix = LeasePrefix::new("orders", &monitored()).unwrap();
        let text = "ordersacct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=";
        assert_eq!(prefix.as_str(), text);
        assert_eq!(prefix.info_id(), format!("{text}.info"));
        assert_eq!(prefix.lock_id(), format!("{text}.lock"));
        assert_eq!(prefix.leases(), format!("{text}.."));
        assert_eq!(prefix.lease_id(&token("0")), format!("{text}..0"));
        let first = LeaseToken::from(&"-05C1DFFFFFFFFC".parse::<FeedRange>().unwrap());
        assert_eq!(prefix.lease_id(&first), format!("{text}..-05C1DFFFFFFFFC"));
    }

    #[test]
    fn the_token_of_a_lease_id_comes_back_and_other_ids_have_none() {
        let prefix = LeasePrefix::new("", &monitored()).unwrap();
        for text in ["0", "12", "-FF", "05C1DFFFFFFFFC-FF", "..0"] {
            let id = prefix.lease_id(&token(text));
            assert_eq!(prefix.token_of(&id), Some(token(text)));
        }
        let longer = LeasePrefix::new("x", &monitored()).unwrap();
        let [info, lock, all] = [prefix.info_id(), prefix.lock_id(), prefix.leases()];
        for id in [info, lock, all, String::new(), "0".into(), format!("{longer}..0")] {
            assert_eq!(prefix.token_of(&id), None, "{id}");
        }
    }

    #[test]
    fn a_name_that_would_break_ids_or_queries_is_refused_with_the_remedy() {
        for name in ["it's", "a/b", "a\\b", "a#b", "a?b", "a\nb", "\u{7f}"] {
            let error = LeasePrefix::new(name, &monitored()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name:?}");
            assert!(error.message().ends_with(": choose a name of letters, digits, dots and dashes"), "{error}");
        }
        for name in ["", "mailer", "mailer 2", "ü", "a\"b"] {
            assert!(LeasePrefix::new(name, &monitored()).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn every_lease_id_of_an_accepted_name_fits_into_1023_bytes() {
        let room = 1023 - 67 - "acct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=".len();
        let prefix = LeasePrefix::new(&"é".repeat(room / 2), &monitored()).unwrap();
        let widest = token(&format!("{}-{}", "A".repeat(32), "B".repeat(32)));
        assert!(ItemId::new(prefix.lease_id(&widest)).is_ok());
        let error = LeasePrefix::new(&"x".repeat(room + 3), &monitored()).unwrap_err();
        assert!(error.message().ends_with("is too long for lease ids: make it 3 bytes shorter"), "{error}");
    }

    #[test]
    fn ids_of_hierarchical_keys_fit_as_well_and_differ() {
        let short = LeasePrefix::new(&"n".repeat(100), &monitored()).unwrap();
        let prefix = LeasePrefix::new(&"n".repeat(900), &monitored()).unwrap();
        // Three levels of 16 bytes: bounds of 96 digits. The first two tokens differ in their last digit only.
        let [a, b, c] = ["1", "2", "3"].map(|last| token(&format!("{}-{}{last}", "A".repeat(96), "B".repeat(95))));
        assert_eq!(short.lease_id(&a), format!("{short}..{a}"), "as in the .NET SDK, longer than 255 characters");
        let ids = [&a, &b, &c].map(|token| prefix.lease_id(token));
        for id in &ids {
            assert_eq!(id.len(), 1023);
            assert!(ItemId::new(id.as_str()).is_ok() && id.starts_with(&prefix.leases()), "{id}");
        }
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert!(ids[0].ends_with("~55063069bc35f1cdda1aaba79e413b81"), "never changes: {}", ids[0]);
        assert_eq!(prefix.lease_id(&token("AA-BB")), format!("{prefix}..AA-BB"), "short ones are as in the .NET SDK");
    }

    #[test]
    fn a_token_reads_as_range_id_or_feed_range() {
        assert_eq!(LeaseToken::from(&RangeId::from(7)).to_range_id(), Some(RangeId::from(7)));
        assert_eq!(token("7").to_feed_range(), None);
        assert_eq!(LeaseToken::from(&FeedRange::full()).as_str(), "-FF");
        assert_eq!(token("-FF").to_feed_range(), Some(FeedRange::full()));
        for text in ["", "a/b", "a\nb", &"x".repeat(1024)] {
            assert_eq!(text.parse::<LeaseToken>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
