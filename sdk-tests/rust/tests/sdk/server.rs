//! The server under test: the one the run script started, or one of a test's own, and the `changefeed` command against it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

/// A range as `changefeed ranges --json` tells it.
#[derive(Debug, Deserialize)]
pub struct Range {
    pub id: String,
}

/// An endpoint and what an administrator can do to it.
#[derive(Clone, Debug)]
pub struct Server {
    pub endpoint: String,
}

impl Server {
    /// The server that all tests share.
    pub fn shared() -> Self {
        Self { endpoint: std::env::var("COSMOS_ENDPOINT").expect("COSMOS_ENDPOINT names the server under test") }
    }

    pub fn ranges(&self, container: &str) -> Vec<Range> {
        self.of(container, "ranges", &[])
    }

    pub fn split(&self, container: &str, range: &str) -> Vec<Range> {
        self.of(container, "split", &["--range", range])
    }

    pub fn merge(&self, container: &str, left: &str, right: &str) -> Vec<Range> {
        self.of(container, "merge", &["--ranges", &format!("{left},{right}")])
    }

    /// Makes the next requests about a container fail.
    pub fn fault(&self, container: &str, options: &[&str]) {
        let arguments: Vec<&str> = ["--path-contains", container].into_iter().chain(options.iter().copied()).collect();
        self.command("fault", &arguments);
    }

    pub fn throttle(&self, container: &str, seconds: &str) {
        let container = format!("rust/{container}");
        self.command("throttle", &["--container", &container, "--seconds", seconds, "--retry-after-ms", "200"]);
    }

    fn of(&self, container: &str, verb: &str, options: &[&str]) -> Vec<Range> {
        let container = format!("rust/{container}");
        let arguments: Vec<&str> =
            ["--container", &container, "--json"].into_iter().chain(options.iter().copied()).collect();
        serde_json::from_str(&self.command(verb, &arguments)).expect("the command prints JSON")
    }

    fn command(&self, verb: &str, arguments: &[&str]) -> String {
        let done = Command::new(binary())
            .args([verb, "--store", &self.endpoint])
            .args(arguments)
            .output()
            .expect("the command starts");
        assert!(done.status.success(), "{verb} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("the command prints UTF-8")
    }
}

/// A server of one test; it ends in good order when the test does.
#[derive(Debug)]
pub struct OwnServer {
    pub server: Server,
    process: Child,
    store: PathBuf,
}

impl OwnServer {
    pub fn start(name: &str, options: &[&str]) -> Self {
        #[derive(Deserialize)]
        struct Ready {
            event: String,
            endpoint: String,
        }
        let store = std::env::temp_dir().join(format!("changefeed-{name}-{}", std::process::id()));
        let mut process = Command::new(binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--ranges", "2", "--previous-images", "--store"])
            .arg(&store)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("a line");
        let ready: Ready = serde_json::from_str(&line).expect("the server says that it is ready");
        assert_eq!(ready.event, "ready");
        Self { server: Server { endpoint: ready.endpoint }, process, store }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let stopped = Command::new("kill").arg(self.process.id().to_string()).status().is_ok_and(|kill| kill.success());
        let ended = self.process.wait().is_ok_and(|status| status.success());
        let _ = std::fs::remove_dir_all(&self.store);
        assert!(std::thread::panicking() || (stopped && ended), "the server ends in good order");
    }
}

pub fn binary() -> String {
    std::env::var("CHANGEFEED_BIN").expect("CHANGEFEED_BIN names the program under test")
}
