//! Answers that are not messages of our protocol: refusals before a call is reached, and answers of something else.

use std::time::Duration;

use changefeed_core::{Error, ErrorKind, Timestamp};
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, DATE},
};
use serde_json::Value;

use crate::{endpoint::Endpoint, parts::Parts};

/// Every answer of the server carries it, and no proxy adds it.
const ACTIVITY_ID: &str = "x-ms-activity-id";

/// The substatus of a verification that has found damage.
const DAMAGED: &str = "9001";

/// How much of an unexpected answer is shown.
const SHOWN_CHARS: usize = 80;

/// What an answer proves about the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The server refused it before doing anything.
    NothingDone,
    /// It may have been carried out.
    None,
}

/// An answer as it came.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Parts,
}

impl Answer {
    fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the body is a message of our protocol.
    pub(crate) fn is_ours(&self) -> bool {
        self.text(CONTENT_TYPE.as_str()) == Some(changefeed_protocol::CONTENT_TYPE)
    }

    /// Whether a gateway says that it does not reach the server: it may still be starting.
    pub(crate) fn is_of_a_gateway(&self) -> bool {
        matches!(self.status.as_u16(), 502..=504) && self.text(ACTIVITY_ID).is_none()
    }

    /// The error that the answer to a call stands for, received at `now`, and whether it proves that nothing was done.
    pub(crate) fn refusal(&self, endpoint: &Endpoint, now: Timestamp) -> (Error, Proof) {
        if self.text(ACTIVITY_ID).is_none() {
            return (self.unexpected(endpoint), Proof::None);
        }
        let proof = match self.status.as_u16() {
            408 | 500.. => Proof::None,
            _ => Proof::NothingDone,
        };
        let told = self.message();
        let refused = |kind, message: String| Error::new(kind, message);
        let error = match self.status.as_u16() {
            400 => refused(ErrorKind::InvalidArgument, told),
            401 => refused(
                ErrorKind::Forbidden,
                format!(
                    "the server at {endpoint} does not accept the key: pass the one that it was started with, with \
                     --key-file in the command, or EMULATOR_KEY if it was started without one"
                ),
            ),
            403 => refused(ErrorKind::Forbidden, self.clock_sentence(endpoint, now).unwrap_or(told)),
            404 | 405 => refused(
                ErrorKind::Unsupported,
                format!(
                    "the server at {endpoint} does not offer the calls of this client (changefeed {}, calls of {}): build both \
                     from the same version of changefeed; the server says: {told}",
                    env!("CARGO_PKG_VERSION"),
                    changefeed_protocol::VERSION
                ),
            ),
            409 => refused(ErrorKind::AlreadyExists, told),
            410 => refused(ErrorKind::RangeGone, told),
            412 => refused(ErrorKind::PreconditionFailed, told),
            413 => refused(ErrorKind::TooLarge, told),
            429 => refused(ErrorKind::Throttled, told),
            408 => refused(ErrorKind::Timeout, told),
            _ => refused(ErrorKind::Unavailable, told),
        };
        let error = match self.text("x-ms-retry-after-ms").and_then(|text| text.parse().ok()) {
            Some(millis) => error.with_retry_after(Duration::from_millis(millis)),
            None => error,
        };
        (error, proof)
    }

    /// The error that the answer to a call to the server itself stands for.
    pub(crate) fn refused_admin_call(&self, endpoint: &Endpoint, now: Timestamp) -> Error {
        if self.is_ours()
            && let Ok(error) = changefeed_protocol::decode_error(self.body.joined())
        {
            return error;
        }
        match self.status.as_u16() {
            // The server names the calls that it has, or what the call did not find.
            404 | 405 if self.text(ACTIVITY_ID).is_some() => {
                let message = format!("the server answered {}: {}", self.status.as_u16(), self.message());
                Error::new(ErrorKind::Unsupported, message)
            }
            500 if self.text("x-ms-substatus") == Some(DAMAGED) => Error::new(ErrorKind::Corrupt, self.message()),
            _ => self.refusal(endpoint, now).0,
        }
    }

    /// The sentence inside the message inside the body.
    fn message(&self) -> String {
        let body: Option<Value> = serde_json::from_slice(&self.body.joined()).ok();
        let outer = body.as_ref().and_then(|body| body.get("message")?.as_str());
        let inner = outer.and_then(|text| {
            let inner = text.strip_prefix("Message: ")?.split("\r\n").next()?;
            let errors: Value = serde_json::from_str(inner).ok()?;
            Some(errors.get("Errors")?.get(0)?.as_str()?.to_owned())
        });
        inner.or_else(|| outer.map(str::to_owned)).unwrap_or_else(|| format!("the server answered {}", self.status))
    }

    /// How far the clocks are apart, if that is why the request was refused.
    fn clock_sentence(&self, endpoint: &Endpoint, now: Timestamp) -> Option<String> {
        let theirs = httpdate::parse_http_date(self.text(DATE.as_str())?).ok()?;
        let theirs = theirs.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
        let apart = now.as_secs().abs_diff(theirs) / 60;
        let side = if now.as_secs() > theirs { "ahead of" } else { "behind" };
        // The server accepts a quarter of an hour.
        (apart >= 15).then(|| {
            format!(
                "the clock of this machine is {apart} minutes {side} that of {endpoint}, and requests are signed with \
                 the time: set the clocks of both, for example by NTP"
            )
        })
    }

    fn unexpected(&self, endpoint: &Endpoint) -> Error {
        let kind = self.text(CONTENT_TYPE.as_str()).unwrap_or("no content type");
        let shown: String = String::from_utf8_lossy(&self.body.joined()).chars().take(SHOWN_CHARS).collect();
        let message = format!(
            "the answer of {endpoint} ({}, {kind}) does not come from a changefeed server: check the endpoint and what \
             stands between, such as a proxy; it begins with {shown:?}",
            self.status
        );
        Error::new(ErrorKind::Unavailable, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> (Error, Proof) {
        let headers = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect();
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer { status, headers, body: Parts::from(body.to_owned()) };
        let noon = httpdate::parse_http_date("Sun, 15 Nov 2026 12:00:00 GMT").unwrap();
        let now = Timestamp::from_secs(noon.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs());
        answer.refusal(&Endpoint::parse("http://localhost:8081").unwrap(), now)
    }

    #[test]
    fn refusals_of_the_server_keep_their_sentence_and_their_effect() {
        let activity = (ACTIVITY_ID, "x");
        let body = r#"{"code":"x","message":"Message: {\"Errors\":[\"wait a little\"]}\r\nActivityId: 1"}"#;
        let (throttled, proof) = answer(429, &[activity, ("x-ms-retry-after-ms", "40")], body);
        assert_eq!(format!("{throttled:?}"), "Throttled: wait a little (retry after 40ms)");
        assert_eq!(proof, Proof::NothingDone);
        let (late, proof) = answer(408, &[activity], body);
        assert_eq!((format!("{late:?}").as_str(), proof), ("Timeout: wait a little", Proof::None));
        assert_eq!(answer(401, &[activity], "").0.kind(), ErrorKind::Forbidden);
        assert_eq!(answer(404, &[activity], "").0.kind(), ErrorKind::Unsupported);
        let (failed, proof) = answer(500, &[activity], "");
        assert_eq!(
            (failed.to_string().as_str(), proof),
            ("the server answered 500 Internal Server Error", Proof::None)
        );
    }

    #[test]
    fn clocks_that_differ_are_named_with_their_distance() {
        let (behind, _) = answer(403, &[(ACTIVITY_ID, "x"), ("date", "Sun, 15 Nov 2026 13:00:01 GMT")], "");
        assert!(
            behind.message().starts_with("the clock of this machine is 60 minutes behind that of http"),
            "{behind}"
        );
        let body = r#"{"message":"this key may read but not write"}"#;
        let (read_only, _) = answer(403, &[(ACTIVITY_ID, "x"), ("date", "Sun, 15 Nov 2026 12:00:01 GMT")], body);
        assert_eq!(read_only.message(), "this key may read but not write");
    }

    #[test]
    fn an_answer_of_a_proxy_is_told_apart() {
        let (error, proof) = answer(502, &[("content-type", "text/html")], "<html>Bad gateway</html>");
        assert_eq!((error.kind(), proof), (ErrorKind::Unavailable, Proof::None));
        assert!(error.message().contains("does not come from a changefeed server"), "{error}");
        assert!(error.message().contains("502 Bad Gateway, text/html"), "{error}");
    }
}
