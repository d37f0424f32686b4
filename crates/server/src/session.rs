//! Session tokens: which writes a client has seen, `{range}:{version}#{lsn}`, several with commas between them.
//!
//! One sequence of LSNs runs through a container, so the range in a token says nothing, and tokens of ranges that were
//! split or merged stay good.

use crate::problem::Answer;
use crate::problem::Problem;

/// The token of a client that has seen everything up to `lsn`.
pub(crate) fn token(range: &str, lsn: u64) -> String {
    format!("{range}:-1#{lsn}")
}

/// The newest LSN that a client has seen.
pub(crate) fn newest_seen(header: &str) -> Answer<u64> {
    let mut newest = 0;
    for token in header.split(',').filter(|token| !token.trim().is_empty()) {
        newest = newest.max(seen(token.trim()).ok_or_else(|| {
            let shown: String = token.chars().take(64).collect();
            Problem::bad_request(format!("the session token {shown:?} is not of the form range:version#lsn"))
        })?);
    }
    Ok(newest)
}

fn seen(token: &str) -> Option<u64> {
    let (_, progress) = token.split_once(':')?;
    let mut parts = progress.split('#');
    let first = parts.next()?;
    // The oldest form has the LSN alone.
    let lsn = parts.next().unwrap_or(first);
    match lsn.parse::<i64>() {
        Ok(lsn) => Some(u64::try_from(lsn).unwrap_or(0)),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lsn_of_all_tokens_counts() {
        assert_eq!(newest_seen("0:-1#12").unwrap(), 12);
        assert_eq!(newest_seen("0:-1#12,3:1#15#0=15,2:-1#4").unwrap(), 15);
        assert_eq!(newest_seen("0:7").unwrap(), 7);
        assert_eq!(newest_seen("0:-1#-1").unwrap(), 0);
        assert_eq!(newest_seen("").unwrap(), 0);
        for bad in ["x", "0:", "0:a#b", "0:-1#99999999999999999999"] {
            assert!(newest_seen(bad).is_err(), "{bad}");
        }
        assert_eq!(newest_seen(&token("4", 9)).unwrap(), 9);
    }
}
