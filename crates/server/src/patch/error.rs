//! Errors of patches.

use std::fmt;

/// A patch that is not valid or cannot be performed. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchError {
    operation: Option<usize>,
    message: String,
}

impl PatchError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { operation: None, message: message.into() }
    }

    pub(super) fn of(operation: usize, message: impl Into<String>) -> Self {
        Self { operation: Some(operation), message: message.into() }
    }

    /// Which operation is at fault, counted from 0, unless it is the patch as a whole.
    pub fn operation(&self) -> Option<usize> {
        self.operation
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.operation {
            write!(f, "operation {operation}, ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for PatchError {}
