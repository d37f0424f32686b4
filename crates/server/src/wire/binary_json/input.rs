//! A cursor that cannot leave the value it is in.

use super::error::{BinaryJsonError, Problem};

/// The first byte of every buffer. No JSON text starts with it.
pub const PREAMBLE: u8 = 0x80;

/// Bytes yet to be read, up to the end of the innermost array or object.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: bytes.len() }
    }

    /// The part of the same buffer from `at` to `end`; nothing where there is no such part.
    pub(super) fn part(&self, at: usize, end: usize) -> Self {
        Self { bytes: self.bytes, at, end: end.min(self.bytes.len()) }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Moves the end: inwards when an array or object opens, back outwards when it closes.
    pub(super) fn set_end(&mut self, end: usize) {
        self.end = end.min(self.bytes.len());
    }

    /// The offset `length` bytes ahead, if it is still inside.
    pub(super) fn ahead(&self, length: usize) -> Result<usize, BinaryJsonError> {
        match self.at.checked_add(length) {
            Some(end) if end <= self.end => Ok(end),
            _ => Err(self.error(Problem::Truncated)),
        }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], BinaryJsonError> {
        let end = self.ahead(length)?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.error(Problem::Truncated))?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, BinaryJsonError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], BinaryJsonError> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| BinaryJsonError::new(at, Problem::Truncated))
    }

    /// A length, count or offset of `width` bytes, at most four.
    pub(super) fn size(&mut self, width: usize) -> Result<usize, BinaryJsonError> {
        Ok(self.take(width)?.iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte)))
    }

    pub(super) fn error(&self, problem: Problem) -> BinaryJsonError {
        BinaryJsonError::new(self.at, problem)
    }
}
