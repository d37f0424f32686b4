//! Timestamps as the .NET SDK writes them: `2026-01-02T03:04:05.6789012Z`.

use changefeed_core::Timestamp;
use time::{OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description};

/// 9999-12-31T23:59:59.999Z: .NET knows no later moment.
const LAST_MILLIS: u64 = 253_402_300_799_999;

const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:7]Z");

/// The moment in UTC, with seven digits of a second.
pub(super) fn iso(moment: Timestamp) -> String {
    let millis = i128::from(moment.as_millis().min(LAST_MILLIS));
    let moment = OffsetDateTime::from_unix_timestamp_nanos(millis * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(FORMAT).unwrap_or_default()
}

/// Reads such a moment, with any number of digits of a second; `None` if it is something else.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    use time::format_description::well_known::Rfc3339;

    let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?.to_offset(UtcOffset::UTC);
    u64::try_from(moment.unix_timestamp_nanos() / 1_000_000).ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_seven_digits_of_a_second() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.0000000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.0000000Z"),
            (1_767_323_045_678, "2026-01-02T03:04:05.6780000Z"),
            (1_772_323_199_999, "2026-02-28T23:59:59.9990000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.0000000Z"),
            (LAST_MILLIS, "9999-12-31T23:59:59.9990000Z"),
            (u64::MAX, "9999-12-31T23:59:59.9990000Z"),
        ] {
            assert_eq!(iso(Timestamp::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_moment_comes_back_from_its_text() {
        for millis in [0, 951_782_400_000, 1_767_323_045_678, 4_107_542_400_000, LAST_MILLIS] {
            let moment = Timestamp::from_millis(millis);
            assert_eq!(parse(&iso(moment)), Some(moment));
        }
        for (text, millis) in [("1970-01-01T00:00:01Z", 1000), ("1970-01-01T00:00:00.5Z", 500)] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(millis)));
        }
        for text in
            ["", "Z", "1970-01-01", "1970-01-01T00:00:00", "1970-13-01T00:00:00Z", "1970-01-01T00:00:00.Z+1", "é"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
