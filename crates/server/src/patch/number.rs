//! Sums of numbers in their JSON text.

use crate::wire::number::write_double;

/// The sum, as an integer if both numbers are and 64 bits hold it, else as a double. Nothing if it is not finite, or if one
/// of the texts is not a number.
pub(super) fn sum(left: &str, right: &str) -> Option<String> {
    // Integers of 64 bits, signed or not, and any sum of two of them fit into 128.
    if let (Ok(left), Ok(right)) = (left.parse::<i128>(), right.parse::<i128>())
        && let Some(sum) = left.checked_add(right)
        && (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&sum)
    {
        return Some(sum.to_string());
    }
    let sum = double(left)? + double(right)?;
    let mut text = String::new();
    if sum.is_finite() {
        write_double(sum, &mut text);
        Some(text)
    } else {
        None
    }
}

/// Returns `true` if the JSON text of a value is that of a number.
pub(super) fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn double(text: &str) -> Option<f64> {
    if is_number(text) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_stay_integers_while_they_fit() {
        for (left, right, expected) in [
            ("1", "2", "3"),
            ("1", "-2", "-1"),
            ("9007199254740993", "1", "9007199254740994"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("18446744073709551615", "0", "18446744073709551615"),
            ("18446744073709551615", "1", "1.8446744073709552e19"),
            ("-9223372036854775808", "-1", "-9223372036854775808"),
            ("1.5", "1", "2.5"),
            ("1.5", "0.5", "2"),
            ("1e2", "1", "101"),
            ("0.1", "0.2", "0.30000000000000004"),
            ("340282366920938463463374607431768211456", "1", "3.402823669209385e38"),
        ] {
            assert_eq!(sum(left, right).as_deref(), Some(expected), "{left} + {right}");
        }
        for (left, right) in [("1e308", "1e308"), ("1e999", "1"), ("true", "1"), ("\"1\"", "1"), ("null", "1")] {
            assert_eq!(sum(left, right), None, "{left} + {right}");
        }
    }
}
