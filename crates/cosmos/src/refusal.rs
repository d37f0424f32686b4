//! Why the service refuses to read all versions and deletes, out of the text of its answer.

use azure_data_cosmos::models::ContainerProperties;
use changefeed_core::{Error, ErrorKind};

use crate::{
    container::CosmosContainer,
    error::{Call, source_text},
};

/// Why the service refuses to read all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    KeepsNoVersions,
    /// Versions after the position have left the retention.
    Expired,
    /// The text does not tell: the position may be bad, or the request.
    Unexplained,
}

impl Refusal {
    /// What an answer with this text means; none if it is not about the request.
    fn of(kind: ErrorKind, text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        let says = |words: &str| text.contains(words);
        match kind {
            ErrorKind::BadContinuation | ErrorKind::InvalidArgument => {}
            _ => return None,
        }
        // The first is the text of the service, the second that of `changefeed serve`.
        if says("must be enabled") || says("keeps no versions") {
            return Some(Self::KeepsNoVersions);
        }
        let is_expired = kind == ErrorKind::BadContinuation && (says("retention") || says("expired"));
        Some(if is_expired { Self::Expired } else { Self::Unexplained })
    }
}

impl CosmosContainer {
    /// Finds out why all-versions mode was refused: the answers to a container that keeps no versions, to a position that
    /// has left the retention and to a bad position have the same status. The text of the answer decides. The settings of
    /// the container do not: an account with continuous backup keeps versions, and its containers have no retention.
    pub(crate) async fn explain_refusal(&self, error: Error) -> Error {
        let name = format!("{}/{}", self.identity.database_name, self.identity.container_name);
        match Refusal::of(error.kind(), &source_text(&error)) {
            None => error,
            Some(Refusal::KeepsNoVersions) => {
                let message = format!("container {name} keeps no versions: turn on all versions and deletes for it");
                Error::new(ErrorKind::Unsupported, message).with_source(error)
            }
            Some(Refusal::Expired) => {
                let message = format!("changes after this continuation have left the retention of {name}: start again");
                Error::new(ErrorKind::ContinuationExpired, message).with_source(error)
            }
            Some(Refusal::Unexplained) => {
                let reading = async { self.sdk().read(None).await?.into_model() };
                let read = self.call(Call::Container, "read the settings of", &self.budgets.items, reading).await;
                let retention = |read: ContainerProperties| read.change_feed_policy?.retention_duration();
                if !read.is_ok_and(|read| retention(read).is_none()) {
                    return error;
                }
                let message = format!(
                    "{}; container {name} has no retention of its own: if the account has no continuous backup, turn on \
                     all versions and deletes",
                    error.message()
                );
                Error::new(error.kind(), message).with_request_charge(error.request_charge()).with_source(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_refusal_tells_why_all_versions_cannot_be_read() {
        use ErrorKind::{BadContinuation, InvalidArgument, Throttled};
        let table = [
            (
                InvalidArgument,
                "'All Versions and Deletes' mode must be enabled. Refer to",
                Some(Refusal::KeepsNoVersions),
            ),
            (
                BadContinuation,
                "'All Versions and Deletes' mode must be enabled. Refer to",
                Some(Refusal::KeepsNoVersions),
            ),
            (
                BadContinuation,
                "orders keeps no versions: set its all-versions retention",
                Some(Refusal::KeepsNoVersions),
            ),
            (BadContinuation, "the position is older than the Retention window", Some(Refusal::Expired)),
            (BadContinuation, "the continuation has expired", Some(Refusal::Expired)),
            (InvalidArgument, "the retention is not valid", Some(Refusal::Unexplained)),
            (BadContinuation, "the input is not valid", Some(Refusal::Unexplained)),
            (Throttled, "the retention is long", None),
        ];
        for (kind, text, expected) in table {
            assert_eq!(Refusal::of(kind, text), expected, "{kind:?} {text}");
        }
    }
}
