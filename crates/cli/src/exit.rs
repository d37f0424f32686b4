//! How the command ends.

use std::{
    error::Error as StdError,
    fs,
    io::{self, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{clock, progress::above, terminal};

/// Any error: nobody handles them here, they are only shown.
pub(crate) type Error = Box<dyn StdError + Send + Sync>;

/// Shorthand for results of sub-commands.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done, and all is well.
    Good,
    /// 1: done, but what was looked at is not well, or there is nothing.
    Unhealthy,
    /// 2: could not be done.
    Failed,
    /// 130: ended by a signal, as shells say it of Ctrl-C.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Good => 0,
            Exit::Unhealthy => 1,
            Exit::Failed => 2,
            Exit::Interrupted => 130,
        })
    }
}

/// An error and its causes.
pub(crate) fn with_causes(error: &(dyn StdError + Send + Sync)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

/// Shows an error with its causes.
pub(crate) fn report(error: &(dyn StdError + Send + Sync)) -> Exit {
    say(&format!("error: {}", with_causes(error)));
    Exit::Failed
}

/// Says something on stderr that does not belong to the result.
pub(crate) fn warn(text: &str) {
    say(&format!("warning: {text}"));
}

/// Says on stderr what was done, where the exit code alone leaves it open.
pub(crate) fn say(text: &str) {
    let text = terminal::wrapped(text, terminal::columns_of_stderr());
    // If nobody can read it, the exit code has to say it alone.
    drop(above(|| writeln!(io::stderr(), "{text}")));
}

/// Whether somebody got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    Whole,
    /// The reader of a pipe has gone away, as `| head` does: no reason to complain, but one to end.
    NobodyReads,
}

/// Writes a result to stdout.
pub(crate) fn print(text: &str) -> Result<Printed> {
    let write = || {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    };
    match above(write) {
        Ok(()) => Ok(Printed::Whole),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Printed::NobodyReads),
        Err(error) => Err(format!("write to stdout: {error}").into()),
    }
}

/// Writes a result to stdout. A reader that has stalled keeps a thread, and nothing else: signals still count.
pub(crate) async fn print_off_thread(text: String) -> Result<Printed> {
    tokio::task::spawn_blocking(move || print(&text)).await?
}

/// Writes a result for people to stdout: on a terminal in lines that fit it.
pub(crate) fn print_text(text: &str) -> Result<Printed> {
    print(&terminal::wrapped(text, terminal::columns()))
}

/// Does the work of a sub-command that needs no threads of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = tokio.block_on(work);
    // A write to a reader that has stalled keeps its thread, not this process.
    tokio.shutdown_background();
    ended
}

/// Waits for a request to end; without limit if signals cannot be heard.
pub(crate) async fn interrupted() {
    match EndRequests::listen() {
        Ok(requests) => requests.reached(1).await,
        Err(_) => std::future::pending().await,
    }
}

/// The number of SIGHUP on every system.
const SIGHUP: u32 = 1;

/// Signals this soon after the first one are the same request: `timeout` signals a process and then its group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// How often Ctrl-C, SIGTERM or SIGHUP has asked this process to end. From the first of these on signals do nothing else.
/// Signals within a second after the first count as one. SIGHUP does not count where it was ignored from the start, as under
/// `nohup`.
#[derive(Clone, Debug)]
pub(crate) struct EndRequests(watch::Receiver<u32>);

impl EndRequests {
    /// Counts from now on.
    #[expect(clippy::disallowed_methods, reason = "the command runs in no simulation")]
    pub(crate) fn listen() -> io::Result<Self> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hang_up = if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) };
        let (count, receiver) = watch::channel(0);
        tokio::spawn(async move {
            let mut first: Option<Instant> = None;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    () = received(&mut hang_up) => {}
                }
                match first {
                    None => first = Some(clock::instant()),
                    Some(first) if first.elapsed() < SAME_REQUEST => continue,
                    Some(_) => {}
                }
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(receiver))
    }

    /// Waits until there were so many.
    pub(crate) async fn reached(&self, count: u32) {
        // The sender lives as long as the runtime.
        if self.0.clone().wait_for(|found| *found >= count).await.is_err() {
            std::future::pending().await
        }
    }

    /// Whether there was one.
    pub(crate) fn any(&self) -> bool {
        *self.0.borrow() > 0
    }
}

/// Waits for a signal; without limit for none.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP is ignored. Where the system does not tell, it stays as it is.
fn ignores_hang_up() -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return true };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The bits of a number in hexadecimal, the first signal being the last bit.
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_none_or(|bits| bits >> (SIGHUP - 1) & 1 == 1)
}
