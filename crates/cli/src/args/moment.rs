//! Points in time and lengths of time, as they are typed.

use std::{str::FromStr, time::Duration};

use changefeed::SeekTo;
use changefeed_core::{StartFrom, Timestamp};

use crate::clock;

/// A place in a feed that can be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Beginning,
    Now,
    Time(Timestamp),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "beginning" => return Ok(Self::Beginning),
            "now" => return Ok(Self::Now),
            _ => {}
        }
        if let Some(length) = text.strip_suffix(" ago").or_else(|| text.strip_prefix('-')) {
            return Ok(Self::Time(clock::now().saturating_sub(duration(length)?)));
        }
        humantime::parse_rfc3339_weak(text).map(|time| Self::Time(Timestamp::from(time))).map_err(|_| {
            "pass `beginning`, `now`, a time in UTC such as 2026-01-31T12:00:00Z, or a length such as '10m ago'"
                .to_owned()
        })
    }
}

impl From<Moment> for StartFrom {
    fn from(moment: Moment) -> Self {
        match moment {
            Moment::Beginning => Self::Beginning,
            Moment::Now => Self::Now,
            Moment::Time(time) => Self::Time(time),
        }
    }
}

impl From<Moment> for SeekTo {
    fn from(moment: Moment) -> Self {
        match moment {
            Moment::Beginning => Self::Beginning,
            Moment::Now => Self::Now,
            Moment::Time(time) => Self::Time(time),
        }
    }
}

/// A length of time with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "pass a length of time with its unit, such as 500ms, 10s, 5m or 1h".to_owned())
}

/// A length of time that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("pass a length of time above zero, such as 500ms, 10s, 5m or 1h".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_words_times_or_lengths() {
        assert_eq!("beginning".parse(), Ok(Moment::Beginning));
        assert_eq!("now".parse(), Ok(Moment::Now));
        let time = Moment::Time(Timestamp::from_secs(1_767_225_600));
        assert_eq!("2026-01-01T00:00:00Z".parse(), Ok(time));
        assert_eq!("2026-01-01 00:00:00".parse(), Ok(time));
        assert!(matches!("10m ago".parse(), Ok(Moment::Time(_))));
        assert!("yesterday".parse::<Moment>().unwrap_err().contains("10m ago"));
    }

    #[test]
    fn a_length_needs_a_unit() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("5").unwrap_err().contains("unit"));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(positive_duration("0ms").unwrap_err().contains("above zero"));
    }
}
