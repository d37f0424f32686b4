//! The stderr of a command: passed through as it comes, with its end kept for the error of a failed attempt.

use std::{
    collections::VecDeque,
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, process::ChildStderr, sync::oneshot, task::JoinHandle};

use super::pipe::read_rest;
use crate::{clock, progress::StderrAbove};

/// How many bytes are kept: the end of a stack trace. Errors are stored with dead letters and printed on one line.
const KEPT: usize = 1024;

/// How long to wait until what a command has written was passed on.
const PASSED_WAIT: Duration = Duration::from_millis(100);

/// More than a pipe holds: so much is read at once when the command has ended.
const MOST_REST: usize = 2 << 20;

/// The stderr of a command that runs.
pub(super) struct StderrTail {
    kept: Arc<Mutex<Kept>>,
    command_ended: oneshot::Sender<Asked>,
}

/// Asks for what is in the pipe. Each is dropped in time.
struct Asked {
    until_kept: oneshot::Sender<()>,
    until_passed: oneshot::Sender<()>,
}

/// The last bytes.
#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// Whether there were more.
    cut: bool,
}

impl StderrTail {
    /// Passes stderr through from now on, also if this is dropped: a command must not be stopped by a full pipe.
    #[expect(clippy::disallowed_methods, reason = "the command runs in no simulation")]
    pub(super) fn of(stderr: ChildStderr) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let (command_ended, ended) = oneshot::channel();
        let to = Arc::clone(&kept);
        tokio::spawn(async move { pass_through(stderr, &to, ended).await });
        Self { kept, command_ended }
    }

    /// Returns the end of what was written as one line, once the command has ended.
    pub(super) async fn line(self) -> String {
        let ((until_kept, kept), (until_passed, passed)) = (oneshot::channel(), oneshot::channel());
        // Without anybody who takes it, everything was kept and passed through.
        drop(self.command_ended.send(Asked { until_kept, until_passed }));
        let _ = kept.await;
        // Its words come before what is logged about it, unless nobody reads them.
        let _ = clock::within(PASSED_WAIT, passed).await;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).line()
    }
}

/// Ends with stderr, which a process that the command left behind may keep open. What the command itself has written is
/// there when it has ended.
async fn pass_through(mut stderr: ChildStderr, kept: &Mutex<Kept>, mut command_ended: oneshot::Receiver<Asked>) {
    let keep = |bytes: &[u8]| kept.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    let (mut buffer, mut unwritten, mut is_asked) = (vec![0; 8192], Vec::new(), false);
    let (mut writing, mut until_passed): (Option<JoinHandle<()>>, _) = (None, None);
    loop {
        match (&writing, unwritten.is_empty()) {
            (None, true) => drop(until_passed.take()),
            (None, false) => {
                let bytes = std::mem::take(&mut unwritten);
                // A reader of stderr that is slow must not keep a thread of the host; one that has gone misses it.
                writing = Some(tokio::task::spawn_blocking(move || drop(StderrAbove.write_all(&bytes))));
            }
            (Some(_), _) => {}
        }
        tokio::select! {
            biased;
            asked = &mut command_ended, if !is_asked => {
                is_asked = true;
                let Ok(Asked { until_kept, until_passed: passed }) = asked else { continue };
                until_passed = Some(passed);
                let mut rest = Vec::new();
                // What cannot be read is missing in the error.
                let _ = read_rest(&stderr, &mut rest, MOST_REST);
                keep(&rest);
                unwritten.extend(rest);
                drop(until_kept);
            }
            () = written(&mut writing), if writing.is_some() => writing = None,
            read = stderr.read(&mut buffer), if writing.is_none() => match read {
                Ok(count) if count > 0 => {
                    let bytes = buffer.get(..count).unwrap_or_default();
                    keep(bytes);
                    unwritten.extend(bytes);
                }
                _ => break,
            },
        }
    }
}

async fn written(writing: &mut Option<JoinHandle<()>>) {
    if let Some(writing) = writing {
        let _ = writing.await;
    }
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let more = self.bytes.len().saturating_sub(KEPT);
        self.cut |= more > 0;
        self.bytes.drain(..more);
    }

    /// One line without control characters and colours. Words are separated by single spaces.
    fn line(&self) -> String {
        let mut bytes: Vec<u8> = self.bytes.iter().copied().collect();
        if self.cut {
            // The cut may have left a part of a character.
            let is_rest = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
            let rest = bytes.iter().take_while(is_rest).count();
            bytes.drain(..rest);
        }
        let text = without_escapes(&String::from_utf8_lossy(&bytes));
        let is_shown = |char: &char| char.is_whitespace() || !char.is_control();
        let text: String = text.chars().filter(is_shown).collect();
        let words: Vec<&str> = text.split_whitespace().collect();
        match (words.is_empty(), self.cut) {
            (false, true) => format!("...{}", words.join(" ")),
            _ => words.join(" "),
        }
    }
}

/// A text without the escape sequences of a terminal, such as colours.
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '\u{1b}' {
            plain.push(char);
        } else if chars.next_if_eq(&'[').is_some() {
            // Parameters, up to the letter that ends the sequence.
            while chars.next().is_some_and(|char| !('@'..='~').contains(&char)) {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(parts: &[&[u8]]) -> String {
        let mut kept = Kept::default();
        parts.iter().for_each(|part| kept.push(part));
        kept.line()
    }

    #[test]
    fn the_end_is_one_line_of_valid_text() {
        assert_eq!(line(&[]), "");
        assert_eq!(line(&[b"Traceback:\n\tfile x\r\n", b"  ValueError: 7\n"]), "Traceback: file x ValueError: 7");
        assert_eq!(line(&[b"\x1b[1;31merror\x1b[0m: \x07no\x00 disk \xff"]), "error: no disk \u{fffd}");
    }

    #[test]
    fn a_long_text_keeps_its_end_and_no_part_of_a_character() {
        let long = "ä".repeat(KEPT);
        let kept = line(&[b"first ", long.as_bytes(), b"z"]);
        assert_eq!(kept, format!("...{}z", "ä".repeat(KEPT / 2 - 1)));
    }
}
