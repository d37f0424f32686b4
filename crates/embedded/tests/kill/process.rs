//! Starting this program again as a process that does one test, hearing what it says, and killing it.

use std::{
    io::{BufRead, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Set for a process that is to be killed: what it is to do.
const ORDERS: &str = "CHANGEFEED_KILL_TEST";

/// No line is waited for longer than this.
const LONG: Duration = Duration::from_secs(60);

/// What this process is to do, if it is one that is to be killed.
pub(crate) fn orders<const N: usize>() -> Option<[String; N]> {
    let orders = std::env::var(ORDERS).ok()?;
    Some(orders.split('|').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap())
}

/// One line for the parent, in one call, so that it arrives whole or not at all.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// The path of a folder that is not there yet.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kill-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    folder
}

#[expect(clippy::disallowed_methods, reason = "a process is killed at a moment of real time")]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

/// A process that is to be killed.
pub(crate) struct Process {
    child: Child,
    out: Receiver<String>,
    err: JoinHandle<Vec<String>>,
    heard: Vec<String>,
}

impl Process {
    /// Starts one that does the named test.
    pub(crate) fn start<const N: usize>(test: &str, orders: [&str; N]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ORDERS, orders.join("|")).env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, out) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.into_iter().try_for_each(|line| sender.send(line)).ok();
        });
        let err = std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).collect());
        Self { child, out, err, heard: Vec::new() }
    }

    /// Waits until it says this.
    pub(crate) fn hear(&mut self, wanted: &str) {
        while self.heard.last().is_none_or(|last| last != wanted) {
            match self.out.recv_timeout(LONG) {
                Ok(line) => self.heard.push(line),
                Err(error) => {
                    self.child.kill().unwrap();
                    panic!("the process did not say {wanted:?}: {error}; it said {:#?}", self.heard)
                }
            }
        }
    }

    /// How long it takes until it says this.
    #[expect(clippy::disallowed_methods, reason = "a process is killed at a moment of real time")]
    pub(crate) fn time_until(&mut self, wanted: &str) -> Duration {
        let begin = Instant::now();
        self.hear(wanted);
        begin.elapsed()
    }

    /// Kills it after a while, and returns everything that it said.
    pub(crate) fn kill_after(mut self, life: Duration) -> Vec<String> {
        wait(life);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // Ends with the last line.
        self.heard.extend(self.out.iter());
        self.heard.extend(self.err.join().unwrap());
        self.heard
    }
}
