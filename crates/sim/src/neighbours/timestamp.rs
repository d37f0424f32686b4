//! UTC timestamps in ISO 8601, as lease documents have them.

/// Milliseconds since the epoch as `2026-01-02T03:04:05.678Z`.
pub(super) fn format(millis: u64) -> String {
    let (days, in_day) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let (hours, minutes, seconds) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", in_day % 1000)
}

/// The milliseconds since the epoch of such a text, with any number of fraction digits.
pub(super) fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hours, minutes, seconds) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fraction: String = text.get(20..).unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let days = days(year, month, day)?;
    Some(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + millis)
}

/// Days since 1970-01-01 of a date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month <= 2 { (year.checked_sub(1)?, month + 9) } else { (year, month.checked_sub(3)?) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

/// The date so many days after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_survive_being_written_and_read() {
        for millis in [0, 1_760_000_000_123, 1_709_164_800_000, 951_782_400_999] {
            assert_eq!(parse(&format(millis)), Some(millis));
        }
        assert_eq!(format(1_709_164_800_000), "2024-02-29T00:00:00.000Z");
        assert_eq!(parse("2024-02-29T00:00:00.1234567Z"), Some(1_709_164_800_123));
        assert_eq!(parse("soon"), None);
    }
}
