//! What a URL is about. Paths are read by position, never by searching for words: a database may be called `colls`.

use std::str;

use percent_encoding::percent_decode_str;

/// The longest path that is looked at.
const MAX_PATH_BYTES: usize = 8 * 1024;

/// The first segment of our own calls.
pub(crate) const ADMIN: &str = "_changefeed";

/// What a request is about. Segments are decoded, and are names or resource ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The account itself.
    Account,
    /// All databases.
    Databases,
    /// One database.
    Database(String),
    /// All containers of a database.
    Containers(String),
    /// One container: database, container.
    Container(String, String),
    /// All items of a container.
    Items(String, String),
    /// One item: database, container, item.
    Item(String, String, String),
    /// The partition key ranges of a container.
    Ranges(String, String),
    /// One of the feeds of a container that are always empty here (`sprocs`, `triggers`, `udfs`, `conflicts`), or
    /// something in it.
    Scripts(String, String, &'static str),
    /// All users of a database, which are always none.
    Users(String),
    /// All offers.
    Offers,
    /// One offer.
    Offer(String),
    /// A call of our own: what follows `/_changefeed/`.
    Admin(String),
}

/// A path as it came, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// What it is about.
    pub target: Target,
    /// The type of the resource, as it is signed.
    pub kind: &'static str,
    /// The link of the resource in each form in which a client may have signed it.
    pub links: Vec<String>,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// Longer than 8 KiB.
    TooLong,
    /// Not UTF-8 after decoding, or a character that no id may hold.
    BadSegment,
    /// Nothing is there.
    Unknown,
}

impl BadPath {
    /// A sentence for the client.
    pub fn message(self) -> &'static str {
        match self {
            Self::TooLong => "the path is longer than 8 KiB",
            Self::BadSegment => {
                "a segment of the path is not UTF-8, is empty, or holds one of / \\ # ? or a control character"
            }
            Self::Unknown => {
                "nothing is at this path: expected /dbs/{database}/colls/{container}/docs/{item} or a part of it"
            }
        }
    }
}

impl Path {
    /// Reads the path of a URL, still encoded, without its query.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(raw: &str) -> Result<Self, BadPath> {
        if raw.len() > MAX_PATH_BYTES {
            return Err(BadPath::TooLong);
        }
        let inner = raw.strip_prefix('/').unwrap_or(raw);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() {
            return Ok(Self { target: Target::Account, kind: "", links: vec![String::new()] });
        }
        let segments: Vec<String> = inner.split('/').map(decode).collect::<Result<_, _>>()?;
        let (target, kind) = target(&segments).ok_or(BadPath::Unknown)?;
        Ok(Self { links: links(inner, &segments, kind), target, kind })
    }
}

/// Decodes once; what is refused here never becomes a name.
fn decode(segment: &str) -> Result<String, BadPath> {
    let bytes: Vec<u8> = percent_decode_str(segment).collect();
    let text = String::from_utf8(bytes).map_err(|_| BadPath::BadSegment)?;
    let bad = text.is_empty() || text.contains(['/', '\\', '#', '?']) || text.chars().any(char::is_control);
    if bad { Err(BadPath::BadSegment) } else { Ok(text) }
}

fn target(segments: &[String]) -> Option<(Target, &'static str)> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let own = |word: &&str| (*word).to_owned();
    Some(match words.as_slice() {
        ["dbs"] => (Target::Databases, "dbs"),
        ["dbs", db] => (Target::Database(own(db)), "dbs"),
        ["dbs", db, "colls"] => (Target::Containers(own(db)), "colls"),
        ["dbs", db, "users"] => (Target::Users(own(db)), "users"),
        ["dbs", db, "colls", coll] => (Target::Container(own(db), own(coll)), "colls"),
        ["dbs", db, "colls", coll, "docs"] => (Target::Items(own(db), own(coll)), "docs"),
        ["dbs", db, "colls", coll, "docs", id] => (Target::Item(own(db), own(coll), own(id)), "docs"),
        ["dbs", db, "colls", coll, "pkranges"] => (Target::Ranges(own(db), own(coll)), "pkranges"),
        ["dbs", db, "colls", coll, kind] | ["dbs", db, "colls", coll, kind, _] => {
            let kind = ["sprocs", "triggers", "udfs", "conflicts"].into_iter().find(|known| known == kind)?;
            (Target::Scripts(own(db), own(coll), kind), kind)
        }
        ["offers"] => (Target::Offers, "offers"),
        ["offers", rid] => (Target::Offer(own(rid)), "offers"),
        [ADMIN, rest @ ..] if !rest.is_empty() => (Target::Admin(rest.join("/")), ADMIN),
        _ => return None,
    })
}

/// The link as it is signed: of a feed its owner, of a resource its own; by name with its case, by resource id only the
/// last one in lower case. Some clients sign what they send, others what it means, so both forms are tried.
fn links(raw: &str, segments: &[String], kind: &str) -> Vec<String> {
    let is_feed = segments.len() % 2 == 1;
    let count = if is_feed && kind != ADMIN { segments.len() - 1 } else { segments.len() };
    let mut links = vec![segments[..count].join("/")];
    if raw.contains('%') {
        let as_sent = raw.split('/').take(count).collect::<Vec<_>>().join("/");
        if !links.contains(&as_sent) {
            links.push(as_sent);
        }
    }
    let by_rid = segments.first().is_some_and(|first| first == "offers")
        || segments.get(1).is_some_and(|database| database.parse::<changefeed_core::ResourceId>().is_ok());
    if by_rid && let Some(rid) = segments.get(count.wrapping_sub(1)) {
        links.push(rid.to_ascii_lowercase());
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(path: &str) -> Target {
        Path::parse(path).unwrap().target
    }

    fn s(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn paths_are_read_by_position() {
        assert_eq!(target_of("/"), Target::Account);
        assert_eq!(target_of("/dbs/"), Target::Databases);
        assert_eq!(
            target_of("/dbs/colls/colls/docs/docs/pkranges/"),
            Target::Item(s("colls"), s("docs"), s("pkranges"))
        );
        assert_eq!(target_of("/dbs/a/colls/b/pkranges"), Target::Ranges(s("a"), s("b")));
        assert_eq!(target_of("/offers/abc="), Target::Offer(s("abc=")));
        assert_eq!(target_of("/_changefeed/split"), Target::Admin(s("split")));
        for path in ["/x", "/dbs/a/b", "/dbs/a/colls/b/docs/c/attachments", "/_changefeed", "/dbs/a/colls/b/sprocs/c/d"]
        {
            assert_eq!(Path::parse(path), Err(BadPath::Unknown), "{path}");
        }
    }

    #[test]
    fn segments_are_decoded_once_and_plus_stays_plus() {
        assert_eq!(target_of("/dbs/a%20b+c%2Bd"), Target::Database(s("a b+c+d")));
        assert_eq!(target_of("/dbs/%2525"), Target::Database(s("%25")));
        for path in ["/dbs/..%2f..", "/dbs/a%5cb", "/dbs/a%00b", "/dbs/%ff", "/dbs/%c0%af", "/dbs//colls", "/dbs/a%23"]
        {
            assert_eq!(Path::parse(path), Err(BadPath::BadSegment), "{path}");
        }
        assert_eq!(Path::parse(&"/a".repeat(5000)), Err(BadPath::TooLong));
        assert_eq!(target_of("/dbs/.."), Target::Database(s("..")), "an id is never a file name");
    }

    #[test]
    fn links_are_those_of_the_owner_of_a_feed_and_of_a_resource_itself() {
        let links = |path: &str| Path::parse(path).unwrap().links;
        assert_eq!(links("/dbs/db1/colls/c1/docs"), ["dbs/db1/colls/c1"]);
        assert_eq!(links("/dbs/db1/colls/c1/docs/A%20b"), ["dbs/db1/colls/c1/docs/A b", "dbs/db1/colls/c1/docs/A%20b"]);
        assert_eq!(links("/offers"), ["", ""][..1]);
        assert_eq!(links("/offers/AbC="), ["offers/AbC=", "abc="]);
        assert_eq!(links("/dbs/ADyiAA==/colls/ADyiAIABAAE=/pkranges").last().unwrap(), "adyiaiabaae=");
    }
}
