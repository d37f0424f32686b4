//! Requests and replies, independent of the version of HTTP.

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{self, HeaderName, HeaderValue},
};

use crate::{
    error::{ApiError, ApiResult},
    headers,
    router::path::Path,
};

/// The protocol version that is spoken, and the only one that SDKs send today.
pub(crate) const PROTOCOL_VERSION: &str = "2020-07-15";

/// The capacity for headers of a usual reply.
const USUAL_HEADERS: usize = 12;

/// A request with its body read.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) path: Path<'a>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The authority of its URL, where that has one.
    pub(crate) authority: Option<&'a str>,
    /// Whether the connection is encrypted.
    pub(crate) secure: bool,
}

impl Request<'_> {
    /// A header's text; an empty header counts as absent.
    pub(crate) fn text(&self, name: &HeaderName) -> ApiResult<Option<&str>> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| ApiError::bad_request(format!("the header {name} is not UTF-8")))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Returns scheme and authority of the URL that the client used.
    pub(crate) fn endpoint(&self) -> String {
        let host = self.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or(self.authority).unwrap_or("localhost");
        format!("{}://{host}", if self.secure { "https" } else { "http" })
    }

    /// Returns `true` if a header is `true`, in any case.
    pub(crate) fn flag(&self, name: &HeaderName) -> bool {
        self.headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
    }

    /// Returns `true` if the client wants no body in the response to a write.
    pub(crate) fn wants_minimal(&self) -> bool {
        self.headers
            .get_all(&headers::PREFER)
            .iter()
            .any(|value| value.as_bytes().eq_ignore_ascii_case(b"return=minimal"))
    }

    /// Returns `true` if the body is a query.
    pub(crate) fn is_query(&self) -> bool {
        let is_query_body = self
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"application/query+json"));
        self.flag(&headers::IS_QUERY) || is_query_body
    }

    /// Refuses a request whose `If-Match` names another version than `etag`, with or without quotes.
    pub(crate) fn check_if_match(&self, etag: &str) -> ApiResult<()> {
        match self.text(&header::IF_MATCH)?.map(str::trim) {
            Some(wanted) if wanted != "*" && wanted.trim_matches('"') != etag.trim_matches('"') => {
                Err(ApiError::precondition_failed("it has another version: read it again"))
            }
            _ => Ok(()),
        }
    }

    /// Parses the page size; none if the server chooses.
    pub(crate) fn max_items(&self) -> ApiResult<Option<usize>> {
        let Some(text) = self.text(&headers::MAX_ITEM_COUNT)? else { return Ok(None) };
        match text.trim().parse::<i64>() {
            Ok(-1) => Ok(None),
            Ok(count) if count > 0 => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
            _ => Err(ApiError::bad_request(format!(
                "x-ms-max-item-count is {text}: pass a positive number, or -1 for the server's choice"
            ))),
        }
    }
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, headers: HeaderMap::with_capacity(USUAL_HEADERS), body: body.into() }
    }

    pub(crate) fn ok(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, body)
    }

    pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self::new(status, value.to_string())
    }

    /// A feed without entries.
    pub(crate) fn empty_feed(owner: &str, member: &str) -> Self {
        Self::json(StatusCode::OK, &serde_json::json!({ "_rid": owner, member: [], "_count": 0 }))
    }

    pub(crate) fn error(error: &ApiError, activity: &str) -> Self {
        let mut reply = Self::new(error.status, error.body(activity));
        if let Some(more) = &error.headers {
            reply.headers.extend(more.as_ref().clone());
        }
        if let Some(substatus) = error.substatus {
            reply.set(&headers::SUBSTATUS, HeaderValue::from(substatus));
        }
        if let Some(wait) = error.retry_after {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            reply.set(&headers::RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        reply.charge(error.request_charge);
        reply
    }

    pub(crate) fn set(&mut self, name: &HeaderName, value: HeaderValue) {
        self.headers.insert(name.clone(), value);
    }

    /// Sets a header; text that is not valid in a header is left out.
    pub(crate) fn set_text(&mut self, name: &HeaderName, text: &str) {
        if let Ok(value) = HeaderValue::from_str(text) {
            self.set(name, value);
        }
    }

    /// Sets the request charge. A reply without one gets 1 in [`Reply::finish`]: SDKs expect a charge.
    pub(crate) fn charge(&mut self, request_charge: f64) {
        if request_charge > 0.0 {
            self.set_text(&headers::REQUEST_CHARGE, &request_charge.to_string());
        }
    }

    pub(crate) fn with_etag(mut self, etag: &str) -> Self {
        self.set_text(&header::ETAG, etag);
        self
    }

    /// Adds the headers of every reply.
    pub(crate) fn finish(&mut self, activity: HeaderValue) {
        self.set(&headers::ACTIVITY_ID, activity);
        self.set(&headers::VERSION, HeaderValue::from_static(PROTOCOL_VERSION));
        if !self.headers.contains_key(&headers::REQUEST_CHARGE) {
            self.set(&headers::REQUEST_CHARGE, HeaderValue::from_static("1"));
        }
        if !self.body.is_empty() && !self.headers.contains_key(&header::CONTENT_TYPE) {
            self.set(&header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_client_learns_how_long_to_wait_and_what_it_cost() {
        use std::time::Duration;

        use changefeed_core::{Error, ErrorKind};

        let throttled = || Error::new(ErrorKind::Throttled, "too many requests");
        let told = throttled().with_retry_after(Duration::from_millis(250)).with_request_charge(0.38);
        for (error, wait, charge) in [(told, "250", Some("0.38")), (throttled(), "100", None)] {
            let reply = Reply::error(&ApiError::from_store(&error), "activity");
            let header = |name| reply.headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(header(&headers::RETRY_AFTER_MS), Some(wait));
            assert_eq!(header(&headers::REQUEST_CHARGE), charge);
        }
    }
}
