//! Session tokens: which writes a client has seen, `{range}:{version}#{lsn}`, several with commas between them.

use changefeed_core::RangeId;

use crate::error::{ApiError, ApiResult};

/// What a client has seen of one range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) range: RangeId,
    pub(crate) lsn: u64,
}

/// The token of a client that has seen everything up to `lsn`.
pub(crate) fn token(range: &str, lsn: u64) -> String {
    format!("{range}:-1#{lsn}")
}

/// What a client has seen of each range.
pub(crate) fn parse(header: &str) -> ApiResult<Vec<Seen>> {
    let tokens = header.split(',').map(str::trim).filter(|token| !token.is_empty());
    tokens
        .map(|token| {
            seen(token).ok_or_else(|| {
                let shown: String = token.chars().take(64).collect();
                ApiError::bad_request(format!("the session token {shown:?} is not of the form range:version#lsn"))
            })
        })
        .collect()
}

fn seen(token: &str) -> Option<Seen> {
    let (range, progress) = token.split_once(':')?;
    let mut parts = progress.split('#');
    let first = parts.next()?;
    // The oldest form has the LSN alone.
    let lsn = parts.next().unwrap_or(first);
    let lsn = lsn.parse::<i64>().ok()?;
    Some(Seen { range: range.parse().ok()?, lsn: u64::try_from(lsn).unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_tells_of_its_range() {
        let parsed = |header: &str| -> Vec<(String, u64)> {
            parse(header).unwrap().into_iter().map(|seen| (seen.range.to_string(), seen.lsn)).collect()
        };
        let of = |range: &str, lsn| (range.to_owned(), lsn);
        assert_eq!(parsed("0:-1#12"), [of("0", 12)]);
        assert_eq!(parsed("0:-1#12, 3:1#15#0=15,2:-1#4"), [of("0", 12), of("3", 15), of("2", 4)]);
        assert_eq!(parsed("0:7"), [of("0", 7)]);
        assert_eq!(parsed("0:-1#-1"), [of("0", 0)]);
        assert_eq!(parsed(""), []);
        for bad in ["x", "0:", "0:a#b", "0:-1#99999999999999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parsed(&token("4", 9)), [of("4", 9)]);
    }
}
