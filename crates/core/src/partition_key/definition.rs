//! How a container partitions its items: the paths of the key, and the rule that turns a key into its place.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct};

use super::{PartitionKey, PartitionKeyValue, hashing, path::KeyPath};
use crate::{
    epk::Epk,
    error::{Error, ErrorKind, Result},
    range::FeedRange,
};

/// Whether a key has one level or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PartitionKeyKind {
    /// One path, one hash.
    #[default]
    Hash,
    /// Hierarchical: up to three paths, one hash after the other, so that a prefix of the key is a range.
    MultiHash,
}

/// Which hash places the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionKeyVersion {
    /// 32 bits, strings cut after 100 UTF-16 units: containers created by old SDKs.
    V1,
    /// 128 bits, strings whole.
    V2,
}

/// The partition key definition of a container.
///
/// The JSON form is that of Cosmos DB: `{"paths":["/pk"],"kind":"Hash","version":2}`. When read, `kind` defaults to
/// `Hash`, `version` to 1, and other members are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKeyDefinition {
    paths: Vec<KeyPath>,
    kind: PartitionKeyKind,
    version: PartitionKeyVersion,
}

impl PartitionKeyDefinition {
    /// Creates a definition with one path such as `/tenant/id`, version 2: what new containers should use. A name with
    /// unusual characters is written in quotes: `/"a/b"`.
    pub fn hash(path: &str) -> Result<Self> {
        Self::new([path], PartitionKeyKind::Hash, PartitionKeyVersion::V2)
    }

    /// Creates the definition `/id`, version 2: every item is a partition of its own.
    pub fn id() -> Self {
        Self { paths: vec![KeyPath::id()], kind: PartitionKeyKind::Hash, version: PartitionKeyVersion::V2 }
    }

    /// Creates a definition with one path, version 1: for compatibility with containers created by old SDKs.
    pub fn hash_v1(path: &str) -> Result<Self> {
        Self::new([path], PartitionKeyKind::Hash, PartitionKeyVersion::V1)
    }

    /// Creates a definition with one to three paths, outermost level first.
    pub fn hierarchical(paths: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        Self::new(paths, PartitionKeyKind::MultiHash, PartitionKeyVersion::V2)
    }

    /// Returns the paths as they were written.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.paths.iter().map(KeyPath::as_str)
    }

    /// Returns whether a key has one level or several.
    pub fn kind(&self) -> PartitionKeyKind {
        self.kind
    }

    /// Returns which hash places the keys.
    pub fn version(&self) -> PartitionKeyVersion {
        self.version
    }

    /// Returns the place of a complete key. Refuses a key whose number of values is not that of the paths;
    /// [`PartitionKey::none`] counts as one undefined value.
    pub fn epk(&self, key: &PartitionKey) -> Result<Epk> {
        let values = one_if_none(key);
        if values.len() != self.paths.len() {
            return Err(self.wrong_count(key));
        }
        Ok(self.place(values))
    }

    /// Returns the range that holds exactly this key, or all keys that begin with it if the definition is hierarchical
    /// and the key is a prefix.
    pub fn key_range(&self, key: &PartitionKey) -> Result<FeedRange> {
        let values = one_if_none(key);
        let is_prefix = values.len() < self.paths.len() && !key.values().is_empty();
        if values.len() != self.paths.len() && !is_prefix {
            return Err(self.wrong_count(key));
        }
        let min = self.place(values);
        // Hashes stay below 40, so FF is behind all further levels.
        let max = if is_prefix { min.followed_by(0xFF) } else { min.successor() };
        FeedRange::new(min, max)
    }

    pub(super) fn new(
        paths: impl IntoIterator<Item = impl AsRef<str>>,
        kind: PartitionKeyKind,
        version: PartitionKeyVersion,
    ) -> Result<Self> {
        let bad = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        let paths: Vec<KeyPath> = paths.into_iter().map(|path| KeyPath::parse(path.as_ref())).collect::<Result<_>>()?;
        match (kind, paths.len()) {
            (PartitionKeyKind::Hash, 1) | (PartitionKeyKind::MultiHash, 1..=PartitionKey::MAX_VALUES) => {}
            (PartitionKeyKind::Hash, count) => {
                return bad(format!(
                    "a partition key of kind Hash has one path, not {count}; use MultiHash for several"
                ));
            }
            (PartitionKeyKind::MultiHash, count) => {
                return bad(format!("a hierarchical partition key has 1 to 3 paths, not {count}"));
            }
        }
        if kind == PartitionKeyKind::MultiHash && version != PartitionKeyVersion::V2 {
            return bad("a partition key of kind MultiHash needs version 2".to_owned());
        }
        for (index, path) in paths.iter().enumerate() {
            if paths.iter().take(index).any(|other| other.is_same_member(path)) {
                return bad(format!("partition key path {} occurs twice", path.as_str()));
            }
        }
        Ok(Self { paths, kind, version })
    }

    pub(super) fn key_paths(&self) -> &[KeyPath] {
        &self.paths
    }

    fn place(&self, values: &[PartitionKeyValue]) -> Epk {
        match (self.version, values) {
            (PartitionKeyVersion::V1, values) => {
                Epk::from_bytes(&values.iter().flat_map(hashing::version1).collect::<Vec<u8>>())
            }
            (PartitionKeyVersion::V2, [value]) => Epk::from_bytes(&hashing::version2(value)),
            (PartitionKeyVersion::V2, values) => {
                Epk::from_bytes(values.iter().map(hashing::version2).collect::<Vec<_>>().as_flattened())
            }
        }
    }

    fn wrong_count(&self, key: &PartitionKey) -> Error {
        let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        Error::new(
            ErrorKind::WrongPartitionKey,
            format!(
                "the partition key has {}, the container has {} ({})",
                plural(key.values().len(), "value"),
                plural(self.paths.len(), "partition key path"),
                self.paths().collect::<Vec<_>>().join(", ")
            ),
        )
    }
}

impl fmt::Display for PartitionKeyDefinition {
    /// The paths, and the version if it is the old one: `/pk`, `/tenant, /user`, `/pk (version 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(path)?;
        }
        match self.version {
            PartitionKeyVersion::V1 => f.write_str(" (version 1)"),
            PartitionKeyVersion::V2 => Ok(()),
        }
    }
}

fn one_if_none(key: &PartitionKey) -> &[PartitionKeyValue] {
    match key.values() {
        [] => &[PartitionKeyValue::Undefined],
        values => values,
    }
}

impl Serialize for PartitionKeyVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(match self {
            Self::V1 => 1,
            Self::V2 => 2,
        })
    }
}

impl<'de> Deserialize<'de> for PartitionKeyVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Some clients write the name instead of the number.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Name(String),
        }
        let written = match Written::deserialize(deserializer)? {
            Written::Number(number) => number.to_string(),
            Written::Name(name) => name,
        };
        match written.trim_start_matches(['V', 'v']) {
            "1" => Ok(Self::V1),
            "2" => Ok(Self::V2),
            other => Err(de::Error::custom(format!("partition key version {other} is neither 1 nor 2"))),
        }
    }
}

impl Serialize for PartitionKeyDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("PartitionKeyDefinition", 3)?;
        object.serialize_field("paths", &self.paths().collect::<Vec<_>>())?;
        object.serialize_field("kind", &self.kind)?;
        object.serialize_field("version", &self.version)?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for PartitionKeyDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            paths: Vec<String>,
            #[serde(default)]
            kind: PartitionKeyKind,
            version: Option<PartitionKeyVersion>,
        }
        let Wire { paths, kind, version } = Wire::deserialize(deserializer)?;
        Self::new(paths, kind, version.unwrap_or(PartitionKeyVersion::V1)).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchical(paths: &[&str]) -> PartitionKeyDefinition {
        PartitionKeyDefinition::hierarchical(paths).unwrap()
    }

    #[test]
    fn a_version_is_a_number_or_its_name() {
        let version = |text: &str| serde_json::from_str::<PartitionKeyVersion>(text);
        for (text, wanted) in [("1", PartitionKeyVersion::V1), ("2", PartitionKeyVersion::V2)] {
            assert_eq!(version(text).unwrap(), wanted);
            assert_eq!(version(&format!("\"V{text}\"")).unwrap(), wanted);
            assert_eq!(version(&format!("\"v{text}\"")).unwrap(), wanted);
        }
        for bad in ["3", "\"\"", "\"two\"", "null", "-1", "1.5"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_definition_has_the_json_form_of_cosmos() {
        for (definition, json) in [
            (PartitionKeyDefinition::hash("/pk").unwrap(), r#"{"paths":["/pk"],"kind":"Hash","version":2}"#),
            (PartitionKeyDefinition::id(), r#"{"paths":["/id"],"kind":"Hash","version":2}"#),
            (PartitionKeyDefinition::hash_v1("/a/b").unwrap(), r#"{"paths":["/a/b"],"kind":"Hash","version":1}"#),
            (hierarchical(&["/t", "/u"]), r#"{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#),
        ] {
            assert_eq!(serde_json::to_string(&definition).unwrap(), json);
            assert_eq!(serde_json::from_str::<PartitionKeyDefinition>(json).unwrap(), definition);
        }
    }

    #[test]
    fn a_definition_is_shown_by_its_paths() {
        assert_eq!(PartitionKeyDefinition::hash_v1("/pk").unwrap().to_string(), "/pk (version 1)");
        assert_eq!(hierarchical(&["/t", "/u"]).to_string(), "/t, /u");
    }

    #[test]
    fn what_a_json_definition_leaves_out_is_hash_and_version_1() {
        let read: PartitionKeyDefinition = serde_json::from_str(r#"{"paths":["/pk"],"systemKey":true}"#).unwrap();
        assert_eq!(read, PartitionKeyDefinition::hash_v1("/pk").unwrap());
        assert_eq!((read.kind(), read.version()), (PartitionKeyKind::Hash, PartitionKeyVersion::V1));
        assert_eq!(read.paths().collect::<Vec<_>>(), ["/pk"]);
    }

    #[test]
    fn a_definition_that_makes_no_sense_is_refused() {
        for (json, message) in [
            (r#"{"paths":[]}"#, "a partition key of kind Hash has one path, not 0; use MultiHash for several"),
            (
                r#"{"paths":["/a","/b"],"version":2}"#,
                "a partition key of kind Hash has one path, not 2; use MultiHash for several",
            ),
            (
                r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#,
                "a hierarchical partition key has 1 to 3 paths, not 4",
            ),
            (r#"{"paths":["/a","/b"],"kind":"MultiHash"}"#, "a partition key of kind MultiHash needs version 2"),
            (r#"{"paths":["/a","/\"a\""],"kind":"MultiHash","version":2}"#, "partition key path /\"a\" occurs twice"),
            (r#"{"paths":["a"]}"#, "partition key path \"a\" does not start with /"),
            (r#"{"paths":["/a"],"version":3}"#, "partition key version 3 is neither 1 nor 2"),
            (r#"{"paths":["/a"],"kind":"Range"}"#, "unknown variant `Range`"),
            (r#"{"kind":"Hash"}"#, "missing field `paths`"),
        ] {
            let error = serde_json::from_str::<PartitionKeyDefinition>(json).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(PartitionKeyDefinition::hash("pk").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_hierarchical_key_is_one_hash_after_the_other() {
        let two = hierarchical(&["/t", "/u"]);
        assert_eq!(
            two.epk(&("T", "U").into()).unwrap().to_string(),
            "017A5127EDEAEAFD8E3C9E8C0081CB34179BE6732892B835A99D02FFA3F050F5"
        );
        let three = hierarchical(&["/t", "/u", "/v"]);
        assert_eq!(
            three.epk(&("a", 1, true).into()).unwrap().to_string(),
            "3A5381E1114EB8D3FCC90795045B49B720CD98B339BA78A5D0CF6953B87070B00E711127C5B5A8E4726AC6DD306A3E59"
        );
    }

    #[test]
    fn a_key_range_holds_its_key_and_no_other() {
        for definition in
            [PartitionKeyDefinition::hash("/pk").unwrap(), PartitionKeyDefinition::hash_v1("/pk").unwrap()]
        {
            let keys: Vec<PartitionKey> =
                (0..400).map(PartitionKey::from).chain((0..400).map(|n| n.to_string().into())).collect();
            let mut ranges = Vec::new();
            for key in &keys {
                let range = definition.key_range(key).unwrap();
                assert!(range.contains(&definition.epk(key).unwrap()));
                ranges.push(range);
            }
            ranges.sort();
            assert!(ranges.windows(2).all(|pair| !pair[0].overlaps(&pair[1])));
        }
    }

    #[test]
    fn a_prefix_covers_all_its_keys() {
        let definition = hierarchical(&["/t", "/u", "/v"]);
        let tenant = definition.key_range(&"T".into()).unwrap();
        assert_eq!(tenant.to_string(), "017A5127EDEAEAFD8E3C9E8C0081CB34-017A5127EDEAEAFD8E3C9E8C0081CB34FF");
        for n in 0..200 {
            let user = definition.key_range(&("T", n).into()).unwrap();
            let full = PartitionKey::from(("T", n, "x"));
            assert!(tenant.contains_range(&user));
            assert!(user.contains_range(&definition.key_range(&full).unwrap()));
            assert!(user.contains(&definition.epk(&full).unwrap()));
            assert!(!user.contains(&definition.epk(&("T", n + 1, "x").into()).unwrap()));
            assert!(!tenant.contains(&definition.epk(&("U", n, "x").into()).unwrap()));
        }
    }

    #[test]
    fn a_key_with_the_wrong_number_of_values_is_refused() {
        let (one, two) = (PartitionKeyDefinition::hash("/pk").unwrap(), hierarchical(&["/t", "/u"]));
        let error = one.epk(&("a", "b").into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongPartitionKey);
        assert_eq!(error.message(), "the partition key has 2 values, the container has 1 partition key path (/pk)");
        let error = two.epk(&"a".into()).unwrap_err();
        assert_eq!(error.message(), "the partition key has 1 value, the container has 2 partition key paths (/t, /u)");
        assert!(one.key_range(&("a", "b").into()).is_err());
        assert!(two.key_range(&("a", "b", "c").into()).is_err());
        assert!(two.epk(&PartitionKey::none()).is_err() && two.key_range(&PartitionKey::none()).is_err());
    }

    #[test]
    fn none_is_placed_like_undefined() {
        for definition in
            [PartitionKeyDefinition::hash("/pk").unwrap(), PartitionKeyDefinition::hash_v1("/pk").unwrap()]
        {
            let (none, undefined) = (PartitionKey::none(), PartitionKey::undefined());
            assert_eq!(definition.epk(&none).unwrap(), definition.epk(&undefined).unwrap());
            assert_eq!(definition.key_range(&none).unwrap(), definition.key_range(&undefined).unwrap());
        }
    }
}
