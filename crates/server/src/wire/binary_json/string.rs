//! Strings in all their stored forms, and their escapes in text.

use std::borrow::Cow;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};

use super::{
    error::{BinaryJsonError, Problem},
    input::Input,
};

/// The strings of markers `20` to `3F`, in this order.
const WELL_KNOWN: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

/// The string that follows `marker`, or nothing if the marker is not one of a string. References are not resolved here:
/// they need the whole buffer.
pub(super) fn read<'a>(marker: u8, input: &mut Input<'a>) -> Result<Option<Cow<'a, str>>, BinaryJsonError> {
    Ok(Some(match marker {
        0x20..=0x3f => WELL_KNOWN.get(usize::from(marker - 0x20)).copied().unwrap_or_default().into(),
        0x40..=0x67 => return Err(input.error(Problem::UserDictionary)),
        0x71 => base64_text(input, 1, &BASE64_STANDARD)?,
        0x72 => base64_text(input, 2, &BASE64_STANDARD)?,
        0x73 => base64_text(input, 1, &BASE64_URL_SAFE)?,
        0x74 => base64_text(input, 2, &BASE64_URL_SAFE)?,
        0x75 => guid_text(input, LOWER_HEX)?.into(),
        0x76 => guid_text(input, UPPER_HEX)?.into(),
        0x77 => format!("\"{}\"", guid_text(input, LOWER_HEX)?).into(),
        0x78 => packed(input, Packing { bits: 4, width: 1, characters: Characters::Table(LOWER_HEX) })?,
        0x79 => packed(input, Packing { bits: 4, width: 1, characters: Characters::Table(UPPER_HEX) })?,
        0x7a => packed(input, Packing { bits: 4, width: 1, characters: Characters::Table(DATE_TIME) })?,
        0x7b => packed(input, Packing { bits: 4, width: 1, characters: Characters::FromBase })?,
        0x7c => packed(input, Packing { bits: 5, width: 1, characters: Characters::FromBase })?,
        0x7d => packed(input, Packing { bits: 6, width: 1, characters: Characters::FromBase })?,
        0x7e => packed(input, Packing { bits: 7, width: 1, characters: Characters::Ascii })?,
        0x7f => packed(input, Packing { bits: 7, width: 2, characters: Characters::Ascii })?,
        0x80..=0xbf => plain(input, usize::from(marker - 0x80))?,
        0xc0 => sized(input, 1)?,
        0xc1 => sized(input, 2)?,
        0xc2 => sized(input, 4)?,
        _ => return Ok(None),
    }))
}

/// A GUID that was stored as a value rather than as text: its first three groups are little endian.
pub(super) fn guid(input: &mut Input<'_>) -> Result<String, BinaryJsonError> {
    let [a, b, c, d, e, f, g, h, rest @ ..]: [u8; 16] = input.array()?;
    let (first, second, third) =
        (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
    let rest = u64::from_be_bytes(rest);
    Ok(format!("{first:08x}-{second:04x}-{third:04x}-{:04x}-{:012x}", rest >> 48, rest & 0xffff_ffff_ffff))
}

/// Bytes with a length of `width` bytes, as base64: JSON has no better word for them.
pub(super) fn bytes(input: &mut Input<'_>, width: usize) -> Result<String, BinaryJsonError> {
    let length = input.size(width)?;
    Ok(BASE64_STANDARD.encode(input.take(length)?))
}

/// Appends a string as JSON text.
pub(super) fn write(text: &str, out: &mut String) {
    out.push('"');
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0x00..=0x1f => "\\u00",
            _ => continue,
        };
        // Escaped bytes are ASCII, so both ends of the slice are between characters.
        out.push_str(text.get(written..at).unwrap_or_default());
        out.push_str(short);
        if short.ends_with('0') {
            out.push(nibble(LOWER_HEX, byte >> 4).into());
            out.push(nibble(LOWER_HEX, byte & 0xf).into());
        }
        written = at + 1;
    }
    out.push_str(text.get(written..).unwrap_or_default());
    out.push('"');
}

/// Returns the number of bytes that [`write`] appends.
pub(super) fn written_length(text: &str) -> usize {
    let escaped = |byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0x00..=0x1f => 6,
        _ => 1,
    };
    text.bytes().fold(2_usize, |length, byte| length.saturating_add(escaped(byte)))
}

fn plain<'a>(input: &mut Input<'a>, length: usize) -> Result<Cow<'a, str>, BinaryJsonError> {
    let at = input.at();
    let text = std::str::from_utf8(input.take(length)?);
    text.map(Cow::Borrowed).map_err(|_| BinaryJsonError::new(at, Problem::NotUtf8))
}

fn sized<'a>(input: &mut Input<'a>, width: usize) -> Result<Cow<'a, str>, BinaryJsonError> {
    let length = input.size(width)?;
    plain(input, length)
}

/// Text that is base64: the number of its groups of four characters, its padding, the bytes it stands for. The padding is
/// the number of `=`, or that number inverted if the text goes without them.
fn base64_text<'a>(
    input: &mut Input<'_>,
    width: usize,
    alphabet: &base64::engine::GeneralPurpose,
) -> Result<Cow<'a, str>, BinaryJsonError> {
    let groups = input.size(width)?;
    let (padding, written) = match input.byte()? {
        padding @ 0..=2 => (padding, true),
        inverted @ 0xfd..=0xff => (!inverted, false),
        _ => return Err(input.error(Problem::BadPacking)),
    };
    let Some(length) = (groups * 3).checked_sub(padding.into()) else {
        return Err(input.error(Problem::BadPacking));
    };
    let mut text = alphabet.encode(input.take(length)?);
    if !written {
        text.truncate(text.trim_end_matches('=').len());
    }
    Ok(text.into())
}

/// A GUID in text, stored as its hexadecimal digits: the lower half of each byte is the digit that comes first.
fn guid_text(input: &mut Input<'_>, digits: &[u8; 16]) -> Result<String, BinaryJsonError> {
    let mut text = String::with_capacity(36);
    for (at, byte) in input.array::<16>()?.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(nibble(digits, byte & 0xf).into());
        text.push(nibble(digits, byte >> 4).into());
    }
    Ok(text)
}

/// How the characters of a string were packed.
struct Packing {
    bits: usize,
    width: usize,
    characters: Characters,
}

/// The character of a packed value.
enum Characters {
    /// A place in this table.
    Table(&'static [u8; 16]),
    /// A distance from the character that precedes the packed values.
    FromBase,
    /// A character.
    Ascii,
}

fn packed<'a>(input: &mut Input<'_>, packing: Packing) -> Result<Cow<'a, str>, BinaryJsonError> {
    let length = input.size(packing.width)?;
    let base = if matches!(packing.characters, Characters::FromBase) { input.byte()? } else { 0 };
    let at = input.at();
    let wrong = || BinaryJsonError::new(at, Problem::BadPacking);
    let mask = (1_u32 << packing.bits) - 1;
    let (mut window, mut bits) = (0_u32, 0);
    let mut text = String::with_capacity(length);
    for byte in input.take((length * packing.bits).div_ceil(8))? {
        window |= u32::from(*byte) << bits;
        bits += 8;
        while bits >= packing.bits && text.len() < length {
            let value = (window & mask) as u8;
            window >>= packing.bits;
            bits -= packing.bits;
            let character = match packing.characters {
                Characters::Table(table) => nibble(table, value),
                Characters::FromBase => base.checked_add(value).ok_or_else(wrong)?,
                Characters::Ascii => value,
            };
            if !character.is_ascii() {
                return Err(wrong());
            }
            text.push(character.into());
        }
    }
    if window != 0 { Err(wrong()) } else { Ok(text.into()) }
}

fn nibble(table: &[u8; 16], value: u8) -> u8 {
    table[usize::from(value & 0xf)]
}
