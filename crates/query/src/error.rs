//! Errors of queries: position, cause and remedy.

use std::fmt;

/// A query, its parameters or its continuation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// Cause and remedy.
    pub message: String,
    /// Line of the query text, from 1; 0 if the error is not about a place in the text.
    pub line: u32,
    /// Column (in characters) of that line, from 1; 0 if the error is not about a place in the text.
    pub column: u32,
    /// The query is valid, but uses a feature that is not supported, or exceeds a limit. The message names it.
    pub unsupported: bool,
}

impl SqlError {
    /// An error about the whole request rather than a place in the text.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: 0, column: 0, unsupported: false }
    }

    /// An error about the byte `offset` of `text`.
    pub(crate) fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Self {
            message: message.into(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            unsupported: false,
        }
    }

    /// The same error, about a feature that is not available.
    pub(crate) fn unsupported(self) -> Self {
        Self { unsupported: true, ..self }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}
