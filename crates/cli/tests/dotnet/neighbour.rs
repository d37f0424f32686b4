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
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dotnet/host.py");
        let mut child = Command::new("python3")
            .args([program, endpoint, name, ledger])
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

    /// The tokens of the leases that it owns by its own words.
    pub(crate) fn leases(&self) -> Vec<String> {
        let mut leases = Vec::new();
        for line in self.said.lock().unwrap().iter() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("acquired"), Some(token)) => leases.push(token.to_owned()),
                (Some("lost" | "released" | "split"), Some(token)) => leases.retain(|own| own != token),
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

    /// Waits until it owns this many leases.
    pub(crate) fn owns(&self, count: usize) {
        eventually(&format!("the scripted host owning {count} leases"), || self.leases().len() == count);
    }

    /// Waits until it has renewed leases so often from now on.
    pub(crate) fn renews(&self, more: usize) {
        let before = self.count("renewed");
        eventually("renewals of the scripted host", || self.count("renewed") >= before + more);
    }

    /// Asks it to stop, and waits until it has ended in good order.
    pub(crate) fn stop(mut self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
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
