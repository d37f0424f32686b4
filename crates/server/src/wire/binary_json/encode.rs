//! Text to binary, without recursion.

use changefeed_query::json::{self, Token, unescape_strict};

use super::{
    error::{BinaryJsonError, Problem},
    input::PREAMBLE,
};

/// The markers of containers with a length and a count of one byte; those of two and four bytes follow.
const ARRAY: u8 = 0xe5;
const OBJECT: u8 = 0xed;

/// The binary form of JSON text.
pub(super) fn encode(text: &[u8]) -> Result<Vec<u8>, BinaryJsonError> {
    if u32::try_from(text.len()).is_err() {
        // Then all lengths fit into four bytes.
        return Err(BinaryJsonError::new(0, Problem::TooLarge(u32::MAX as usize)));
    }
    let mut out = Vec::with_capacity(text.len() + 1);
    out.push(PREAMBLE);
    let mut open: Vec<Open> = Vec::new();
    for token in json::tokens(json::check(text).map_err(not_json)?) {
        match token {
            Token::OpenArray => open.push(Open { marker: ARRAY, start: out.len(), values: 0 }),
            Token::OpenObject => open.push(Open { marker: OBJECT, start: out.len(), values: 0 }),
            Token::CloseArray | Token::CloseObject => {
                if let Some(closed) = open.pop() {
                    put_header(&mut out, closed);
                }
            }
            Token::String(string) => put_string(
                &mut out,
                &unescape_strict(string).ok_or_else(|| not_json("a string has an escape that is no character"))?,
            ),
            Token::Literal(literal) => put_literal(&mut out, literal)?,
        }
        if !matches!(token, Token::OpenArray | Token::OpenObject)
            && let Some(around) = open.last_mut()
        {
            around.values += 1;
        }
    }
    Ok(out)
}

/// An array or object whose items are being appended from `start` on. The values of an object include its names.
struct Open {
    marker: u8,
    start: usize,
    values: usize,
}

/// Puts the smallest header before what was appended.
fn put_header(out: &mut Vec<u8>, open: Open) {
    let length = out.len().saturating_sub(open.start);
    let count = if open.marker == OBJECT { open.values / 2 } else { open.values };
    let mut header = Vec::with_capacity(9);
    match length.max(count) {
        0..=0xff => header.extend_from_slice(&[open.marker, length as u8, count as u8]),
        0x100..=0xffff => {
            header.push(open.marker + 1);
            header.extend_from_slice(&(length as u16).to_le_bytes());
            header.extend_from_slice(&(count as u16).to_le_bytes());
        }
        _ => {
            header.push(open.marker + 2);
            header.extend_from_slice(&(length as u32).to_le_bytes());
            header.extend_from_slice(&(count as u32).to_le_bytes());
        }
    }
    out.splice(open.start..open.start, header);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    let length = text.len();
    match length {
        0..=63 => out.push(0x80 | length as u8),
        64..=0xff => out.extend_from_slice(&[0xc0, length as u8]),
        0x100..=0xffff => {
            out.push(0xc1);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
        _ => {
            out.push(0xc2);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

fn put_literal(out: &mut Vec<u8>, literal: &str) -> Result<(), BinaryJsonError> {
    match literal {
        "null" => out.push(0xd0),
        "false" => out.push(0xd1),
        "true" => out.push(0xd2),
        number => put_number(out, number)?,
    }
    Ok(())
}

fn put_number(out: &mut Vec<u8>, number: &str) -> Result<(), BinaryJsonError> {
    // Minus zero is a double: integers have only one zero.
    if let Ok(integer) = number.parse::<i64>()
        && number != "-0"
    {
        match u8::try_from(integer) {
            Ok(small @ 0..=31) => out.push(small),
            _ => {
                out.push(0xcb);
                out.extend_from_slice(&integer.to_le_bytes());
            }
        }
    } else if let Ok(integer) = number.parse::<u64>() {
        out.push(0xc7);
        out.extend_from_slice(&integer.to_le_bytes());
    } else {
        let double = number.parse().unwrap_or(f64::NAN);
        if !double.is_finite() {
            return Err(BinaryJsonError::new(0, Problem::NotJson(format!("the number {number} is too large"))));
        }
        out.push(0xcc);
        out.extend_from_slice(&double.to_le_bytes());
    }
    Ok(())
}

fn not_json(why: &str) -> BinaryJsonError {
    BinaryJsonError::new(0, Problem::NotJson(why.to_owned()))
}
