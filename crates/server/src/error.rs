//! Errors in the format of Cosmos DB: status, substatus, code, and a message within a message.

use std::time::Duration;

use changefeed_core::{Error, ErrorKind};
use changefeed_query::SqlError;
use hyper::{HeaderMap, Method, StatusCode};
use serde_json::json;

/// The wording of Cosmos DB for a resource that does not exist.
const RESOURCE_NOT_FOUND: &str = "Resource Not Found:";

/// The same for a version that is not the expected one.
const PRECONDITION_NOT_MET: &str =
    "Operation cannot be performed because one of the specified precondition is not met:";

/// Substatus codes that clients branch on.
pub(crate) mod substatus {
    /// The partition key of the header is not that of the item, or has the wrong number of values.
    pub(crate) const PARTITION_KEY_MISMATCH: u32 = 1001;
    /// The range of the request was split or merged. With 404: the session's writes are not here yet.
    pub(crate) const RANGE_GONE: u32 = 1002;
    /// The session's writes are not here yet.
    pub(crate) const READ_SESSION_NOT_AVAILABLE: u32 = 1002;
    /// The container or database of the request does not exist.
    pub(crate) const OWNER_MISSING: u32 = 1003;
    /// The client means another container of the same name.
    pub(crate) const OTHER_CONTAINER: u32 = 1024;
    /// Too many requests.
    pub(crate) const THROTTLED: u32 = 3200;
    /// Verification found damage. Our own: answers to calls of SDKs never have it.
    pub(crate) const DAMAGED: u32 = 9001;
}

/// The retry delay if the store throttles without one.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) substatus: Option<u32>,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// In request units; zero where the store did not charge.
    pub(crate) request_charge: f64,
    /// More headers: range and session of the item.
    pub(crate) headers: Option<Box<HeaderMap>>,
}

/// The result of a handler.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, substatus: None, message: message.into(), retry_after: None, request_charge: 0.0, headers: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{RESOURCE_NOT_FOUND} {}", message.into())).substatus(0)
    }

    pub(crate) fn method_not_allowed(method: &Method) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("method {method} is not allowed here"))
    }

    pub(crate) fn precondition_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, format!("{PRECONDITION_NOT_MET} {}", message.into()))
    }

    pub(crate) fn throttled(retry_after: Duration) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "Request rate is large: wait, then try again.");
        error.retry_after = Some(retry_after);
        error.substatus(substatus::THROTTLED)
    }

    pub(crate) fn range_gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, message).substatus(substatus::RANGE_GONE)
    }

    pub(crate) fn substatus(mut self, substatus: u32) -> Self {
        self.substatus = Some(substatus);
        self
    }

    /// Converts the error of a request about the contents of a container: a missing container is a missing owner.
    pub(crate) fn from_store(error: &Error) -> Self {
        use ErrorKind as Kind;
        let (status, sub) = match error.kind() {
            Kind::ItemNotFound => (StatusCode::NOT_FOUND, Some(0)),
            Kind::ContainerNotFound | Kind::DatabaseNotFound => (StatusCode::NOT_FOUND, Some(substatus::OWNER_MISSING)),
            Kind::AlreadyExists => (StatusCode::CONFLICT, None),
            // An etag that no version can have does not match.
            Kind::PreconditionFailed | Kind::BadETag => (StatusCode::PRECONDITION_FAILED, None),
            Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, None),
            Kind::WrongPartitionKey => (StatusCode::BAD_REQUEST, Some(substatus::PARTITION_KEY_MISMATCH)),
            Kind::RangeGone | Kind::RangeNotFound => (StatusCode::GONE, Some(substatus::RANGE_GONE)),
            Kind::Throttled => (StatusCode::TOO_MANY_REQUESTS, Some(substatus::THROTTLED)),
            Kind::Timeout => (StatusCode::REQUEST_TIMEOUT, None),
            Kind::Unavailable | Kind::Locked | Kind::Closed => (StatusCode::SERVICE_UNAVAILABLE, None),
            Kind::Forbidden => (StatusCode::FORBIDDEN, None),
            Kind::UnknownFormat | Kind::Corrupt | Kind::Io => (StatusCode::INTERNAL_SERVER_ERROR, None),
            _ => (StatusCode::BAD_REQUEST, None),
        };
        let mut message = match service_text(error.kind()) {
            Some(text) => format!("{text} {}", error.message()),
            None => error.message().to_owned(),
        };
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        let usual = (error.kind() == Kind::Throttled).then_some(RETRY_AFTER);
        let (retry_after, request_charge) = (error.retry_after().or(usual), error.request_charge());
        Self { status, substatus: sub, message, retry_after, request_charge, headers: None }
    }

    /// Converts the error of a request about a database or container itself.
    pub(crate) fn from_catalog(error: &Error) -> Self {
        let mut converted = Self::from_store(error);
        if converted.status == StatusCode::NOT_FOUND {
            converted.substatus = Some(0);
            converted.message = format!("{RESOURCE_NOT_FOUND} {}", error.message());
        }
        converted
    }

    /// The name of the status in the body.
    fn code(&self) -> &'static str {
        match self.status.as_u16() {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            408 => "RequestTimeout",
            409 => "Conflict",
            410 => "Gone",
            412 => "PreconditionFailed",
            413 => "RequestEntityTooLarge",
            429 => "TooManyRequests",
            431 => "RequestHeaderFieldsTooLarge",
            503 => "ServiceUnavailable",
            _ => "InternalServerError",
        }
    }

    /// Returns the body: SDKs print `message`, and one SDK looks for the text in `Errors` inside it.
    pub(crate) fn body(&self, activity: &str) -> Vec<u8> {
        let errors = json!({ "Errors": [self.message] });
        let message = format!("Message: {errors}\r\nActivityId: {activity}, changefeed/{}", env!("CARGO_PKG_VERSION"));
        json!({ "code": self.code(), "message": message }).to_string().into_bytes()
    }
}

/// The wording of Cosmos DB for an error: tools match on it. Our own message follows it.
fn service_text(kind: ErrorKind) -> Option<&'static str> {
    use ErrorKind as Kind;
    Some(match kind {
        Kind::ItemNotFound => RESOURCE_NOT_FOUND,
        Kind::ContainerNotFound | Kind::DatabaseNotFound => "Owner resource does not exist:",
        Kind::AlreadyExists => "Entity with the specified id already exists in the system:",
        Kind::PreconditionFailed | Kind::BadETag => PRECONDITION_NOT_MET,
        Kind::TooLarge => "Request size is too large:",
        Kind::WrongPartitionKey => {
            "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition \
             key field values specified in the document:"
        }
        _ => return None,
    })
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::from_store(&error)
    }
}

impl From<SqlError> for ApiError {
    fn from(error: SqlError) -> Self {
        if error.unsupported {
            return Self::bad_request(format!("the query cannot be answered: {error}"));
        }
        Self::bad_request(format!("Syntax error, invalid query: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_the_status_and_substatus_that_clients_expect() {
        let told = |kind| {
            let error = ApiError::from(Error::new(kind, "x"));
            (error.status.as_u16(), error.substatus)
        };
        assert_eq!(told(ErrorKind::ItemNotFound), (404, Some(0)));
        assert_eq!(told(ErrorKind::ContainerNotFound), (404, Some(1003)));
        assert_eq!(told(ErrorKind::AlreadyExists), (409, None));
        assert_eq!(told(ErrorKind::PreconditionFailed), (412, None));
        assert_eq!(told(ErrorKind::WrongPartitionKey), (400, Some(1001)));
        assert_eq!(told(ErrorKind::RangeGone), (410, Some(1002)));
        assert_eq!(told(ErrorKind::RangeNotFound), (410, Some(1002)));
        assert_eq!(told(ErrorKind::TooLarge), (413, None));
        assert_eq!(told(ErrorKind::BadContinuation), (400, None));
        assert_eq!(told(ErrorKind::Closed), (503, None));
    }

    #[test]
    fn the_body_holds_the_message_where_each_sdk_looks_for_it() {
        let body = ApiError::bad_request("say \"please\"").body("a-1");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], "BadRequest");
        let message = body["message"].as_str().unwrap();
        let inner = message.strip_prefix("Message: ").unwrap().split("\r\n").next().unwrap();
        let inner: serde_json::Value = serde_json::from_str(inner).unwrap();
        assert_eq!(inner["Errors"][0], "say \"please\"");
    }
}
