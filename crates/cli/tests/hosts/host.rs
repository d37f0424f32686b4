//! A host in a process of its own: the example `fleet`, run by this very test program.

use std::{
    io::{BufRead as _, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::process::eventually;

/// Set for a process that is to be a host: its arguments, one on each line.
pub(crate) const ARGUMENTS: &str = "CHANGEFEED_FLEET_TEST";

/// Set for a process that is to be a host through the SDK of Azure Cosmos DB: the endpoint of its account.
#[cfg(feature = "cosmos")]
pub(crate) const ACCOUNT: &str = "CHANGEFEED_FLEET_ACCOUNT";

/// A host, gone when its test ends.
pub(crate) struct Host {
    child: Child,
    name: String,
    said: Arc<Mutex<Vec<String>>>,
}

impl Host {
    /// Starts a host and waits until it runs.
    pub(crate) fn start(endpoint: &str, name: &str, ledger: &str) -> Self {
        Self::with_calls(endpoint, name, ledger, Duration::ZERO)
    }

    /// Starts a host whose delegate calls take this long, and waits until it runs.
    pub(crate) fn with_calls(endpoint: &str, name: &str, ledger: &str, call: Duration) -> Self {
        let host = Self::spawn(endpoint, name, ledger, call, &[]);
        eventually("the start of a host", || host.has_said("started"));
        host
    }

    /// Starts a host that trusts the certificates in a file, and waits until it runs.
    pub(crate) fn with_certificates(endpoint: &str, name: &str, ledger: &str, file: &str) -> Self {
        let host = Self::spawn(endpoint, name, ledger, Duration::ZERO, &[("CHANGEFEED_CA_FILE", file)]);
        eventually("the start of a host", || host.has_said("started"));
        host
    }

    /// Starts a host as on another machine: with the key of the server and a copy of its certificate. Waits until it runs.
    pub(crate) fn elsewhere(endpoint: &str, name: &str, ledger: &str, key: &str, file: &str) -> Self {
        let access = [("CHANGEFEED_KEY", key), ("CHANGEFEED_CA_FILE", file)];
        let host = Self::spawn(endpoint, name, ledger, Duration::ZERO, &access);
        eventually("the start of a host", || host.has_said("started"));
        host
    }

    /// Starts a host that reaches the server through the SDK of Azure Cosmos DB, and waits until it runs. The containers must
    /// be there.
    #[cfg(feature = "cosmos")]
    pub(crate) fn over_sdk(endpoint: &str, name: &str, ledger: &str) -> Self {
        let host = Self::spawn_process(
            "hosts::sdk_host_process",
            endpoint,
            name,
            ledger,
            Duration::ZERO,
            &[(ACCOUNT, endpoint)],
        );
        eventually("the start of a host", || host.has_said("started"));
        host
    }

    fn spawn(endpoint: &str, name: &str, ledger: &str, call: Duration, variables: &[(&str, &str)]) -> Self {
        Self::spawn_process("hosts::host_process", endpoint, name, ledger, call, variables)
    }

    /// Starts this program again as one of its tests, which is a host then.
    fn spawn_process(
        test: &str,
        endpoint: &str,
        name: &str,
        ledger: &str,
        call: Duration,
        variables: &[(&str, &str)],
    ) -> Self {
        let millis = call.as_millis().to_string();
        let arguments =
            ["--endpoint", endpoint, "--instance", name, "--ledger", ledger, "--call-millis", &millis].join("\n");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ARGUMENTS, arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start a host");
        let said = Arc::new(Mutex::new(Vec::new()));
        listen(child.stdout.take().unwrap(), &said);
        listen(child.stderr.take().unwrap(), &said);
        Self { child, name: name.to_owned(), said }
    }

    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// What it said last.
    pub(crate) fn log(&self) -> String {
        let said = self.said.lock().unwrap();
        format!("{}, {} leases: {:?}", self.name, self.leases_in(&said), said.get(said.len().saturating_sub(30)..))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many leases it owns, by its own words.
    pub(crate) fn leases(&self) -> usize {
        self.leases_in(&self.said.lock().unwrap())
    }

    fn leases_in(&self, said: &[String]) -> usize {
        let count = |word: &str| said.iter().filter(|line| line.starts_with(word)).count();
        count("acquired ") - count("released ").min(count("acquired "))
    }

    /// Waits until it owns this many leases.
    pub(crate) fn owns(&self, count: usize) {
        eventually(&format!("{} owning {count} leases", self.name), || self.leases() == count);
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Asks it to stop, and waits until it has ended in good order.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        assert!(self.ended().success(), "{} ends in good order: {:?}", self.name, self.said.lock().unwrap());
        eventually("its last words", || self.has_said("stopped"));
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        drop(self.child.wait());
    }

    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of a host", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

/// Keeps what a host says.
fn listen(out: impl Read + Send + 'static, said: &Arc<Mutex<Vec<String>>>) {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            said.lock().unwrap().push(line);
        }
    });
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
