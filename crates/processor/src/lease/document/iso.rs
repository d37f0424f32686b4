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

/// Reads such a moment, with any number of digits of a second; none if it is something else.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let number = |text: &str, most: u64| -> Option<u64> {
        let plain = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().filter(|number| *number <= most)
    };
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 9999)?, number(date.next()?, 12)?, number(date.next()?, 31)?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':');
    let (hour, minute, second) = (number(time.next()?, 23)?, number(time.next()?, 59)?, number(time.next()?, 60)?);
    let millis = number(format!("{fraction:0<3}").get(..3)?, 999)?;
    if date.next().is_some() || time.next().is_some() || year < 1970 || month == 0 || day == 0 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds * 1000 + millis))
}

/// The days from 1970-01-01: the reverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, shifted_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
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

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..200_000 {
            let next = date(days);
            let (year, month, day) = before;
            let follows = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)].contains(&next);
            assert!(follows && next.2 <= 31, "{before:?} {next:?}");
            assert_eq!(super::days(next.0, next.1, next.2), days);
            before = next;
        }
    }
}
