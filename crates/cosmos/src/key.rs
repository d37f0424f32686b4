//! Partition keys and feed ranges in the types of the SDK.

use azure_data_cosmos::{
    PartitionKey as SdkKey,
    feed::FeedRange as SdkRange,
    models::{
        EffectivePartitionKey, PartitionKeyDefinition as SdkDefinition, PartitionKeyKind as SdkKind,
        PartitionKeyValue as SdkValue, PartitionKeyVersion as SdkVersion,
    },
};
use changefeed_core::{
    Error, ErrorKind, FeedRange, PartitionKey, PartitionKeyDefinition, PartitionKeyKind, PartitionKeyValue,
    PartitionKeyVersion, Result,
};

use crate::error::refused;

/// The key as the SDK takes it.
pub(crate) fn to_sdk(key: &PartitionKey) -> Result<SdkKey> {
    let values = key.clone().or_undefined().values().iter().map(value).collect::<Result<Vec<_>>>()?;
    SdkKey::try_from(values).map_err(|error| refused(ErrorKind::WrongPartitionKey, "partition key", error))
}

fn value(value: &PartitionKeyValue) -> Result<SdkValue> {
    Ok(match value {
        PartitionKeyValue::Undefined => SdkValue::UNDEFINED,
        PartitionKeyValue::Null => SdkValue::NULL,
        PartitionKeyValue::Bool(value) => (*value).into(),
        PartitionKeyValue::Number(number) => SdkValue::try_from(number.get())
            .map_err(|error| refused(ErrorKind::WrongPartitionKey, "partition key", error))?,
        PartitionKeyValue::String(text) => text.clone().into(),
    })
}

/// The definition of a container's key.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for kinds that this library does not know.
pub(crate) fn definition(sdk: &SdkDefinition) -> Result<PartitionKeyDefinition> {
    match (sdk.kind(), sdk.version(), sdk.paths()) {
        (SdkKind::Hash, SdkVersion::V1, [path]) => PartitionKeyDefinition::hash_v1(path),
        (SdkKind::Hash, SdkVersion::V2, [path]) => PartitionKeyDefinition::hash(path),
        (SdkKind::MultiHash, _, paths) => PartitionKeyDefinition::hierarchical(paths),
        (kind, version, paths) => {
            let message = format!("a partition key of kind {kind:?}, version {version:?} and paths {paths:?}");
            Err(Error::new(ErrorKind::Unsupported, format!("{message} is not supported: use a hash partition key")))
        }
    }
}

/// The definition as the SDK takes it.
pub(crate) fn definition_to_sdk(definition: &PartitionKeyDefinition) -> SdkDefinition {
    let paths = definition.paths().map(|path| path.to_owned().into()).collect();
    let version = match definition.version() {
        PartitionKeyVersion::V1 => SdkVersion::V1,
        PartitionKeyVersion::V2 => SdkVersion::V2,
    };
    let kind = match definition.kind() {
        PartitionKeyKind::Hash => SdkKind::Hash,
        PartitionKeyKind::MultiHash => SdkKind::MultiHash,
    };
    SdkDefinition::new(paths).with_kind(kind).with_version(version)
}

/// The range as the SDK takes it.
pub(crate) fn range_to_sdk(range: &FeedRange) -> Result<SdkRange> {
    let bound = |text: String| {
        EffectivePartitionKey::try_from(text).map_err(|error| refused(ErrorKind::BadRange, "feed range", error))
    };
    let (min, max) = (bound(range.min_inclusive().to_string())?, bound(range.max_exclusive().to_string())?);
    SdkRange::new(min, max).map_err(|error| refused(ErrorKind::BadRange, "feed range", error))
}

/// The range in the words of this library.
pub(crate) fn range(sdk: &SdkRange) -> Result<FeedRange> {
    FeedRange::new(sdk.min_inclusive().to_hex().parse()?, sdk.max_exclusive().to_hex().parse()?)
}
