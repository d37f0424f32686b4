//! Errors of the SDK in the words of this library: the kind by its remedy, and whether a write may have landed.

use std::{sync::Arc, time::Duration};

use azure_data_cosmos::{CosmosError, diagnostics::DiagnosticsContext};
use changefeed_core::{Error, ErrorKind};

/// What was asked of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A container's settings.
    Container,
    /// A database.
    Database,
    /// The feed ranges.
    Ranges,
    /// A page of the feed from the beginning, now or a time.
    Feed,
    /// A page of the feed from a continuation.
    FeedAfter,
    /// An item.
    Read,
    /// A page of items, from the first or from a continuation.
    List,
    ListAfter,
    /// A create, replace, upsert, delete or batch.
    Write,
}

/// The error of a call; `what` says which, such as `read changes of shop/orders`.
pub(crate) fn failed(call: Call, what: &str, error: CosmosError) -> Error {
    let (status, sub_status) = status_of(&error);
    let kind = kind(call, status, sub_status);
    let attempts = error.diagnostics().map(|diagnostics| Attempts::of(&diagnostics)).unwrap_or_default();
    let is_certain = is_certain(status) || is_refused_here(status, sub_status);
    let may_have_landed = call == Call::Write && !attempts.none_sent && (!is_certain || attempts.ambiguous_before_last);
    // A refusal after an attempt whose outcome is not known may be due to that attempt.
    let (kind, note) = match may_have_landed && is_certain {
        true => (ErrorKind::Unavailable, "; an attempt before it was lost"),
        false => (kind, ""),
    };
    let hint = hint(kind, status, sub_status);
    let retry_after = error.response().and_then(|response| response.headers().retry_after_ms);
    let message = format!("{what}: the service answered {status}/{sub_status}{note}{hint}");
    let failed = Error::new(kind, message).with_request_charge(attempts.charge).with_source(error);
    let failed = match retry_after {
        Some(millis) if kind == ErrorKind::Throttled => failed.with_retry_after(Duration::from_millis(millis)),
        _ => failed,
    };
    if may_have_landed { failed.with_unknown_effect() } else { failed }
}

/// The error of a call that took longer than it may.
pub(crate) fn timed_out(call: Call, what: &str, limit: Duration) -> Error {
    let error = Error::new(ErrorKind::Timeout, format!("{what}: no answer within {limit:?}"));
    if call == Call::Write { error.with_unknown_effect() } else { error }
}

/// An error of the SDK about an argument: nothing was sent.
pub(crate) fn refused(kind: ErrorKind, what: &str, error: CosmosError) -> Error {
    Error::new(kind, format!("{what} is refused by the SDK")).with_source(error)
}

pub(crate) fn status_of(error: &CosmosError) -> (u16, u16) {
    let status = error.status();
    (u16::from(status.status_code()), status.sub_status().map_or(0, |sub| sub.value()))
}

/// Whether no replica has what the client has seen in its session. The SDK has tried several.
pub(crate) fn is_session_behind(error: &Error) -> bool {
    cause_of(error).is_some_and(|cause| matches!(status_of(cause), (404, 1002) | (503, 20310)))
}

/// The error of the SDK that an error was made of.
pub(crate) fn cause_of(error: &Error) -> Option<&CosmosError> {
    sources(error).find_map(|cause| cause.downcast_ref::<CosmosError>())
}

/// The texts of everything that an error was made of.
pub(crate) fn source_text(error: &Error) -> String {
    sources(error).map(ToString::to_string).collect()
}

fn sources(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

/// What the attempts of one call tell.
#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    charge: f64,
    /// None was sent.
    none_sent: bool,
    /// One before the last may have been performed although no answer came.
    ambiguous_before_last: bool,
}

impl Attempts {
    fn of(diagnostics: &Arc<DiagnosticsContext>) -> Self {
        let requests = diagnostics.requests();
        let ambiguous = requests.iter().rev().skip(1).any(|request| {
            let status = u16::from(request.status().status_code());
            !request.request_sent().definitely_not_sent() && (request.timed_out() || !is_certain(status))
        });
        let repeated = requests.iter().any(|request| request.local_shard_retry_count() > 0);
        Self {
            charge: diagnostics.total_request_charge().value(),
            none_sent: !requests.is_empty() && requests.iter().all(|r| r.request_sent().definitely_not_sent()),
            ambiguous_before_last: ambiguous || repeated,
        }
    }
}

/// The charge of a call, repetitions included.
pub(crate) fn charge(diagnostics: &DiagnosticsContext) -> f64 {
    diagnostics.total_request_charge().value()
}

/// Whether an answer with this status proves that nothing was written.
fn is_certain(status: u16) -> bool {
    matches!(status, 400 | 401 | 403 | 404 | 409 | 410 | 412 | 413 | 429 | 449)
}

/// Sub-statuses of the SDK for requests that it does not send.
fn is_refused_here(status: u16, sub_status: u16) -> bool {
    matches!((status, sub_status), (_, 20010 | 20012 | 20021 | 20100..=20199 | 20401 | 20402))
}

/// The kind of an answer. Pure, so that the table below can test it.
fn kind(call: Call, status: u16, sub_status: u16) -> ErrorKind {
    match (status, sub_status) {
        (400, 1001) => ErrorKind::WrongPartitionKey,
        (400, 1024) => ErrorKind::ContainerNotFound,
        (400, _) if matches!(call, Call::FeedAfter | Call::ListAfter) => ErrorKind::BadContinuation,
        (400, _) => ErrorKind::InvalidArgument,
        (_, 20402) => ErrorKind::Unavailable,
        (401, _) => ErrorKind::Forbidden,
        // The region does not take writes any more, or the account is not there: a failover is under way.
        (403, 3 | 1008) => ErrorKind::Unavailable,
        (403, _) => ErrorKind::Forbidden,
        (404, 1002) => ErrorKind::Unavailable,
        // What owns it is missing.
        (404, 1003) if call == Call::Container => ErrorKind::DatabaseNotFound,
        (404, 1003) => ErrorKind::ContainerNotFound,
        (404, _) => match call {
            Call::Read | Call::Write => ErrorKind::ItemNotFound,
            Call::Database => ErrorKind::DatabaseNotFound,
            _ => ErrorKind::ContainerNotFound,
        },
        (408, _) => ErrorKind::Timeout,
        (409, _) => ErrorKind::AlreadyExists,
        (410, 1002 | 1007) if matches!(call, Call::Feed | Call::FeedAfter) => ErrorKind::RangeGone,
        (412, _) => ErrorKind::PreconditionFailed,
        (413, _) => ErrorKind::TooLarge,
        (429, _) => ErrorKind::Throttled,
        (500, 20020) => ErrorKind::Corrupt,
        (500, 20021) => ErrorKind::BadJson,
        _ => ErrorKind::Unavailable,
    }
}

/// What to do about it, where that is not plain.
fn hint(kind: ErrorKind, status: u16, sub_status: u16) -> &'static str {
    match (kind, status, sub_status) {
        (ErrorKind::Forbidden, 401, _) => ": check the key, or the tenant of the token",
        (ErrorKind::Forbidden, 403, 5300..=5303) => {
            ": the identity has no role that allows it; docs/azure.md lists the data actions"
        }
        (ErrorKind::Forbidden, ..) => {
            ": check the roles of the identity (docs/azure.md lists the data actions) and the firewall of the account"
        }
        (ErrorKind::Unavailable, _, 20003 | 20010..=20012) => {
            " (no connection): the account cannot be reached; check its endpoint, the network and the firewall"
        }
        (ErrorKind::Unavailable, _, 20402) => ": no token could be got for the identity",
        (ErrorKind::Corrupt, ..) => {
            ": the SDK cannot read it; an item that nests more than about 120 levels is one cause"
        }
        (ErrorKind::ContainerNotFound, _, 1024) => {
            ": it was deleted, and another container has its name: open it again"
        }
        (ErrorKind::DatabaseNotFound, ..) => ": its database does not exist, or was deleted; check the name",
        (ErrorKind::ContainerNotFound, ..) => ": it does not exist, or was deleted; check database and name",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_name_the_remedy() {
        use ErrorKind as Kind;
        let table = [
            (Call::Write, 400, 1001, Kind::WrongPartitionKey),
            (Call::Write, 400, 0, Kind::InvalidArgument),
            (Call::Feed, 400, 0, Kind::InvalidArgument),
            (Call::FeedAfter, 400, 0, Kind::BadContinuation),
            (Call::ListAfter, 400, 20203, Kind::BadContinuation),
            (Call::Write, 400, 1024, Kind::ContainerNotFound),
            (Call::Read, 401, 0, Kind::Forbidden),
            (Call::Read, 401, 20402, Kind::Unavailable),
            (Call::Write, 403, 3, Kind::Unavailable),
            (Call::Read, 403, 1008, Kind::Unavailable),
            (Call::Write, 403, 5300, Kind::Forbidden),
            (Call::Read, 404, 0, Kind::ItemNotFound),
            (Call::Write, 404, 0, Kind::ItemNotFound),
            (Call::Read, 404, 1003, Kind::ContainerNotFound),
            (Call::Read, 404, 1002, Kind::Unavailable),
            (Call::Feed, 404, 0, Kind::ContainerNotFound),
            (Call::Container, 404, 0, Kind::ContainerNotFound),
            (Call::Container, 404, 1003, Kind::DatabaseNotFound),
            (Call::Database, 404, 0, Kind::DatabaseNotFound),
            (Call::Write, 408, 0, Kind::Timeout),
            (Call::Write, 409, 0, Kind::AlreadyExists),
            (Call::Feed, 410, 1002, Kind::RangeGone),
            (Call::Write, 410, 1002, Kind::Unavailable),
            (Call::Write, 412, 0, Kind::PreconditionFailed),
            (Call::Write, 413, 0, Kind::TooLarge),
            (Call::Feed, 429, 3200, Kind::Throttled),
            (Call::Write, 449, 0, Kind::Unavailable),
            (Call::Feed, 500, 20020, Kind::Corrupt),
            (Call::Feed, 500, 20206, Kind::Unavailable),
            (Call::Write, 503, 20010, Kind::Unavailable),
        ];
        for (call, status, sub, expected) in table {
            assert_eq!(kind(call, status, sub), expected, "{call:?} {status}/{sub}");
        }
    }

    #[test]
    fn only_a_refusal_proves_that_nothing_was_written() {
        for status in [400, 401, 403, 404, 409, 410, 412, 413, 429, 449] {
            assert!(is_certain(status), "{status}");
        }
        for status in [408, 500, 502, 503, 504] {
            assert!(!is_certain(status), "{status}");
        }
    }
}
