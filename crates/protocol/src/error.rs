//! Errors on the wire: kind, effect, message with its causes, operation, charge and retry-after.

use bytes::Bytes;
use changefeed_core::{Effect, Error, ErrorKind};

use crate::codec::{Malformed, Reader, Wire, decode, put_text, take_text};

/// Every kind that a store may answer with. A test compares the list with the source of the contract.
pub(crate) const KINDS: [ErrorKind; 32] = [
    ErrorKind::ItemNotFound,
    ErrorKind::ContainerNotFound,
    ErrorKind::DatabaseNotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::PreconditionFailed,
    ErrorKind::MissingId,
    ErrorKind::BadId,
    ErrorKind::NotAnObject,
    ErrorKind::BadJson,
    ErrorKind::NotUtf8,
    ErrorKind::TooLarge,
    ErrorKind::WrongPartitionKey,
    ErrorKind::BadETag,
    ErrorKind::BadBatch,
    ErrorKind::BadRange,
    ErrorKind::RangeNotFound,
    ErrorKind::RangeGone,
    ErrorKind::BadContinuation,
    ErrorKind::ForeignContinuation,
    ErrorKind::ContinuationBeyondEnd,
    ErrorKind::ContinuationExpired,
    ErrorKind::InvalidArgument,
    ErrorKind::Unsupported,
    ErrorKind::Throttled,
    ErrorKind::Timeout,
    ErrorKind::Unavailable,
    ErrorKind::Forbidden,
    ErrorKind::Locked,
    ErrorKind::UnknownFormat,
    ErrorKind::Corrupt,
    ErrorKind::Io,
    ErrorKind::Closed,
];

impl Wire for ErrorKind {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(&self.to_string(), out);
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        take_text(input, |name| {
            let known = KINDS.into_iter().find(|kind| kind.to_string() == name);
            known.ok_or(Malformed("unknown kind of error"))
        })
    }
}

/// Encodes an error.
pub fn encode_error(error: &Error) -> Bytes {
    let mut out = Vec::new();
    error.kind().put(&mut out);
    (error.effect() == Effect::Unknown).put(&mut out);
    put_text(error.message(), &mut out);
    let mut causes: Vec<String> = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    causes.put(&mut out);
    error.operation().put(&mut out);
    error.request_charge().put(&mut out);
    error.retry_after().put(&mut out);
    out.into()
}

/// Decodes an error. Its causes become one.
///
/// # Errors
/// [`Malformed`] if the bytes are not an error, or one of a kind that this version does not know.
pub fn decode_error(bytes: Bytes) -> Result<Error, Malformed> {
    let Received(error) = decode(bytes)?;
    Ok(error)
}

struct Received(Error);

impl Wire for Received {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&encode_error(&self.0));
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (kind, is_unknown, message) = <(ErrorKind, bool, String)>::read_from(input)?;
        let mut error = Error::new(kind, message);
        if is_unknown {
            error = error.with_unknown_effect();
        }
        let causes = Vec::<String>::read_from(input)?;
        if !causes.is_empty() {
            error = error.with_source(causes.join(": "));
        }
        if let Some(index) = Option::read_from(input)? {
            error = error.with_operation(index);
        }
        error = error.with_request_charge(f64::read_from(input)?);
        if let Some(wait) = Option::read_from(input)? {
            error = error.with_retry_after(wait);
        }
        Ok(Self(error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_error_comes_back_with_everything_it_says() {
        let error = Error::new(ErrorKind::Throttled, "read a page")
            .with_source(std::io::Error::other("too fast"))
            .with_unknown_effect()
            .with_operation(3)
            .with_request_charge(2.5)
            .with_retry_after(Duration::from_millis(40));
        let back = decode_error(encode_error(&error)).unwrap();
        assert_eq!(format!("{back:?}"), format!("{error:?}"));
    }

    #[test]
    fn every_kind_of_the_contract_can_be_sent() {
        let source = include_str!("../../core/src/error.rs");
        let all = source.split_once("pub enum ErrorKind {").unwrap().1.split_once("\n}").unwrap().0;
        let named: Vec<&str> = all.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
        assert_eq!(KINDS.map(|kind| kind.to_string()).to_vec(), named);
        for kind in KINDS {
            assert_eq!(decode_error(encode_error(&Error::new(kind, ""))).unwrap().kind(), kind);
        }
        let unknown = [&[3][..], b"Odd"].concat();
        assert_eq!(decode_error(unknown.into()).unwrap_err(), Malformed("unknown kind of error"));
    }
}
