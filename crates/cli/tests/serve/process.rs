//! The command as a process, which is gone when its test ends.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(180);

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_changefeed"));
    command.args(args).env_remove("CHANGEFEED_KEY").stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().expect("run the command")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A folder of one test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("changefeed-serve-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it, as an argument.
    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file; its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt;

        std::fs::write(self.0.join(name), text).unwrap();
        std::fs::set_permissions(self.0.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        self.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A server that has said that it is ready.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// What was read of stderr.
    heard: String,
    pub(crate) ready: Value,
}

impl Server {
    /// Starts `changefeed serve` on a free port of the loopback interface.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(command(&["serve", "--listen", "127.0.0.1:0"]).args(args))
    }

    /// Starts a command that becomes a server.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the server");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            drop(child.wait());
            panic!("the server ended before it was ready: {said}");
        }
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { child, stdout, stderr, heard: String::new(), ready }
    }

    pub(crate) fn endpoint(&self) -> String {
        self.ready["endpoint"].as_str().unwrap().to_owned()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let endpoint = self.endpoint();
        endpoint.split("//").nth(1).unwrap().trim_end_matches('/').parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it has said something on stderr.
    pub(crate) fn hear(&mut self, text: &str) {
        while !self.heard.contains(text) {
            let read = self.stderr.read_line(&mut self.heard).unwrap();
            assert!(read > 0, "it ended without saying {text}: {}", self.heard);
        }
    }

    /// Waits for the end: how it ended, how long that took, and what it had still said on stdout and on stderr.
    pub(crate) fn ended(mut self) -> (ExitStatus, Duration, String, String) {
        let (status, took) = wait(&mut self.child);
        let (mut out, mut err) = (String::new(), std::mem::take(&mut self.heard));
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut err).unwrap();
        (status, took, out, err)
    }

    /// Ends it without warning, as a power cut would end the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        drop(self.child.wait());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a process takes to end is what is tested")]
fn wait(child: &mut Child) -> (ExitStatus, Duration) {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status, begin.elapsed());
        }
        assert!(begin.elapsed() < LONG, "the server does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Tries again until it works.
#[expect(clippy::disallowed_methods, reason = "another process does it, in its own time")]
pub(crate) fn eventually(what: &str, mut works: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !works() {
        assert!(begin.elapsed() < LONG, "{what} never happens");
        std::thread::sleep(Duration::from_millis(10));
    }
}
