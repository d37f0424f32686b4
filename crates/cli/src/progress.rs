//! Indicator of what may last, on stderr if that is a terminal; nothing is drawn elsewhere, nor for what is done at once.

use std::{
    io::{self, IsTerminal as _, Write},
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;

use crate::terminal;

/// What is done sooner is not worth a look.
const DELAY: Duration = Duration::from_millis(500);

/// How often a picture moves while nothing happens.
const TICK: Duration = Duration::from_millis(120);

/// Below this width there is no room for more than a bar and how much is left.
const NARROW: usize = 60;

/// All that is drawn, so that other lines can be written above it.
static DRAWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// How many are drawn.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether nothing may be drawn.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Lines of the log that came while a picture had the terminal.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// So many different lines are kept: enough to see what happened.
const MOST_KEPT: usize = 100;

/// A bar, a count or a spinner; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Indicator {
    bar: ProgressBar,
    what: &'static str,
    /// The thread that draws it after a while, unless the sender is gone before.
    drawer: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Indicator {
    /// Something that is waited for.
    pub(crate) fn waiting(message: impl Into<String>) -> Self {
        Self::draw(ProgressBar::new_spinner().with_message(message.into()), "{spinner} {wide_msg}".to_owned(), "")
    }

    /// So many of `what`; nobody knows how many there will be.
    pub(crate) fn counting(what: &'static str) -> Self {
        Self::draw(ProgressBar::new_spinner(), format!("{{spinner}} {{pos}} {what}, {{rate}}"), what)
    }

    /// So many of a number of `what`.
    pub(crate) fn of(total: u64, what: &'static str) -> Self {
        Self::draw(ProgressBar::new(total), bar_template(what), what)
    }

    /// So many of a number of bytes, `done` to them.
    pub(crate) fn of_bytes(total: u64, done: &'static str) -> Self {
        let template = match is_narrow() {
            true => format!("{{wide_bar}} {{percent}}% {done}"),
            false => format!("{{wide_bar}} {{bytes}} of {{total_bytes}} {done}, {{eta}} left"),
        };
        Self::draw(ProgressBar::new(total), template, done)
    }

    fn draw(bar: ProgressBar, template: String, what: &'static str) -> Self {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_style(style(&template));
        let is_seen = io::stderr().is_terminal() && !HIDDEN.load(Ordering::Acquire);
        let drawer = is_seen.then(|| draw_later(&bar));
        Self { bar, what, drawer: drawer.and_then(Result::ok) }
    }

    /// There are so many more.
    pub(crate) fn inc(&self, count: u64) {
        self.bar.inc(count);
    }

    /// There are so many.
    pub(crate) fn set(&self, count: u64) {
        self.bar.set_position(count);
    }

    /// So many are left: what was counted is a bar from now on.
    pub(crate) fn set_left(&self, left: u64) {
        self.set_total(self.bar.position() + left);
    }

    /// There will be so many.
    pub(crate) fn set_total(&self, total: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(style(&bar_template(self.what)));
        }
        self.bar.set_length(total);
    }

    /// Whether anybody sees it.
    pub(crate) fn is_seen(&self) -> bool {
        self.drawer.is_some()
    }
}

impl Drop for Indicator {
    fn drop(&mut self) {
        if let Some((sender, drawer)) = self.drawer.take() {
            drop(sender);
            // It does nothing that could fail.
            drop(drawer.join());
        }
    }
}

/// Draws a bar if it is still there after a while, until the sender is gone.
fn draw_later(bar: &ProgressBar) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (sender, ended) = channel::<()>();
    let bar = bar.clone();
    let drawer = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
        if ended.recv_timeout(DELAY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = DRAWN.add(bar);
        COUNT.fetch_add(1, Ordering::AcqRel);
        bar.enable_steady_tick(TICK);
        // Nothing is sent: the sender is dropped.
        let _ = ended.recv();
        bar.finish_and_clear();
        DRAWN.remove(&bar);
        COUNT.fetch_sub(1, Ordering::AcqRel);
    })?;
    Ok((sender, drawer))
}

/// Draws nothing from now on, and keeps what is logged: the terminal belongs to a picture.
pub(crate) fn hide() {
    HIDDEN.store(true, Ordering::Release);
}

/// The picture is gone: writes what was kept.
pub(crate) fn reveal() {
    HIDDEN.store(false, Ordering::Release);
    for line in std::mem::take(&mut *KEPT.lock()) {
        // If nobody can read it, there is nobody to tell.
        drop(io::stderr().write_all(&line));
    }
}

/// Writes something while nothing is drawn where it goes.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    match COUNT.load(Ordering::Acquire) {
        // Without the lock: a reader that is slow must not stop those who have something to say elsewhere.
        0 => write(),
        _ => DRAWN.suspend(write),
    }
}

/// stderr, for lines that come while something may be drawn there.
#[derive(Debug)]
pub(crate) struct StderrAbove;

impl Write for StderrAbove {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if HIDDEN.load(Ordering::Acquire) {
            let mut kept = KEPT.lock();
            // What is repeated with each picture is kept once.
            if kept.len() < MOST_KEPT && !kept.iter().any(|line| line == bytes) {
                kept.push(bytes.to_vec());
            }
            return Ok(bytes.len());
        }
        above(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn bar_template(what: &str) -> String {
    match is_narrow() {
        true => format!("{{wide_bar}} {{percent}}% of {what}"),
        false => format!("{{wide_bar}} {{pos}}/{{len}} {what}, {{rate}}, {{eta}} left"),
    }
}

fn is_narrow() -> bool {
    terminal::columns_of_stderr().is_some_and(|columns| columns < NARROW)
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // A rate for people: the library shows four decimals.
    style.with_key("rate", |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        // A text that cannot be written is not drawn.
        let _ = write!(to, "{:.0}/s", state.per_sec());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_well_formed() {
        for template in ["{spinner} {wide_msg}", "{spinner} {pos} items, {rate}", &bar_template("items")] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn a_count_becomes_a_bar_when_the_rest_is_known() {
        let progress = Indicator::counting("changes");
        progress.inc(3);
        assert_eq!(progress.bar.length(), None);
        progress.set_left(7);
        assert_eq!((progress.bar.length(), progress.bar.position()), (Some(10), 3));
        progress.set_left(0);
        assert_eq!(progress.bar.length(), Some(3));
    }
}
