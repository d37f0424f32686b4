//! The trace: one line per event, hashed as it grows, so that two runs of one seed can be compared byte for byte.

use std::fmt::{self, Write as _};

/// Everything that happened, in order.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    line: String,
    kept: Option<String>,
}

impl Trace {
    /// An empty trace; `keep`: not only its hash.
    pub fn new(keep: bool) -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, events: 0, line: String::new(), kept: keep.then(String::new) }
    }

    /// Adds a line at a moment.
    pub fn event(&mut self, micros: u64, event: fmt::Arguments<'_>) {
        self.line.clear();
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        // Writing to a string cannot fail.
        let written = write!(self.line, "{seconds:>5}.{rest:06} ").and_then(|()| self.line.write_fmt(event));
        debug_assert!(written.is_ok());
        self.line.push('\n');
        self.events += 1;
        self.hash = hash(self.hash, self.line.as_bytes());
        if let Some(kept) = &mut self.kept {
            kept.push_str(&self.line);
        }
    }

    /// The hash of all lines so far.
    pub fn digest(&self) -> u64 {
        self.hash
    }

    /// How many lines there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The lines, if they were kept.
    pub fn into_text(self) -> String {
        self.kept.unwrap_or_default()
    }
}

/// FNV-1a over words of eight bytes: not strong, but any difference shows.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3);
        hash ^= hash >> 29;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_different_byte_gives_another_digest() {
        let digest = |text: &str| {
            let mut trace = Trace::new(false);
            trace.event(1, format_args!("{text}"));
            trace.digest()
        };
        assert_eq!(digest("a host crashed"), digest("a host crashed"));
        assert_ne!(digest("a host crashed"), digest("a host crashes"));
    }
}
