//! Feed ranges (half-open intervals of effective partition keys) and the physical ranges that tile a container.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    epk::Epk,
    error::{Error, ErrorKind, Result},
};

/// A part of a container's key space: `min` inclusive, `max` exclusive, never empty, inside `""..FF`.
///
/// The text form is `min-max` in hexadecimal (`-05C1DFFFFFFFFC`, `05C1DFFFFFFFFC-FF`), as in the lease tokens of the
/// .NET SDK; the JSON form is `{"Range":{"min":"","max":"FF"}}`. Ranges are ordered by their minimum, then maximum.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedRange {
    min: Epk,
    max: Epk,
}

impl FeedRange {
    /// Creates the range from `min` (inclusive) to `max` (exclusive); refuses an empty or inverted one, and one beyond
    /// `FF`.
    pub fn new(min: Epk, max: Epk) -> Result<Self> {
        let problem = if min == max {
            "is empty"
        } else if min > max {
            "is inverted"
        } else if max > Epk::MAX {
            "reaches beyond FF"
        } else {
            return Ok(Self { min, max });
        };
        Err(Error::new(
            ErrorKind::BadRange,
            format!("range from {:?} to {:?} {problem}", min.to_string(), max.to_string()),
        ))
    }

    /// Returns the whole container: `""..FF`.
    pub fn full() -> Self {
        Self { min: Epk::MIN, max: Epk::MAX }
    }

    /// Returns the smallest key inside.
    // Not `min()`: the method of `Ord` would win on an owned receiver and ask for an argument.
    pub fn min_inclusive(&self) -> &Epk {
        &self.min
    }

    /// Returns the smallest key after the range.
    pub fn max_exclusive(&self) -> &Epk {
        &self.max
    }

    /// Returns `true` if the key lies inside.
    pub fn contains(&self, key: &Epk) -> bool {
        self.min <= *key && *key < self.max
    }

    /// Returns `true` if all of `other` lies inside.
    pub fn contains_range(&self, other: &Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Returns `true` if the two have a key in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.min < other.max && other.min < self.max
    }

    /// Returns the keys that both have in common, if any.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            min: Ord::max(&self.min, &other.min).clone(),
            max: Ord::min(&self.max, &other.max).clone(),
        })
    }

    /// Returns `true` if one ends exactly where the other begins.
    pub fn is_adjacent_to(&self, other: &Self) -> bool {
        self.max == other.min || other.max == self.min
    }

    /// Returns the parts below and from `key`, which must lie strictly inside.
    pub fn split_at(&self, key: &Epk) -> Result<(Self, Self)> {
        if *key <= self.min || *key >= self.max {
            return Err(Error::new(ErrorKind::BadRange, format!("split {self} at {key}, which is not inside")));
        }
        Ok((Self { min: self.min.clone(), max: key.clone() }, Self { min: key.clone(), max: self.max.clone() }))
    }
}

impl fmt::Display for FeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

impl fmt::Debug for FeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeedRange({self})")
    }
}

impl FromStr for FeedRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((min, max)) = text.split_once('-') else {
            return Err(Error::new(
                ErrorKind::BadRange,
                format!("range {text:?} is not of the form min-max, for example -FF"),
            ));
        };
        Self::new(min.parse()?, max.parse()?)
    }
}

#[derive(Serialize, Deserialize)]
struct Wire<B> {
    #[serde(rename = "Range")]
    range: B,
}

#[derive(Serialize)]
struct Bounds<'a> {
    min: &'a Epk,
    max: &'a Epk,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadBounds {
    min: Epk,
    max: Epk,
    #[serde(default = "yes")]
    is_min_inclusive: bool,
    #[serde(default)]
    is_max_inclusive: bool,
}

fn yes() -> bool {
    true
}

impl Serialize for FeedRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire { range: Bounds { min: &self.min, max: &self.max } }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FeedRange {
    /// Also accepts `isMinInclusive` and `isMaxInclusive`, as long as they say what is always the case here.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { range } = Wire::<ReadBounds>::deserialize(deserializer)?;
        if !range.is_min_inclusive || range.is_max_inclusive {
            return Err(de::Error::custom("a feed range has an inclusive min and an exclusive max"));
        }
        Self::new(range.min, range.max).map_err(de::Error::custom)
    }
}

/// The id of a physical range: decimal text such as `0` or `12`; taken as it is, at most 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId(Arc<str>);

impl RangeId {
    /// The most characters an id may have.
    pub const MAX_CHARS: usize = 64;

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for RangeId {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl FromStr for RangeId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let problem = if text.is_empty() {
            "is empty"
        } else if text.chars().count() > Self::MAX_CHARS {
            "is longer than 64 characters"
        } else if text.chars().any(char::is_control) {
            "contains a control character"
        } else {
            return Ok(Self(text.into()));
        };
        Err(Error::new(ErrorKind::BadRange, format!("range id {problem}")))
    }
}

impl fmt::Display for RangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RangeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RangeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A piece of a container that is stored, and splits, on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalRange {
    /// Its id, never used again after a split or merge.
    pub id: RangeId,
    /// The keys it holds.
    pub range: FeedRange,
    /// All ranges it descends from, oldest first.
    pub parents: Vec<RangeId>,
}

/// Checks that the ranges, in any order, cover the whole key space without gap, overlap or repeated id.
pub fn check_tiling(ranges: &[PhysicalRange]) -> Result<()> {
    let bad = |message: String| Err(Error::new(ErrorKind::BadRange, message));
    let mut sorted: Vec<_> = ranges.iter().collect();
    sorted.sort_by(|a, b| a.range.cmp(&b.range));
    let mut end = &Epk::MIN;
    for physical in &sorted {
        let (id, min) = (&physical.id, physical.range.min_inclusive());
        if min > end {
            return bad(format!("gap from {:?} to range {id}, which starts at {min}", end.to_string()));
        }
        if min < end {
            return bad(format!("range {id} starts at {:?}, before its neighbour ends at {end}", min.to_string()));
        }
        end = physical.range.max_exclusive();
    }
    if *end != Epk::MAX {
        return bad(format!("gap from {:?} to the end of the key space at FF", end.to_string()));
    }
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    match sorted.windows(2).find(|pair| pair.first().map(|p| &p.id) == pair.last().map(|p| &p.id)) {
        Some(pair) => bad(format!("two ranges have the id {}", pair.first().map_or("", |p| p.id.as_str()))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> FeedRange {
        text.parse().unwrap()
    }

    fn epk(text: &str) -> Epk {
        text.parse().unwrap()
    }

    fn physical(id: u64, text: &str) -> PhysicalRange {
        PhysicalRange { id: id.into(), range: range(text), parents: vec![] }
    }

    #[test]
    fn a_range_has_the_text_form_of_a_lease_token() {
        for text in ["-FF", "-05C1DFFFFFFFFC", "05C1DFFFFFFFFC-FF"] {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range("-FF"), FeedRange::full());
        assert_eq!(range("05c1-ff"), range("05C1-FF"));
    }

    #[test]
    fn a_range_that_makes_no_sense_is_refused_with_both_bounds() {
        for (text, message) in [
            ("20-20", r#"range from "20" to "20" is empty"#),
            ("-", r#"range from "" to "" is empty"#),
            ("30-20", r#"range from "30" to "20" is inverted"#),
            ("30-FF00", r#"range from "30" to "FF00" reaches beyond FF"#),
            ("FF", r#"range "FF" is not of the form min-max, for example -FF"#),
            ("0-FF", r#"effective partition key "0" has an odd number of hexadecimal digits"#),
            ("00-10-20", r#"effective partition key "10-20" has an odd number of hexadecimal digits"#),
        ] {
            let error = text.parse::<FeedRange>().unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::BadRange, message));
        }
    }

    #[test]
    fn a_range_includes_its_minimum_and_excludes_its_maximum() {
        let r = range("10-20");
        assert!(r.contains(&epk("10")) && r.contains(&epk("1FFF")));
        assert!(!r.contains(&epk("0F")) && !r.contains(&epk("20")));
        assert!(FeedRange::full().contains(&Epk::MIN) && !FeedRange::full().contains(&Epk::MAX));
        assert!(r.contains_range(&r) && r.contains_range(&range("11-1F")) && !r.contains_range(&range("11-21")));
    }

    #[test]
    fn neighbours_touch_but_do_not_overlap() {
        let (a, b, c) = (range("-20"), range("20-30"), range("1F-FF"));
        assert!(a.is_adjacent_to(&b) && b.is_adjacent_to(&a) && !a.overlaps(&b));
        assert_eq!(a.intersection(&b), None);
        assert!(a.overlaps(&c) && c.overlaps(&a) && !a.is_adjacent_to(&c));
        assert_eq!(a.intersection(&c), Some(range("1F-20")));
        assert_eq!(c.intersection(&b), Some(b.clone()));
        assert!(a < c && c < b);
    }

    #[test]
    fn a_range_splits_only_strictly_inside() {
        assert_eq!(range("-20").split_at(&epk("10")).unwrap(), (range("-10"), range("10-20")));
        for outside in ["", "20", "30"] {
            assert_eq!(range("-20").split_at(&epk(outside)).unwrap_err().kind(), ErrorKind::BadRange);
        }
    }

    #[test]
    fn a_range_has_the_json_form_of_the_net_sdk() {
        let json = r#"{"Range":{"min":"","max":"FF"}}"#;
        assert_eq!(serde_json::to_string(&FeedRange::full()).unwrap(), json);
        for accepted in [json, r#"{"Range":{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}}"#] {
            assert_eq!(serde_json::from_str::<FeedRange>(accepted).unwrap(), FeedRange::full());
        }
        for refused in [
            r#"{"Range":{"min":"","max":"FF","isMinInclusive":false}}"#,
            r#"{"Range":{"min":"","max":"FF","isMaxInclusive":true}}"#,
            r#"{"Range":{"min":"FF","max":""}}"#,
            r#"{"Range":{"min":""}}"#,
            r#"{"PKRangeId":"0"}"#,
        ] {
            assert!(serde_json::from_str::<FeedRange>(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_range_id_is_short_printable_text() {
        assert_eq!(RangeId::from(12).as_str(), "12");
        assert_eq!("12".parse::<RangeId>().unwrap(), RangeId::from(12));
        assert!("x".repeat(64).parse::<RangeId>().is_ok());
        for refused in ["", "a\nb", &"x".repeat(65)] {
            assert_eq!(refused.parse::<RangeId>().unwrap_err().kind(), ErrorKind::BadRange);
        }
        assert_eq!(serde_json::to_string(&RangeId::from(3)).unwrap(), r#""3""#);
        assert!(serde_json::from_str::<RangeId>(r#""""#).is_err());
    }

    #[test]
    fn a_tiling_has_no_gap_no_overlap_and_no_repeated_id() {
        assert!(check_tiling(&[physical(0, "-FF")]).is_ok());
        assert!(check_tiling(&[physical(2, "20-FF"), physical(1, "-20")]).is_ok());
        for (ranges, message) in [
            (vec![], r#"gap from "" to the end of the key space at FF"#),
            (vec![physical(0, "10-FF")], r#"gap from "" to range 0, which starts at 10"#),
            (vec![physical(0, "-20")], r#"gap from "20" to the end of the key space at FF"#),
            (vec![physical(0, "-20"), physical(1, "30-FF")], r#"gap from "20" to range 1, which starts at 30"#),
            (
                vec![physical(0, "-20"), physical(1, "10-FF")],
                r#"range 1 starts at "10", before its neighbour ends at 20"#,
            ),
            (
                vec![physical(0, "-FF"), physical(1, "10-20")],
                r#"range 1 starts at "10", before its neighbour ends at FF"#,
            ),
            (vec![physical(0, "-20"), physical(0, "20-FF")], "two ranges have the id 0"),
        ] {
            let error = check_tiling(&ranges).unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::BadRange, message));
        }
    }
}
