//! Binary to text, without recursion.

use std::borrow::Cow;

use changefeed_query::json::MAX_DEPTH;

use super::{
    error::{BinaryJsonError, Problem},
    input::{Input, PREAMBLE},
    number::Number,
    string,
};

/// JSON text of a buffer, at most `limit` bytes of it.
pub(super) fn decode(bytes: &[u8], limit: usize) -> Result<Vec<u8>, BinaryJsonError> {
    let mut input = Input::new(bytes);
    if input.byte() != Ok(PREAMBLE) {
        return Err(BinaryJsonError::new(0, Problem::NotBinary));
    }
    let mut decoder = Decoder {
        input,
        out: String::with_capacity(bytes.len().saturating_mul(2).min(limit)),
        limit,
        open: Vec::new(),
        strings: Starts::new(bytes.len()),
    };
    loop {
        decoder.value()?;
        if !decoder.go_on()? {
            break;
        }
    }
    if decoder.input.at() < decoder.input.end() {
        return Err(decoder.input.error(Problem::Trailing));
    }
    Ok(decoder.out.into_bytes())
}

struct Decoder<'a> {
    input: Input<'a>,
    out: String,
    limit: usize,
    open: Vec<Open>,
    strings: Starts,
}

/// An array or object that is being read.
struct Open {
    closing: char,
    /// Its end, if it has a length.
    end: Option<usize>,
    /// The number of items or members that are left, if it has a count.
    left: Option<usize>,
    /// Where the array or object around it ends.
    end_around: usize,
    is_first: bool,
}

impl<'a> Decoder<'a> {
    /// Reads one value; of an array or object only what precedes its items.
    fn value(&mut self) -> Result<(), BinaryJsonError> {
        let at = self.input.at();
        let marker = self.input.byte()?;
        match marker {
            0xd0 => self.out.push_str("null"),
            0xd1 => self.out.push_str("false"),
            0xd2 => self.out.push_str("true"),
            0xd3 => self.guid()?,
            0xdd => self.bytes(1)?,
            0xde => self.bytes(2)?,
            0xdf => self.bytes(4)?,
            0xe0..=0xef => self.open(marker, at)?,
            0xf0 => self.numbers(1, at)?,
            0xf1 => self.numbers(2, at)?,
            0xf2 => self.arrays_of_numbers(1, at)?,
            0xf3 => self.arrays_of_numbers(2, at)?,
            _ => match Number::read(marker, &mut self.input)? {
                Some(number) => self.number(number, at)?,
                None => match self.string(marker, at)? {
                    Some(text) => self.text(&text, at)?,
                    None => return Err(BinaryJsonError::new(at, Problem::UnknownMarker(marker))),
                },
            },
        }
        self.check_room(0, at)
    }

    /// Closes what is complete. Returns whether another value follows, having read its name if it needs one.
    fn go_on(&mut self) -> Result<bool, BinaryJsonError> {
        while let Some(open) = self.open.last_mut() {
            let at = self.input.at();
            let is_complete = match (open.end, open.left) {
                (Some(end), Some(left)) if (at == end) != (left == 0) => {
                    return Err(BinaryJsonError::new(at, Problem::WrongCount));
                }
                (Some(end), _) => at == end,
                (None, left) => left == Some(0),
            };
            if is_complete {
                self.out.push(open.closing);
                self.input.set_end(open.end_around);
                self.open.pop();
                self.check_room(0, at)?;
                continue;
            }
            if !std::mem::replace(&mut open.is_first, false) {
                self.out.push(',');
            }
            open.left = open.left.map(|left| left.saturating_sub(1));
            if open.closing == '}' {
                self.name()?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn name(&mut self) -> Result<(), BinaryJsonError> {
        let at = self.input.at();
        let marker = self.input.byte()?;
        let name = self.string(marker, at)?.ok_or_else(|| BinaryJsonError::new(at, Problem::NotAName))?;
        self.text(&name, at)?;
        self.out.push(':');
        Ok(())
    }

    /// Arrays are `E0` to `E7`, objects the same eight shapes from `E8`.
    fn open(&mut self, marker: u8, at: usize) -> Result<(), BinaryJsonError> {
        self.check_depth(1, at)?;
        let is_object = marker >= 0xe8;
        let end_around = self.input.end();
        let (length, left) = match marker & 7 {
            0 => (None, Some(0)),
            1 => (None, Some(1)),
            2 => (Some(self.input.size(1)?), None),
            3 => (Some(self.input.size(2)?), None),
            4 => (Some(self.input.size(4)?), None),
            5 => (Some(self.input.size(1)?), Some(self.input.size(1)?)),
            6 => (Some(self.input.size(2)?), Some(self.input.size(2)?)),
            _ => (Some(self.input.size(4)?), Some(self.input.size(4)?)),
        };
        let end = length.map(|length| self.input.ahead(length)).transpose()?;
        self.input.set_end(end.unwrap_or(end_around));
        self.out.push(if is_object { '{' } else { '[' });
        let closing = if is_object { '}' } else { ']' };
        self.open.push(Open { closing, end, left, end_around, is_first: true });
        Ok(())
    }

    /// An array of numbers that share one marker: the marker, the count, the numbers.
    fn numbers(&mut self, width: usize, at: usize) -> Result<(), BinaryJsonError> {
        self.check_depth(1, at)?;
        let marker = self.input.byte()?;
        let count = self.input.size(width)?;
        self.run_of_numbers(marker, count, at)
    }

    /// An array of such arrays of equal length: their marker, that of the numbers, the length of each, their count.
    fn arrays_of_numbers(&mut self, width: usize, at: usize) -> Result<(), BinaryJsonError> {
        self.check_depth(2, at)?;
        let inner = self.input.byte()?;
        if inner != if width == 1 { 0xf0 } else { 0xf1 } {
            return Err(BinaryJsonError::new(at, Problem::UnknownMarker(inner)));
        }
        let marker = self.input.byte()?;
        let length = self.input.size(width)?;
        let count = self.input.size(width)?;
        self.out.push('[');
        for index in 0..count {
            if index > 0 {
                self.out.push(',');
            }
            self.run_of_numbers(marker, length, at)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn run_of_numbers(&mut self, marker: u8, count: usize, at: usize) -> Result<(), BinaryJsonError> {
        // Also without any number the marker has to be one.
        let is_typed = matches!(marker, 0xcd..=0xcf | 0xd7..=0xdc);
        if !is_typed {
            return Err(BinaryJsonError::new(at, Problem::UnknownMarker(marker)));
        }
        self.out.push('[');
        for index in 0..count {
            if index > 0 {
                self.out.push(',');
            }
            let number = Number::read_typed(marker, &mut self.input)?;
            let number = number.ok_or_else(|| BinaryJsonError::new(at, Problem::UnknownMarker(marker)))?;
            self.number(number, at)?;
        }
        self.out.push(']');
        self.check_room(0, at)
    }

    fn number(&mut self, number: Number, at: usize) -> Result<(), BinaryJsonError> {
        if !number.is_finite() {
            return Err(BinaryJsonError::new(at, Problem::NotFinite));
        }
        number.write(&mut self.out);
        self.check_room(0, at)
    }

    fn guid(&mut self) -> Result<(), BinaryJsonError> {
        let at = self.input.at();
        let text = string::guid(&mut self.input)?;
        self.text(&text, at)
    }

    fn bytes(&mut self, width: usize) -> Result<(), BinaryJsonError> {
        let at = self.input.at();
        let text = string::bytes(&mut self.input, width)?;
        self.text(&text, at)
    }

    /// The string of this marker, also where it is a reference.
    fn string(&mut self, marker: u8, at: usize) -> Result<Option<Cow<'a, str>>, BinaryJsonError> {
        if !matches!(marker, 0xc3..=0xc6) {
            self.strings.insert(at);
            return string::read(marker, &mut self.input);
        }
        let target = self.input.size(usize::from(marker - 0xc2))?;
        if target >= at || !self.strings.contains(target) {
            return Err(BinaryJsonError::new(at, Problem::BadReference));
        }
        let mut there = self.input.part(target, at);
        let marker = there.byte()?;
        string::read(marker, &mut there)
    }

    fn text(&mut self, text: &str, at: usize) -> Result<(), BinaryJsonError> {
        // Checked before anything is written: escapes can make text six times as long.
        self.check_room(text.len(), at)?;
        self.check_room(string::written_length(text), at)?;
        string::write(text, &mut self.out);
        Ok(())
    }

    fn check_room(&self, more: usize, at: usize) -> Result<(), BinaryJsonError> {
        let fits = self.out.len().checked_add(more).is_some_and(|length| length <= self.limit);
        if fits { Ok(()) } else { Err(BinaryJsonError::new(at, Problem::TooLarge(self.limit))) }
    }

    fn check_depth(&self, more: usize, at: usize) -> Result<(), BinaryJsonError> {
        let fits = self.open.len() + more <= MAX_DEPTH;
        if fits { Ok(()) } else { Err(BinaryJsonError::new(at, Problem::TooDeep)) }
    }
}

/// Where strings start in the buffer, one bit for each byte of it: a reference has to lead to one of them.
struct Starts(Vec<u64>);

impl Starts {
    fn new(length: usize) -> Self {
        Self(vec![0; length.div_ceil(64)])
    }

    fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}
