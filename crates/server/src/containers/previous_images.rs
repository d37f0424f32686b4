//! Previous images in all-versions mode: off unless a container or the account asks for them, as in Cosmos DB.

use changefeed_core::Operation;
use serde_json::Value;

use crate::error::{ApiError, ApiResult};

/// The member of a container that asks for previous images.
pub(crate) const PREVIOUS_IMAGE_POLICY: &str = "previousImageRetentionPolicy";

/// The operations whose changes carry the previous version of the item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreviousImages {
    replaces: bool,
    deletes: bool,
}

impl PreviousImages {
    pub(crate) const ALL: Self = Self { replaces: true, deletes: true };

    /// Parses the policy of a container; none if it has no policy.
    ///
    /// # Errors
    /// 400 if the policy is not valid.
    pub(crate) fn parse(policy: Option<&Value>) -> ApiResult<Option<Self>> {
        let Some(policy) = policy.filter(|policy| !policy.is_null()) else { return Ok(None) };
        let feature = policy.pointer("/supportedFeatures/allVersionsAndDeletes").unwrap_or(policy);
        let mode = feature.get("mode").unwrap_or(feature);
        let flags = match (mode.as_u64(), mode.as_str()) {
            (Some(flags @ 0..=3), _) => flags,
            (_, Some("Disabled")) => 0,
            (_, Some("EnabledForReplaceOperations")) => 1,
            (_, Some("EnabledForDeleteOperations")) => 2,
            (_, Some("EnabledForAllOperations")) => 3,
            _ => {
                return Err(ApiError::bad_request(
                    "a previousImageRetentionPolicy is {\"supportedFeatures\":{\"allVersionsAndDeletes\":{\"mode\":3}}}, \
                     with mode 0 for none, 1 for replaces, 2 for deletes, 3 for both",
                ));
            }
        };
        Ok(Some(Self { replaces: flags & 1 != 0, deletes: flags & 2 != 0 }))
    }

    /// Returns `true` if changes by `operation` carry the previous image.
    pub(crate) fn include(self, operation: Operation) -> bool {
        match operation {
            Operation::Replace => self.replaces,
            Operation::Delete | Operation::Expire => self.deletes,
            Operation::Write | Operation::Create => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_names_replaces_deletes_or_both() {
        let of = |policy: Value| PreviousImages::parse(Some(&policy)).unwrap().unwrap();
        let nested = |mode: Value| json!({ "supportedFeatures": { "allVersionsAndDeletes": { "mode": mode } } });
        assert_eq!(of(nested(json!(0))), PreviousImages::default());
        assert_eq!(of(nested(json!(1))), PreviousImages { replaces: true, deletes: false });
        assert_eq!(of(nested(json!("EnabledForDeleteOperations"))), PreviousImages { replaces: false, deletes: true });
        assert_eq!(of(json!(3)), PreviousImages::ALL);
        assert_eq!(PreviousImages::parse(None).unwrap(), None);
        for bad in [nested(json!(4)), json!({}), json!("yes"), json!([])] {
            assert!(PreviousImages::parse(Some(&bad)).is_err(), "{bad}");
        }
    }
}
