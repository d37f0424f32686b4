//! Numbers of all sizes.

use std::fmt::Write as _;

use super::{error::BinaryJsonError, input::Input};
use crate::wire::number::write_double;

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

    /// Appends JSON text. The number has to be finite.
    pub(super) fn write(self, out: &mut String) {
        let written = match self {
            Self::Signed(number) => write!(out, "{number}"),
            Self::Unsigned(number) => write!(out, "{number}"),
            Self::Double(number) => {
                write_double(number, out);
                Ok(())
            }
        };
        written.expect("invariant: a string can always be appended to");
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
}
