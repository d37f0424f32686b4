//! Timestamps as the .NET SDK writes them: `2026-01-02T03:04:05.6789012Z`.

use changefeed_core::Timestamp;

/// 9999-12-31T23:59:59.999Z: .NET knows no later moment.
const LAST_MILLIS: u64 = 253_402_300_799_999;

/// The moment in UTC, with seven digits of a second.
pub(super) fn iso(moment: Timestamp) -> String {
    let millis = moment.as_millis().min(LAST_MILLIS);
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = date(days);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}0000Z")
}

/// Year, month and day of a day counted from 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that a leap day is the last day of its year; an era is the 400 years, or 146,097
    // days, after which the calendar repeats (Hinnant, "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
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
    fn every_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..200_000 {
            let next = date(days);
            let (year, month, day) = before;
            let follows = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)].contains(&next);
            assert!(follows && next.2 <= 31, "{before:?} {next:?}");
            before = next;
        }
    }
}
