//! The bridge between a raw ETag, which leases hold, and the continuation token of the SDK, which wraps one ETag for
//! each range that it reads. Pure: text in, text out.
//!
//! The SDK has no typed way to begin at an ETag, and its token is opaque by contract. What is written here is therefore
//! checked against what the SDK makes of it before anything is sent ([`accepted`]), and what comes back is compared with
//! the range that was asked for ([`position`]). `tests/token.rs` holds the form of the token still.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use changefeed_core::{Epk, Error, ErrorKind, FeedRange, Mode, ResourceId, Result, Timestamp};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Marks tokens of the SDK, with the version of their form.
const PREFIX: &str = "c1.";
const OPERATION: &str = "ChangeFeed";
const KIND: &str = "unordered_merge";

/// The kind of a read of one partition key.
const KIND_OF_ONE_KEY: &str = "request";

#[derive(Serialize, Deserialize)]
struct Token {
    op: String,
    rid: String,
    root: Root,
    /// Whether the feed shows all versions; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cfm: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct Root {
    kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    active_tokens: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_from: Option<StartFrom>,
    /// Of a read of one partition key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_continuation: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    min_epk: String,
    max_epk: String,
    server_continuation: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
enum StartFrom {
    Beginning,
    Now,
    PointInTime(String),
}

/// The token of the SDK that goes on in `range` of `container` after `etag`.
///
/// Its start is the beginning, or the moment before which changes are skipped, and never now: should the SDK fail to
/// use the ETag, changes come again and none is lost.
pub(crate) fn resume(
    container: &ResourceId,
    range: &FeedRange,
    etag: &str,
    mode: Mode,
    not_before: Option<Timestamp>,
) -> Result<String> {
    let start_from = match not_before {
        Some(moment) => StartFrom::PointInTime(rfc3339(moment)?),
        None => StartFrom::Beginning,
    };
    let entry = Entry {
        min_epk: range.min_inclusive().to_string(),
        max_epk: range.max_exclusive().to_string(),
        server_continuation: etag.to_owned(),
    };
    let token = Token {
        op: OPERATION.to_owned(),
        rid: container.to_string(),
        root: Root {
            kind: KIND.to_owned(),
            active_tokens: vec![entry],
            start_from: Some(start_from),
            server_continuation: None,
        },
        cfm: (mode == Mode::AllVersions).then_some(true),
    };
    let json = serde_json::to_vec(&token).map_err(|error| unknown_form("").with_source(error))?;
    Ok(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(json)))
}

/// Checks, before the first request, that the SDK goes on after `etag` in exactly this range. `planned` is the token
/// that it gives for the read that it is about to do.
///
/// # Errors
/// [`ErrorKind::RangeGone`] if the SDK knows already that several ranges serve these keys, [`ErrorKind::Unsupported`] if
/// it would not use the ETag.
pub(crate) fn accepted(planned: &str, range: &FeedRange, etag: &str) -> Result<()> {
    match entries(planned)?.as_slice() {
        [] => Err(unknown_form("the SDK ignores the position")),
        [entry] if entry.server_continuation != etag => Err(unknown_form("the SDK changed the position")),
        [entry] if is_range(entry, range)? => Ok(()),
        _ => Err(gone(range)),
    }
}

/// The ETag after a page of `range`, out of the token that the SDK gives after it.
///
/// # Errors
/// [`ErrorKind::RangeGone`] if the token has another range, or several: the range was split, and the page must not be
/// used, since it may be of one half only.
pub(crate) fn position(token: &str, range: &FeedRange) -> Result<String> {
    match entries(token)?.as_slice() {
        [entry] if is_range(entry, range)? => Ok(entry.server_continuation.clone()),
        [] => Err(unknown_form("the SDK tells no position after a page")),
        _ => Err(gone(range)),
    }
}

/// Checks, before the first request, that the SDK goes on after `etag` in one partition key.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if it would not use the ETag.
pub(crate) fn accepted_for_one_key(planned: &str, etag: &str) -> Result<()> {
    match position_of_one_key(planned)? == etag {
        true => Ok(()),
        false => Err(unknown_form("the SDK changed the position")),
    }
}

/// The ETag after a page of one partition key.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the token tells none.
pub(crate) fn position_of_one_key(token: &str) -> Result<String> {
    let root = root(token)?;
    let etag = root.server_continuation.filter(|_| root.kind == KIND_OF_ONE_KEY);
    etag.ok_or_else(|| unknown_form("the SDK tells no position of a partition key"))
}

fn entries(token: &str) -> Result<Vec<Entry>> {
    let root = root(token)?;
    if root.kind != KIND {
        return Err(unknown_form("its kind is another one"));
    }
    Ok(root.active_tokens)
}

fn root(token: &str) -> Result<Root> {
    let Some(payload) = token.strip_prefix(PREFIX) else { return Err(unknown_form("its version is another one")) };
    let json = BASE64_URL_SAFE_NO_PAD.decode(payload).map_err(|error| unknown_form("").with_source(error))?;
    let token: Token = serde_json::from_slice(&json).map_err(|error| unknown_form("").with_source(error))?;
    Ok(token.root)
}

fn is_range(entry: &Entry, range: &FeedRange) -> Result<bool> {
    let (min, max): (Epk, Epk) = (entry.min_epk.parse()?, entry.max_epk.parse()?);
    Ok((&min, &max) == (range.min_inclusive(), range.max_exclusive()))
}

fn gone(range: &FeedRange) -> Error {
    Error::new(ErrorKind::RangeGone, format!("several physical ranges serve {range}: read the feed ranges again"))
}

fn unknown_form(why: &str) -> Error {
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "azure_data_cosmos writes its continuation tokens in a form that is not known here{why}: use version 1.0 of \
             it, or a newer changefeed-cosmos"
        ),
    )
}

/// The moment as the SDK takes it.
pub(crate) fn moment(timestamp: Timestamp) -> Result<OffsetDateTime> {
    let seconds = i64::try_from(timestamp.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, "the start time lies after the year 9999").with_source(error)
    })
}

fn rfc3339(timestamp: Timestamp) -> Result<String> {
    moment(timestamp)?.format(&Rfc3339).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, "the start time lies after the year 9999").with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> FeedRange {
        text.parse().unwrap()
    }

    fn container() -> ResourceId {
        ResourceId::container(7, 1)
    }

    fn json(token: &str) -> String {
        String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX).unwrap()).unwrap()).unwrap()
    }

    fn made_of(json: &str) -> String {
        format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(json))
    }

    #[test]
    fn a_token_holds_one_range_one_etag_and_a_start_that_repeats_rather_than_skips() {
        let token = resume(&container(), &range("-3F"), "\"14\"", Mode::LatestVersion, None).unwrap();
        let expected = format!(
            r#"{{"op":"ChangeFeed","rid":"{}","root":{{"kind":"unordered_merge","active_tokens":[{{"min_epk":"","max_epk":"3F","server_continuation":"\"14\""}}],"start_from":{{"kind":"beginning"}}}}}}"#,
            container()
        );
        assert_eq!(json(&token), expected);
        let moment = Some(Timestamp::from_secs(1_700_000_000));
        let token = resume(&container(), &range("-3F"), "\"14\"", Mode::AllVersions, moment).unwrap();
        let start = r#""start_from":{"kind":"point_in_time","value":"2023-11-14T22:13:20Z"}},"cfm":true}"#;
        assert!(json(&token).ends_with(start), "{}", json(&token));
    }

    #[test]
    fn the_position_comes_back_as_it_went_in() {
        let own = range("1A-3F");
        for etag in ["\"14\"", r#"{"odd":"one"}"#, "\"00\"\"000\"17\""] {
            let token = resume(&container(), &own, etag, Mode::LatestVersion, None).unwrap();
            accepted(&token, &own, etag).unwrap();
            assert_eq!(position(&token, &own).unwrap(), etag);
        }
    }

    #[test]
    fn a_position_that_the_sdk_would_not_use_is_refused_before_anything_is_sent() {
        let own = range("-3F");
        let renamed = made_of(r#"{"op":"ChangeFeed","rid":"x","root":{"kind":"unordered_merge","tokens":[]}}"#);
        let other = resume(&container(), &own, "\"15\"", Mode::LatestVersion, None).unwrap();
        let kind = made_of(r#"{"op":"ChangeFeed","rid":"x","root":{"kind":"drain","active_tokens":[]}}"#);
        for bad in [renamed, other, kind, "c2.e30".to_owned(), "c1.%".to_owned(), "c1.e30".to_owned()] {
            assert_eq!(accepted(&bad, &own, "\"14\"").unwrap_err().kind(), ErrorKind::Unsupported, "{bad}");
        }
    }

    #[test]
    fn a_token_of_several_ranges_or_of_another_one_means_that_the_range_is_gone() {
        let own = range("-3F");
        let part = resume(&container(), &range("-1F"), "\"14\"", Mode::LatestVersion, None).unwrap();
        let halves = made_of(
            r#"{"op":"ChangeFeed","rid":"x","root":{"kind":"unordered_merge","active_tokens":[
            {"min_epk":"","max_epk":"1F","server_continuation":"\"14\""},
            {"min_epk":"1F","max_epk":"3F","server_continuation":"\"14\""}]}}"#,
        );
        for gone in [part, halves] {
            assert_eq!(position(&gone, &own).unwrap_err().kind(), ErrorKind::RangeGone);
            assert_eq!(accepted(&gone, &own, "\"14\"").unwrap_err().kind(), ErrorKind::RangeGone);
        }
    }

    #[test]
    fn the_position_in_one_key_is_read_and_checked() {
        let one = made_of(r#"{"op":"ChangeFeed","rid":"x","root":{"kind":"request","server_continuation":"\"14\""}}"#);
        accepted_for_one_key(&one, "\"14\"").unwrap();
        assert_eq!(position_of_one_key(&one).unwrap(), "\"14\"");
        assert_eq!(accepted_for_one_key(&one, "\"15\"").unwrap_err().kind(), ErrorKind::Unsupported);
        let range = resume(&container(), &range("-FF"), "\"14\"", Mode::LatestVersion, None).unwrap();
        let none = made_of(r#"{"op":"ChangeFeed","rid":"x","root":{"kind":"request"}}"#);
        for bad in [range, none] {
            assert_eq!(position_of_one_key(&bad).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn a_page_without_position_is_refused() {
        let none = made_of(r#"{"op":"ChangeFeed","rid":"x","root":{"kind":"unordered_merge"}}"#);
        assert_eq!(position(&none, &range("-FF")).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
