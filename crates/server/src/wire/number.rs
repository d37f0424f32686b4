//! Numbers as JSON text.

use std::fmt::Write as _;

/// Appends a finite double. One that is integral and that a 64-bit integer can hold is written as that integer: clients
/// store `2` as a double and expect to read `2` into an integer.
pub(crate) fn write_double(number: f64, out: &mut String) {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    let written = if number.fract() != 0.0 {
        write!(out, "{number:?}")
    } else if (-TWO_TO_63..TWO_TO_63).contains(&number) {
        write!(out, "{}", number as i64)
    } else if (TWO_TO_63..2.0 * TWO_TO_63).contains(&number) {
        write!(out, "{}", number as u64)
    } else {
        write!(out, "{number:?}")
    };
    written.expect("invariant: a string can always be appended to");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_as_short_as_it_can_be_and_reads_back() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (2.0, "2"),
            (-7.0, "-7"),
            (0.1, "0.1"),
            (1e15, "1000000000000000"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (-9_223_372_036_854_775_808.0, "-9223372036854775808"),
            (9_223_372_036_854_775_808.0, "9223372036854775808"),
            (18_446_744_073_709_549_568.0, "18446744073709549568"),
            (18_446_744_073_709_551_616.0, "1.8446744073709552e19"),
            (1e300, "1e300"),
            (-1e300, "-1e300"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (1.5e-7, "1.5e-7"),
        ] {
            let mut out = String::new();
            write_double(number, &mut out);
            assert_eq!(out, text);
            assert_eq!(out.parse::<f64>().unwrap(), number, "{text}");
        }
    }
}
