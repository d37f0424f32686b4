//! Bookmarks: where a reader of the pull model stands, as text.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use changefeed_core::{
    Continuation, Error, ErrorKind, FeedRange, Mode, ResourceId, Result, StartFrom, StoreId, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::range_position::RangePosition;

/// What a text without a store id begins with: read, never written for a store that has an id.
const VERSION_1: &str = "cf1.";

/// What a text with a store id begins with.
const VERSION_2: &str = "cf2.";

/// The position of a [`Pull`](super::Pull): print it, store it, resume from it, also after splits and merges.
///
/// The text is `cf2.` and base64 (for URLs, without padding) of JSON: the store id, the container's resource id, the
/// mode, and a position for each feed range. Texts of the version before, `cf1.`, have no store id and are still read.
/// A bookmark holds no data and no credentials.
///
/// ```
/// use changefeed::{Bookmark, Pull, core::{Container, Result, StartFrom}};
///
/// # async fn example(orders: &Container) -> Result<()> {
/// let mut pull = Pull::container(orders, StartFrom::Beginning);
/// let page = pull.next_page().await?;
/// println!("{} changes", page.changes.len());
/// let text = pull.bookmark().to_string(); // to be kept, for example in a file
///
/// let bookmark: Bookmark = text.parse()?;
/// let next = Pull::resume(orders, &bookmark)?.next_page().await?; // begins after the first page
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Bookmark {
    store: Option<StoreId>,
    container: ResourceId,
    mode: Mode,
    positions: Vec<RangePosition>,
}

impl Bookmark {
    pub(super) fn new(store: StoreId, container: ResourceId, mode: Mode, positions: Vec<RangePosition>) -> Self {
        Self { store: Some(store), container, mode, positions }
    }

    /// Returns the store that it belongs to; `None` if it was made by a version that did not write it.
    pub fn store(&self) -> Option<&StoreId> {
        self.store.as_ref()
    }

    /// Returns the container that it belongs to.
    pub fn container(&self) -> &ResourceId {
        &self.container
    }

    /// Returns the mode it was made in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the keys that it covers, from the first to the last; `None` if it covers none.
    pub fn range(&self) -> Option<FeedRange> {
        let ranges = || self.positions.iter().map(|position| &position.range);
        let first = ranges().map(FeedRange::min_inclusive).min()?;
        let last = ranges().map(FeedRange::max_exclusive).max()?;
        FeedRange::new(first.clone(), last.clone()).ok()
    }

    pub(super) fn positions(&self) -> &[RangePosition] {
        &self.positions
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<StoreId>,
    container: String,
    mode: WireMode,
    ranges: Vec<(String, WireStart)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireMode {
    Latest,
    All,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireStart {
    Beginning,
    Now,
    Time(u64),
    After(String),
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |position: &RangePosition| {
            let start = match &position.start {
                StartFrom::Beginning => WireStart::Beginning,
                StartFrom::Now => WireStart::Now,
                StartFrom::Time(moment) => WireStart::Time(moment.as_millis()),
                StartFrom::Continuation(continuation) => WireStart::After(continuation.token().to_owned()),
            };
            (position.range.to_string(), start)
        };
        let wire = Wire {
            store: self.store.clone(),
            container: self.container.to_string(),
            mode: if self.mode == Mode::AllVersions { WireMode::All } else { WireMode::Latest },
            ranges: self.positions.iter().map(range).collect(),
        };
        let json = serde_json::to_vec(&wire).map_err(|_| fmt::Error)?;
        let version = if self.store.is_some() { VERSION_2 } else { VERSION_1 };
        write!(f, "{version}{}", URL_SAFE_NO_PAD.encode(&json))
    }
}

impl fmt::Debug for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bookmark({} {:?} {:?})", self.container, self.mode, self.positions)
    }
}

impl FromStr for Bookmark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let Some(coded) = text.strip_prefix(VERSION_1).or_else(|| text.strip_prefix(VERSION_2)) else {
            return Err(refuse(match text.strip_prefix("cf").and_then(|rest| rest.split_once('.')) {
                Some((version, _)) if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) => {
                    format!("bookmark version {version} is not known here: update this program")
                }
                _ => format!("this is not a bookmark: one begins with {VERSION_2}"),
            }));
        };
        let damaged = || refuse("the bookmark is damaged: copy it again, all of it".to_owned());
        let json = URL_SAFE_NO_PAD.decode(coded).map_err(|error| damaged().with_source(error))?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|error| damaged().with_source(error))?;
        if wire.store.is_some() != text.starts_with(VERSION_2) {
            return Err(damaged());
        }
        let position = |(range, start): (String, WireStart)| {
            let start = match start {
                WireStart::Beginning => StartFrom::Beginning,
                WireStart::Now => StartFrom::Now,
                WireStart::Time(millis) => StartFrom::Time(Timestamp::from_millis(millis)),
                WireStart::After(token) => Continuation::from_token(token).into(),
            };
            Ok(RangePosition { range: range.parse()?, start })
        };
        let positions: Result<Vec<RangePosition>> = wire.ranges.into_iter().map(position).collect();
        let positions = positions.map_err(|error| damaged().with_source(error))?;
        let sorted = positions.is_sorted_by(|a, b| a.range.max_exclusive() <= b.range.min_inclusive());
        if positions.is_empty() || !sorted {
            return Err(damaged());
        }
        let container = wire.container.parse().map_err(|error: Error| damaged().with_source(error))?;
        let mode = match wire.mode {
            WireMode::Latest => Mode::LatestVersion,
            WireMode::All => Mode::AllVersions,
        };
        Ok(Self { store: wire.store, container, mode, positions })
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::BadContinuation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bookmark() -> Bookmark {
        let position = |range: &str, start| RangePosition { range: range.parse().unwrap(), start };
        let positions = vec![
            position("-10", StartFrom::Beginning),
            position("10-20", StartFrom::Time(Timestamp::from_millis(1_767_225_600_123))),
            position("20-30", Continuation::from_token("\"14\"").into()),
            position("30-FF", StartFrom::Now),
        ];
        Bookmark::new(StoreId::from_bits(7), ResourceId::container(1, 2), Mode::AllVersions, positions)
    }

    #[test]
    fn a_bookmark_comes_back_from_its_text() {
        let text = bookmark().to_string();
        assert!(text.starts_with("cf2.") && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert_eq!(text.parse::<Bookmark>().unwrap(), bookmark());
        assert_eq!(format!(" {text}\n").parse::<Bookmark>().unwrap(), bookmark());
    }

    #[test]
    fn garbage_is_refused_with_a_sentence() {
        let coded = |json: &str| format!("cf1.{}", URL_SAFE_NO_PAD.encode(json));
        let good = bookmark().to_string();
        for (text, message) in [
            ("", "this is not a bookmark: one begins with cf2."),
            ("\"14\"", "this is not a bookmark: one begins with cf2."),
            ("cf.", "this is not a bookmark: one begins with cf2."),
            ("cf3.AAAA", "bookmark version 3 is not known here: update this program"),
            ("cf1.", "the bookmark is damaged: copy it again, all of it"),
            ("cf1.é", "the bookmark is damaged: copy it again, all of it"),
            (&good[..good.len() - 1], "the bookmark is damaged: copy it again, all of it"),
            (&good[..20], "the bookmark is damaged: copy it again, all of it"),
            (&coded("{}"), "the bookmark is damaged: copy it again, all of it"),
            (
                &coded(r#"{"container":"AQAAAAIAAIA=","mode":"latest","ranges":[]}"#),
                "the bookmark is damaged: copy it again, all of it",
            ),
            (
                &coded(r#"{"container":"x","mode":"latest","ranges":[["-FF","now"]]}"#),
                "the bookmark is damaged: copy it again, all of it",
            ),
        ] {
            let error = text.parse::<Bookmark>().unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::BadContinuation, message), "{text}");
        }
    }

    #[test]
    fn a_bookmark_of_the_version_before_comes_back_as_it_was() {
        // Printed by the code of a92fe1f, after a page of one of two ranges.
        let text = "cf1.eyJjb250YWluZXIiOiJBQUFBQVlBQUFBST0iLCJtb2RlIjoibGF0ZXN0IiwicmFuZ2VzIjpbWyItMUZGRkZGRk\
                    ZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkYiLHsiYWZ0ZXIiOiJcIjZcIiJ9XSxbIjFGRkZGRkZGRkZGRkZGRkZGRkZG\
                    RkZGRkZGRkZGRkZGLUZGIiwiYmVnaW5uaW5nIl1dfQ";
        let old: Bookmark = text.parse().unwrap();
        assert_eq!(
            (old.store(), old.container(), old.mode()),
            (None, &ResourceId::container(1, 2), Mode::LatestVersion)
        );
        let starts: Vec<_> = old.positions().iter().map(|position| position.start.clone()).collect();
        assert_eq!(starts, [Continuation::from_token("\"6\"").into(), StartFrom::Beginning]);
        assert_eq!(old.to_string(), text);
    }

    #[test]
    fn a_text_is_of_the_version_that_it_says() {
        let text = bookmark().to_string();
        let old = text.replace("cf2.", "cf1.");
        assert_eq!(old.parse::<Bookmark>().unwrap_err().kind(), ErrorKind::BadContinuation);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        let container = ResourceId::container(1, 2);
        let json = format!(r#"{{"container":"{container}","mode":"latest","ranges":[["-20","now"],["10-FF","now"]]}}"#);
        let text = format!("cf1.{}", URL_SAFE_NO_PAD.encode(json));
        assert_eq!(text.parse::<Bookmark>().unwrap_err().kind(), ErrorKind::BadContinuation);
    }
}
