//! Parses the path of a URL. Segments are read by position, never by searching for words: a database may be called `colls`.

use std::borrow::Cow;

use changefeed_core::ResourceId;
use percent_encoding::percent_decode_str;

/// The longest path that is looked at.
const MAX_PATH_BYTES: usize = 8 * 1024;

/// The most segments that a path has: one to an item.
const MAX_SEGMENTS: usize = 6;

/// The type of a partition key, as it is signed.
pub(crate) const PARTITION_KEY: &str = "partitionkey";

/// The first segment of our own calls.
pub(crate) const ADMIN: &str = changefeed_protocol::PREFIX;

/// The resource of a request. Segments are decoded, and are names or resource ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The account itself.
    Account,
    /// All databases.
    Databases,
    /// One database.
    Database(Cow<'a, str>),
    /// All containers of a database.
    Containers(Cow<'a, str>),
    /// One container: database, container.
    Container(Cow<'a, str>, Cow<'a, str>),
    /// All items of a container.
    Items(Cow<'a, str>, Cow<'a, str>),
    /// One item: database, container, item.
    Item(Cow<'a, str>, Cow<'a, str>, Cow<'a, str>),
    /// All items of a partition key of a container, to be deleted.
    PartitionKeyDelete(Cow<'a, str>, Cow<'a, str>),
    /// The partition key ranges of a container.
    Ranges(Cow<'a, str>, Cow<'a, str>),
    /// One of the feeds of a container that are always empty here (`sprocs`, `triggers`, `udfs`, `conflicts`), or
    /// something in it.
    Scripts(Cow<'a, str>, Cow<'a, str>, &'static str, Option<Cow<'a, str>>),
    /// The users of a database, which are always none, one of them, or something of one.
    Users(Cow<'a, str>, Option<Cow<'a, str>>),
    /// All offers.
    Offers,
    /// One offer.
    Offer(Cow<'a, str>),
    /// A call of our own: the rest of the path after `/_changefeed/`.
    Admin(Cow<'a, str>),
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// The resource.
    pub target: Target<'a>,
    /// The type of the resource, as it is signed.
    pub kind: &'static str,
    /// The link of the resource in each form in which a client may have signed it.
    pub links: Vec<Cow<'a, str>>,
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
            Self::BadSegment => "a segment of the path is not UTF-8, is empty, or contains one of / \\ #",
            Self::Unknown => {
                "nothing is at this path: expected /dbs/{database}/colls/{container}/docs/{item} or a part of it"
            }
        }
    }
}

impl<'a> Path<'a> {
    /// Reads the path of a URL, still encoded, without its query.
    ///
    /// # Errors
    /// [`BadPath`] says why.
    pub fn parse(raw: &'a str) -> Result<Self, BadPath> {
        if raw.len() > MAX_PATH_BYTES {
            return Err(BadPath::TooLong);
        }
        let inner = raw.strip_prefix('/').unwrap_or(raw);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() {
            return Ok(Self { target: Target::Account, kind: "", links: vec![Cow::Borrowed("")] });
        }
        let mut segments = Vec::with_capacity(MAX_SEGMENTS);
        for segment in inner.split('/') {
            segments.push(decode(segment)?);
        }
        let (target, kind) = target(&segments).ok_or(BadPath::Unknown)?;
        Ok(Self { links: links(inner, &segments, kind), target, kind })
    }
}

/// Decodes a segment, once, and refuses characters that no name may contain.
fn decode(segment: &str) -> Result<Cow<'_, str>, BadPath> {
    let text = percent_decode_str(segment).decode_utf8().map_err(|_| BadPath::BadSegment)?;
    if text.is_empty() || text.contains(['/', '\\', '#']) { Err(BadPath::BadSegment) } else { Ok(text) }
}

fn target<'a>(segments: &[Cow<'a, str>]) -> Option<(Target<'a>, &'static str)> {
    let mut words = [""; MAX_SEGMENTS];
    let words = words.get_mut(..segments.len())?;
    words.iter_mut().zip(segments).for_each(|(word, segment)| *word = segment);
    let at = |index: usize| segments.get(index).cloned().unwrap_or_default();
    Some(match &*words {
        ["dbs"] => (Target::Databases, "dbs"),
        ["dbs", _] => (Target::Database(at(1)), "dbs"),
        ["dbs", _, "colls"] => (Target::Containers(at(1)), "colls"),
        ["dbs", _, "users"] => (Target::Users(at(1), None), "users"),
        ["dbs", _, "users", _] => (Target::Users(at(1), Some(at(3))), "users"),
        ["dbs", _, "users", _, "permissions"] | ["dbs", _, "users", _, "permissions", _] => {
            (Target::Users(at(1), Some(at(3))), "permissions")
        }
        ["dbs", _, "colls", _] => (Target::Container(at(1), at(3)), "colls"),
        ["dbs", _, "colls", _, "docs"] => (Target::Items(at(1), at(3)), "docs"),
        ["dbs", _, "colls", _, "docs", _] => (Target::Item(at(1), at(3), at(5)), "docs"),
        ["dbs", _, "colls", _, "pkranges"] => (Target::Ranges(at(1), at(3)), "pkranges"),
        ["dbs", _, "colls", _, "operations", "partitionkeydelete"] => {
            (Target::PartitionKeyDelete(at(1), at(3)), PARTITION_KEY)
        }
        ["dbs", _, "colls", _, kind] | ["dbs", _, "colls", _, kind, _] => {
            let kind = ["sprocs", "triggers", "udfs", "conflicts"].into_iter().find(|known| known == kind)?;
            (Target::Scripts(at(1), at(3), kind, segments.get(5).cloned()), kind)
        }
        ["offers"] => (Target::Offers, "offers"),
        ["offers", _] => (Target::Offer(at(1)), "offers"),
        [ADMIN, rest @ ..] if !rest.is_empty() => (Target::Admin(rest.join("/").into()), ADMIN),
        _ => return None,
    })
}

/// The link as it is signed: of a feed its owner, of a resource its own; by name with its case, by resource id only the
/// last one in lower case. Some clients sign the encoded path, others the decoded one, so both forms are tried.
fn links<'a>(raw: &'a str, segments: &[Cow<'a, str>], kind: &str) -> Vec<Cow<'a, str>> {
    let names_owner = segments.len() % 2 == 1 && kind != ADMIN;
    // An operation on a container is signed as the container.
    let beyond = if kind == PARTITION_KEY { 2 } else { usize::from(names_owner) };
    let count = segments.len() - beyond;
    let as_sent = (0..beyond).fold(raw, |raw, _| raw.rsplit_once('/').map_or("", |(owner, _)| owner));
    let mut links = Vec::with_capacity(3);
    if raw.contains('%') {
        let meant = segments[..count].join("/");
        if meant != as_sent {
            links.push(Cow::Owned(meant));
        }
    }
    links.push(Cow::Borrowed(as_sent));
    let is_offer = segments.first().is_some_and(|first| first == "offers");
    if (is_offer || segments.get(1).is_some_and(|database| ResourceId::try_parse(database).is_some()))
        && let Some(rid) = segments.get(count.wrapping_sub(1))
    {
        links.push(Cow::Owned(rid.to_ascii_lowercase()));
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(path: &str) -> Target<'_> {
        Path::parse(path).unwrap().target
    }

    fn s(text: &str) -> Cow<'_, str> {
        Cow::Borrowed(text)
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
        let deletion = target_of("/dbs/a/colls/b/operations/partitionkeydelete/");
        assert_eq!(deletion, Target::PartitionKeyDelete(s("a"), s("b")));
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
        assert_eq!(target_of("/dbs/a/colls/b/docs/c%3Fd%0A"), Target::Item(s("a"), s("b"), s("c?d\n")));
        for path in ["/dbs/..%2f..", "/dbs/a%5cb", "/dbs/%ff", "/dbs/%c0%af", "/dbs//colls", "/dbs/a%23"] {
            assert_eq!(Path::parse(path), Err(BadPath::BadSegment), "{path}");
        }
        assert_eq!(Path::parse(&"/a".repeat(5000)), Err(BadPath::TooLong));
        assert_eq!(target_of("/dbs/.."), Target::Database(s("..")), "an id is never a file name");
    }

    #[test]
    fn links_are_those_of_the_owner_of_a_feed_and_of_a_resource_itself() {
        let links = |path: &'static str| Path::parse(path).unwrap().links;
        assert_eq!(links("/dbs/db1/colls/c1/docs"), ["dbs/db1/colls/c1"]);
        assert_eq!(links("/dbs/db1/colls/c1/docs/A%20b"), ["dbs/db1/colls/c1/docs/A b", "dbs/db1/colls/c1/docs/A%20b"]);
        assert_eq!(links("/dbs/db1/colls/c1/operations/partitionkeydelete"), ["dbs/db1/colls/c1"]);
        assert_eq!(links("/offers"), ["", ""][..1]);
        assert_eq!(links("/offers/AbC="), ["offers/AbC=", "abc="]);
        assert_eq!(links("/dbs/ADyiAA==/colls/ADyiAIABAAE=/pkranges").last().unwrap(), "adyiaiabaae=");
    }
}
