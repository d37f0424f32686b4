//! Paths of the calls: `/_changefeed/v3/catalog/{call}`, `/_changefeed/v3/{database}/{container}/{call}` and
//! `/_changefeed/v3/watch`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The first segment of every call of our own, as in `/_changefeed/split`.
pub const PREFIX: &str = "_changefeed";

/// The second segment of the calls of this protocol. Another number for messages that are not compatible.
pub const VERSION: &str = "v3";

const CATALOG: &str = "catalog";
const WATCH: &str = "watch";

/// What must be encoded in a segment: all but the characters that every URL may hold.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

macro_rules! calls {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $call:ident = $text:literal, $reads:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $call,)*
        }

        impl $name {
            /// The last segment of its path.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$call => $text,)*
                }
            }

            /// Whether it changes nothing, so that a key for reading is enough.
            pub fn is_read(self) -> bool {
                match self {
                    $(Self::$call => $reads,)*
                }
            }

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$call),)*
                    _ => None,
                }
            }
        }
    };
}

calls! {
    /// A method of `Catalog` about databases and containers as a whole.
    CatalogCall {
        /// `Catalog::create_database`.
        CreateDatabase = "create_database", false;
        /// `Catalog::list_databases`.
        ListDatabases = "list_databases", true;
        /// `Catalog::replace_database`.
        ReplaceDatabase = "replace_database", false;
        /// `Catalog::delete_database`.
        DeleteDatabase = "delete_database", false;
        /// `Catalog::create_container`.
        CreateContainer = "create_container", false;
        /// `Catalog::list_containers`.
        ListContainers = "list_containers", true;
        /// `Catalog::replace_container`.
        ReplaceContainer = "replace_container", false;
        /// `Catalog::delete_container`.
        DeleteContainer = "delete_container", false;
        /// `Catalog::container`.
        OpenContainer = "open_container", true;
        /// `Catalog::split`.
        Split = "split", false;
        /// `Catalog::merge`.
        Merge = "merge", false;
    }
}

calls! {
    /// A method of `Backend`, on one container.
    ContainerCall {
        /// `Backend::feed_ranges`.
        FeedRanges = "feed_ranges", true;
        /// `Backend::read_changes`.
        ReadChanges = "read_changes", true;
        /// `Backend::read_item`.
        ReadItem = "read_item", true;
        /// `Backend::write`.
        Write = "write", false;
        /// `Backend::list_items`.
        ListItems = "list_items", true;
    }
}

/// What a path is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Databases and containers as a whole.
    Catalog(CatalogCall),
    /// One container: names of database and container.
    Container(String, String, ContainerCall),
    /// Wake-ups.
    Watch,
}

impl Target {
    /// The path, encoded, with its leading slash.
    pub fn path(&self) -> String {
        let encoded = |segment| utf8_percent_encode(segment, SEGMENT);
        match self {
            Self::Catalog(call) => format!("/{PREFIX}/{VERSION}/{CATALOG}/{}", call.as_str()),
            Self::Container(database, container, call) => {
                format!("/{PREFIX}/{VERSION}/{}/{}/{}", encoded(database), encoded(container), call.as_str())
            }
            Self::Watch => format!("/{PREFIX}/{VERSION}/{WATCH}"),
        }
    }

    /// The link that is signed: the path without its leading slash, before encoding.
    pub fn link(&self) -> String {
        match self {
            Self::Container(database, container, call) => {
                format!("{PREFIX}/{VERSION}/{database}/{container}/{}", call.as_str())
            }
            other => other.path().split_off(1),
        }
    }

    /// Reads what follows `/_changefeed/`, decoded; none if it is not a path of this protocol.
    pub fn parse(path: &str) -> Option<Self> {
        let rest = path.strip_prefix(VERSION)?.strip_prefix('/')?;
        let mut segments = rest.split('/');
        let parts = [segments.next()?, segments.next().unwrap_or(""), segments.next().unwrap_or("")];
        if segments.next().is_some() {
            return None;
        }
        match parts {
            [WATCH, "", ""] => Some(Self::Watch),
            [CATALOG, call, ""] => CatalogCall::parse(call).map(Self::Catalog),
            [database, container, call] => {
                let call = ContainerCall::parse(call)?;
                Some(Self::Container(database.to_owned(), container.to_owned(), call))
            }
        }
    }

    /// Whether the call changes nothing, so that a key for reading is enough.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Catalog(call) => call.is_read(),
            Self::Container(_, _, call) => call.is_read(),
            Self::Watch => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_back_whatever_containers_are_called() {
        let orders = Target::Container("a b/ü".replace('/', "%"), "catalog".to_owned(), ContainerCall::Write);
        assert_eq!(orders.path(), "/_changefeed/v3/a%20b%25%C3%BC/catalog/write");
        assert_eq!(orders.link(), "_changefeed/v3/a b%ü/catalog/write");
        for target in [
            orders,
            Target::Watch,
            Target::Catalog(CatalogCall::Split),
            Target::Container("catalog".to_owned(), "split".to_owned(), ContainerCall::FeedRanges),
        ] {
            let link = target.link();
            assert_eq!(Target::parse(link.strip_prefix("_changefeed/").unwrap()), Some(target));
        }
        for other in
            ["", "v3", "v3/", "v2/watch", "v3/catalog", "v3/a/b/drop", "v3/a/b/write/x", "split", "v3/catalog/x"]
        {
            assert_eq!(Target::parse(other), None, "{other}");
        }
    }

    #[test]
    fn writes_need_more_than_a_key_for_reading() {
        assert!(Target::Watch.is_read() && Target::Catalog(CatalogCall::OpenContainer).is_read());
        assert!(!Target::Catalog(CatalogCall::Split).is_read());
        assert!(!Target::Container(String::new(), String::new(), ContainerCall::Write).is_read());
    }
}
