//! The encoding: numbers with seven bits in each byte, lowest first; texts and bytes after their length.

use std::{fmt, time::Duration};

use bytes::Bytes;

/// Room for a number or a short text.
const SMALL: usize = 16;

/// What can be sent. Types that are a text on the wire are checked when they are read.
pub trait Wire: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// About how many bytes it takes, so that a page of items is not copied from one buffer to the next while it grows.
    fn size_hint(&self) -> usize {
        SMALL
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not one.
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Encodes one message.
pub fn encode(message: &impl Wire) -> Bytes {
    let mut out = Vec::with_capacity(message.size_hint());
    message.put(&mut out);
    out.into()
}

/// Decodes one message, which must be all there is. Bodies of items are slices of `bytes`, not copies.
///
/// # Errors
/// [`Malformed`] if the bytes are not exactly one message of this type.
pub fn decode<T: Wire>(bytes: Bytes) -> Result<T, Malformed> {
    decode_parts(&[bytes])
}

/// Decodes one message that was received in several parts, without joining them: only a value that is spread over two
/// parts is copied.
///
/// # Errors
/// [`Malformed`] if the parts together are not exactly one message of this type.
pub fn decode_parts<T: Wire>(parts: &[Bytes]) -> Result<T, Malformed> {
    let mut input = Reader::new(parts);
    let value = T::read_from(&mut input)?;
    if input.remaining() == 0 { Ok(value) } else { Err(Malformed("bytes follow the message")) }
}

/// Bytes that are not the message they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) &'static str);

const ENDS_EARLY: Malformed = Malformed("it ends early");

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// A message in one or several parts, and how far it was read.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The part that is being read.
    part: &'a Bytes,
    /// What was not read yet of this part: its end.
    rest: &'a [u8],
    /// The parts after this one.
    later: &'a [Bytes],
}

/// What a message without any part is read from.
static NOTHING: Bytes = Bytes::new();

impl<'a> Reader<'a> {
    fn new(parts: &'a [Bytes]) -> Self {
        match parts.split_first() {
            Some((part, later)) => Self { part, rest: part, later },
            None => Self { part: &NOTHING, rest: &[], later: &[] },
        }
    }

    /// How many bytes were not read yet.
    fn remaining(&self) -> usize {
        self.rest.len() + self.later.iter().map(Bytes::len).sum::<usize>()
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Malformed> {
        if let Some((byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok(*byte);
        }
        self.next_part()?;
        self.byte()
    }

    #[cold]
    fn next_part(&mut self) -> Result<(), Malformed> {
        let (part, later) = self.later.split_first().ok_or(ENDS_EARLY)?;
        (self.part, self.rest, self.later) = (part, part, later);
        Ok(())
    }

    /// Passes the next bytes to `read`, in place: sharing them would cost two atomic operations for each text of a page.
    #[inline]
    pub(crate) fn with_bytes<T>(
        &mut self,
        count: usize,
        read: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                read(taken)
            }
            None => read(&self.joined(count)?),
        }
    }

    /// The next bytes, which share memory with the message unless they are spread over several parts.
    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<Bytes, Malformed> {
        let begin = self.part.len() - self.rest.len();
        match self.rest.get(count..) {
            Some(rest) => {
                self.rest = rest;
                Ok(self.part.slice(begin..begin + count))
            }
            None => self.joined(count).map(Bytes::from),
        }
    }

    /// The next bytes, copied from several parts.
    #[cold]
    fn joined(&mut self, count: usize) -> Result<Vec<u8>, Malformed> {
        // A count that lies does not reserve memory.
        if count > self.remaining() {
            return Err(ENDS_EARLY);
        }
        let mut joined = Vec::with_capacity(count);
        loop {
            let (taken, rest) = self.rest.split_at(self.rest.len().min(count - joined.len()));
            joined.extend_from_slice(taken);
            self.rest = rest;
            if joined.len() == count {
                return Ok(joined);
            }
            self.next_part()?;
        }
    }
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.byte()
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            // The lowest seven bits, and the mark that more follow.
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            byte if byte < 0x80 => Ok(byte.into()),
            first => long_number(first, input),
        }
    }
}

/// The rest of a number of several bytes.
fn long_number(first: u8, input: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut value = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = input.byte()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed("a number has more than 64 bits"))
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::read_from(input)?.try_into().map_err(|_| Malformed("a number has more than 32 bits"))
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::read_from(input)?.try_into().map_err(|_| Malformed("a number is too large for this machine"))
    }
}

impl Wire for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.with_bytes(size_of::<Self>(), |bytes| Ok(Self::from_le_bytes(bytes.try_into().map_err(|_| ENDS_EARLY)?)))
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (seconds, nanos) = (u64::read_from(input)?, u32::read_from(input)?);
        if nanos >= 1_000_000_000 {
            Err(Malformed("a duration has too many nanoseconds"))
        } else {
            Ok(Self::new(seconds, nanos))
        }
    }
}

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self);
    }

    fn size_hint(&self) -> usize {
        SMALL + self.len()
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = usize::read_from(input)?;
        input.bytes(count)
    }
}

/// Appends a text.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    text.len().put(out);
    out.extend_from_slice(text.as_bytes());
}

/// Reads a text with `read`.
pub(crate) fn take_text<T>(
    input: &mut Reader<'_>,
    read: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let count = usize::read_from(input)?;
    input.with_bytes(count, |bytes| read(std::str::from_utf8(bytes).map_err(|_| Malformed("a text is not UTF-8"))?))
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self, out);
    }

    fn size_hint(&self) -> usize {
        SMALL + self.len()
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        take_text(input, |text| Ok(text.to_owned()))
    }
}

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn read_from(_: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn size_hint(&self) -> usize {
        1 + self.as_ref().map_or(0, T::size_hint)
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        if bool::read_from(input)? { T::read_from(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn size_hint(&self) -> usize {
        SMALL + self.iter().map(T::size_hint).sum::<usize>()
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = usize::read_from(input)?;
        // Every value has at least one byte: a count that lies does not reserve memory.
        let mut values = Self::with_capacity(count.min(input.remaining()));
        for _ in 0..count {
            values.push(T::read_from(input)?);
        }
        Ok(values)
    }
}

macro_rules! wire_tuple {
    ($($name:ident: $index:tt),+) => {
        impl<$($name: Wire),+> Wire for ($($name,)+) {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$index.put(out);)+
            }

            fn size_hint(&self) -> usize {
                0 $(+ self.$index.size_hint())+
            }

            fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(($($name::read_from(input)?,)+))
            }
        }
    };
}

wire_tuple!(A: 0, B: 1);
wire_tuple!(A: 0, B: 1, C: 2);
wire_tuple!(A: 0, B: 1, C: 2, D: 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            assert_eq!(decode::<u64>(encode(&number)), Ok(number));
        }
        assert_eq!(encode(&300_u64), [0xac, 0x02].as_slice());
        for too_large in [&[0xff; 10][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02]] {
            let refused = decode::<u64>(Bytes::copy_from_slice(too_large));
            assert_eq!(refused, Err(Malformed("a number has more than 64 bits")));
        }
    }

    #[test]
    fn every_cut_and_every_addition_is_refused() {
        let message = (vec![Some("a".to_owned()), None], Bytes::from_static(b"xyz"), 1.5, Duration::from_millis(7));
        let whole = encode(&message);
        assert_eq!(decode(whole.clone()), Ok(message));
        type Message = (Vec<Option<String>>, Bytes, f64, Duration);
        for length in 0..whole.len() {
            assert!(decode::<Message>(whole.slice(..length)).is_err(), "{length}");
        }
        let longer = [&whole[..], b"x"].concat();
        assert_eq!(decode::<Message>(longer.into()), Err(Malformed("bytes follow the message")));
    }

    #[test]
    fn a_message_in_parts_is_the_same_wherever_it_is_cut() {
        type Message = (Vec<Option<String>>, Bytes, f64, u64);
        let message = (vec![Some("text".to_owned()), None], Bytes::from_static(b"xyz"), 1.5, 1 << 40);
        let whole = encode(&message);
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let parts = [whole.slice(..first), whole.slice(first..second), Bytes::new(), whole.slice(second..)];
                assert_eq!(decode_parts::<Message>(&parts), Ok(message.clone()), "{first}, {second}");
            }
            let early = [whole.slice(..first), whole.slice(first..whole.len().saturating_sub(1).max(first))];
            assert!(decode_parts::<Message>(&early).is_err() || first == whole.len(), "{first}");
        }
        assert_eq!(decode_parts::<()>(&[]), Ok(()));
        assert_eq!(decode_parts::<u64>(&[]), Err(ENDS_EARLY));
        let lie = [encode(&u64::MAX), Bytes::from_static(b"more")];
        assert_eq!(decode_parts::<Bytes>(&lie), Err(ENDS_EARLY), "without reserving memory");
    }

    #[test]
    fn only_what_is_spread_over_parts_is_copied() {
        let whole = encode(&(Bytes::from_static(b"first"), Bytes::from_static(b"second")));
        let parts = [whole.slice(..8), whole.slice(8..)];
        let (first, second): (Bytes, Bytes) = decode_parts(&parts).unwrap();
        assert_eq!(first.as_ptr(), whole[1..].as_ptr());
        assert_eq!(second, "second");
    }

    #[test]
    fn a_count_that_lies_is_refused_without_reserving_memory() {
        let lie = encode(&u64::MAX);
        assert_eq!(decode::<Vec<u8>>(lie.clone()), Err(Malformed("it ends early")));
        assert_eq!(decode::<Bytes>(lie), Err(Malformed("it ends early")));
        assert_eq!(decode::<String>(Bytes::from_static(&[2, 0xff, 0xfe])), Err(Malformed("a text is not UTF-8")));
        assert_eq!(decode::<bool>(Bytes::from_static(&[2])), Err(Malformed("a flag is neither 0 nor 1")));
    }
}
