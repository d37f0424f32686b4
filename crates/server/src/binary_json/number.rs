//! Numbers of all sizes.

use std::fmt::{self, Write as _};

use super::{error::BinaryJsonError, input::Input};

/// A number as it was stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
}

impl Number {
    /// The number that follows `marker`, or nothing if the marker is not one of a number.
    pub(super) fn read(marker: u8, input: &mut Input<'_>) -> Result<Option<Self>, BinaryJsonError> {
        Ok(Some(match marker {
            0x00..=0x1f => Self::Signed(marker.into()),
            0xc7 => Self::Unsigned(u64::from_le_bytes(input.array()?)),
            0xcc => Self::Double(f64::from_le_bytes(input.array()?)),
            0xc8 => Self::Signed(input.byte()?.into()),
            0xc9 => Self::Signed(i16::from_le_bytes(input.array()?).into()),
            0xca => Self::Signed(i32::from_le_bytes(input.array()?).into()),
            0xcb => Self::Signed(i64::from_le_bytes(input.array()?)),
            _ => return Self::read_typed(marker, input),
        }))
    }

    /// The same for those numbers that keep the type they were written with; arrays of one kind consist of them.
    pub(super) fn read_typed(marker: u8, input: &mut Input<'_>) -> Result<Option<Self>, BinaryJsonError> {
        Ok(Some(match marker {
            0xcd => Self::Double(f32::from_le_bytes(input.array()?).into()),
            0xce => Self::Double(f64::from_le_bytes(input.array()?)),
            0xcf => Self::Double(half(u16::from_le_bytes(input.array()?))),
            0xd7 => Self::Signed(input.byte()?.into()),
            0xd8 => Self::Signed(i8::from_le_bytes(input.array()?).into()),
            0xd9 => Self::Signed(i16::from_le_bytes(input.array()?).into()),
            0xda => Self::Signed(i32::from_le_bytes(input.array()?).into()),
            0xdb => Self::Signed(i64::from_le_bytes(input.array()?)),
            0xdc => Self::Signed(u32::from_le_bytes(input.array()?).into()),
            _ => return Ok(None),
        }))
    }

    pub(super) fn is_finite(self) -> bool {
        !matches!(self, Self::Double(number) if !number.is_finite())
    }

    /// Appends JSON text. An integral double that a 64-bit integer can hold is written as that integer: clients store `2`
    /// as a double and expect to read `2` into an integer.
    pub(super) fn write(self, out: &mut String) -> fmt::Result {
        const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Self::Signed(number) => write!(out, "{number}"),
            Self::Unsigned(number) => write!(out, "{number}"),
            Self::Double(number) if number.fract() != 0.0 => write!(out, "{number:?}"),
            Self::Double(number) if (-TWO_TO_63..TWO_TO_63).contains(&number) => write!(out, "{}", number as i64),
            Self::Double(number) if (TWO_TO_63..2.0 * TWO_TO_63).contains(&number) => write!(out, "{}", number as u64),
            Self::Double(number) => write!(out, "{number:?}"),
        }
    }
}

/// A 16-bit float: 1 bit sign, 5 bits exponent (bias 15), 10 bits fraction.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    let magnitude = match bits >> 10 & 0x1f {
        0 => fraction * f64::powi(2.0, -14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction) * f64::powi(2.0, i32::from(exponent) - 15),
    };
    sign * magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_have_the_values_of_ieee_754() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_953_125),
            (0x7bff, 65_504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x0400, 6.103_515_625e-5),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), value, "{bits:04x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn text_is_as_short_as_the_number_allows_and_reads_back() {
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
            Number::Double(number).write(&mut out).unwrap();
            assert_eq!(out, text);
            assert_eq!(out.parse::<f64>().unwrap(), number, "{text}");
        }
    }
}
