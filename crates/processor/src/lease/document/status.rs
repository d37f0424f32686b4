//! What the owner of a lease is doing, as the lease stores it: structured, for `explain`.

use serde::{Deserialize, Serialize};

/// The longest text that is stored, in characters: it may quote an error of any length.
const TEXT_CHARS: usize = 300;

/// How many of these characters are the beginning of a longer text. The rest is its end, where most errors name their cause.
const BEGIN_CHARS: usize = 100;

/// What stands for the middle of a longer text.
const LEFT_OUT: &str = " ... ";

/// What the owner of a lease is doing, if it is neither delivering nor waiting for changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// A batch failed and is retried.
    Retrying {
        /// Failed attempts.
        attempts: u32,
        /// Attempts before failed items are searched for, with a dead-letter container.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<u32>,
        /// The last error.
        error: String,
    },
    /// Items fail one after the other and none succeeds: they are retried, not dead-lettered.
    Outage {
        /// How often it was detected.
        detected: u32,
        /// The last error.
        error: String,
    },
    /// A delegate call has been running for at least so many seconds.
    Calling {
        /// Seconds.
        seconds: u64,
    },
    /// The feed cannot be read.
    ReadFailing {
        /// Whether the store throttles.
        throttled: bool,
        /// The last error.
        error: String,
    },
    /// The dead-letter container cannot be written.
    DeadLetterFailing {
        /// The last error.
        error: String,
    },
    /// A line that a host of version 1 wrote.
    Text {
        /// The line.
        text: String,
    },
}

impl Status {
    /// Reads `cf.status`; `None` if it is not valid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("invariant: texts and numbers always serialise")
    }
}

/// Makes an error message one line of at most 300 characters; a longer one loses its middle.
pub(crate) fn one_line(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let count = text.chars().count();
    if count <= TEXT_CHARS {
        return text.chars().map(printable).collect();
    }
    let end = TEXT_CHARS - BEGIN_CHARS - LEFT_OUT.len();
    let chars = text.chars().take(BEGIN_CHARS).chain(LEFT_OUT.chars()).chain(text.chars().skip(count - end));
    chars.map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_keeps_its_beginning_and_its_end_on_one_line() {
        assert_eq!(one_line("smtp:\ndown"), "smtp: down");
        let long = format!("the command ended: {}ValueError: 7", "frame\n".repeat(100));
        let line = one_line(&long);
        assert_eq!(line.chars().count(), TEXT_CHARS);
        assert!(line.starts_with("the command ended: frame frame"), "{line}");
        assert!(line.contains(" ... ") && line.ends_with("frame ValueError: 7"), "{line}");
        assert_eq!(one_line(&"ä".repeat(TEXT_CHARS)), "ä".repeat(TEXT_CHARS));
    }
}
