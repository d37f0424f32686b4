//! A host that handles leases as the .NET SDK does, in a process of its own: `host.py`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use crate::process::eventually;

/// The scripted host, gone when its test ends.
pub(crate) struct Neighbour {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Neighbour {
    /// Starts it and waits until it runs.
    pub(crate) fn start(endpoint: &str, name: &str, ledger: &str) -> Self {
        Self::with_arguments(&[endpoint, name, ledger])
    }

    /// Starts one that begins at now where a lease has no continuation, and waits until it runs.
    pub(crate) fn from_now(endpoint: &str, name: &str, ledger: &str) -> Self {
        Self::with_arguments(&[endpoint, name, ledger, "now"])
    }

    fn with_arguments(arguments: &[&str]) -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dotnet/host.py");
        let mut child = Command::new("python3")
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 must be installed");
        let said = Arc::new(Mutex::new(Vec::new()));
        let (own, out) = (Arc::clone(&said), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                own.lock().unwrap().push(line);
            }
        });
        let neighbour = Self { child, said };
        eventually("the start of the scripted host", || neighbour.count("started") == 1);
        neighbour
    }

    /// How often it has said something that begins with this word.
    pub(crate) fn count(&self, word: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.split(' ').next() == Some(word)).count()
    }

    /// Whether it has said exactly this.
    pub(crate) fn has_said(&self, what: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line == what)
    }

    /// The tokens of the leases that it owns by its own words.
    pub(crate) fn leases(&self) -> Vec<String> {
        let mut leases = Vec::new();
        for line in self.said.lock().unwrap().iter() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("acquired"), Some(token)) => leases.push(token.to_owned()),
                (Some("lost" | "released" | "split" | "merged" | "redirected"), Some(token)) => {
                    leases.retain(|own| own != token);
                }
                _ => {}
            }
        }
        leases
    }

    /// From whom it took leases, in their order.
    pub(crate) fn taken_from(&self) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter_map(|line| Some(line.strip_prefix("acquired ")?.split_once(" of ")?.1.to_owned())).collect()
    }

    /// The rest of what it said last that begins with this word.
    pub(crate) fn last(&self, word: &str) -> Option<String> {
        let said = self.said.lock().unwrap();
        said.iter().rev().find_map(|line| Some(line.strip_prefix(word)?.strip_prefix(' ')?.to_owned()))
    }

    /// Waits until it owns this many leases.
    pub(crate) fn owns(&self, count: usize) {
        eventually(&format!("the scripted host owning {count} leases"), || self.leases().len() == count);
    }

    /// Waits until it has renewed leases so often from now on.
    pub(crate) fn renews(&self, more: usize) {
        let before = self.count("renewed");
        eventually("renewals of the scripted host", || self.count("renewed") >= before + more);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Has it stop itself before its next checkpoint, when the batch is delivered; the lease, once it stands still.
    pub(crate) fn freeze_before_checkpoint(&self) -> String {
        self.signal("USR1");
        self.frozen()
    }

    /// Has it stop itself when it has created leases for a range that is gone, before it acquires them. Stops nothing yet:
    /// such a range must come; see [`frozen`](Self::frozen).
    pub(crate) fn freeze_before_children(&self) {
        self.signal("USR2");
    }

    /// Waits until it stands still; the lease that it was busy with.
    pub(crate) fn frozen(&self) -> String {
        eventually("the scripted host standing still", || self.count("frozen") > self.count("thawed"));
        let stat = format!("/proc/{}/stat", self.child.id());
        let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
        eventually("the scripted host being stopped", is_stopped);
        self.last("frozen").unwrap()
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        drop(self.child.wait());
    }

    /// Asks it to stop, and waits until it has ended in good order.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let mut status = None;
        eventually("the end of the scripted host", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{:?}", self.said.lock().unwrap());
        eventually("its last words", || self.count("stopped") == 1);
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
