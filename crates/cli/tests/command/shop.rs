//! A store with one container of orders, and the command on it.

use std::{
    collections::BTreeSet,
    fs::File,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

use crate::process::{Folder, Server, command, eventually, text};

/// The containers of all tests.
const CONTAINERS: [&str; 4] = ["--container", "shop/orders", "--leases", "shop/leases"];

/// A folder with a store, served or not.
pub(crate) struct Shop {
    pub(crate) folder: Folder,
    server: Option<Server>,
}

impl Shop {
    /// A store in a folder.
    pub(crate) fn in_folder() -> Self {
        Self { folder: Folder::new(), server: None }
    }

    /// A store behind a server.
    pub(crate) fn served() -> Self {
        let folder = Folder::new();
        let server = Server::start(&["--store", &folder.join("data")]);
        Self { folder, server: Some(server) }
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.as_ref().unwrap().address()
    }

    /// Ends the server without warning.
    pub(crate) fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// What `--store` takes.
    pub(crate) fn store(&self) -> String {
        self.server.as_ref().map_or_else(|| self.folder.join("data"), Server::endpoint)
    }

    /// Writes orders; the lines of the ledger, `id LSN`.
    pub(crate) fn load(&self, count: usize) -> Vec<String> {
        let (count, ledger) = (count.to_string(), self.folder.join("loaded"));
        let create: &[&str] = if self.server.is_none() { &["--create"] } else { &[] };
        let args = ["load", "--store", &self.store(), "--container", "shop/orders", "--count", &count];
        let output = command(&[&args[..], create, &["--ledger", &ledger]].concat()).output().unwrap();
        assert_good(&output);
        std::fs::read_to_string(&ledger).unwrap().lines().map(str::to_owned).collect()
    }

    /// A command on the processor `mailer`.
    pub(crate) fn command(&self, name: &[&str], more: &[&str]) -> Command {
        let store = self.store();
        let args = [name, &["mailer", "--store", &store], &CONTAINERS[..], more].concat();
        let mut command = command(&args);
        command.current_dir(self.folder.path());
        command
    }

    /// Runs a command on the processor `mailer` to its end.
    pub(crate) fn run(&self, name: &[&str], more: &[&str]) -> Output {
        self.command(name, more).output().unwrap()
    }

    /// What a command prints that ends well.
    #[track_caller]
    pub(crate) fn says(&self, name: &[&str], more: &[&str]) -> String {
        let output = self.run(name, more);
        assert_good(&output);
        text(&output.stdout)
    }

    /// The same as JSON.
    #[track_caller]
    pub(crate) fn json(&self, name: &[&str], more: &[&str]) -> Value {
        serde_json::from_str(&self.says(name, &[more, &["--json"]].concat())).unwrap()
    }

    /// Starts a host of `mailer` from the beginning; what it prints goes to the file `out`.
    pub(crate) fn host(&self, instance: &str, more: &[&str]) -> Host {
        let out = File::create(self.folder.path().join("out")).unwrap();
        let more = [&["--instance", instance, "--from", "beginning", "--log", "warn"], more].concat();
        Host(self.command(&["run"], &more).stdout(out).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// Starts a host of `mailer` from the beginning; what it prints goes to the file `out`, what it logs to `log`.
    pub(crate) fn logged_host(&self, instance: &str, more: &[&str]) -> Host {
        let file = |name: &str| File::create(self.folder.path().join(name)).unwrap();
        let more = [&["--instance", instance, "--from", "beginning"], more].concat();
        Host(self.command(&["run"], &more).stdout(file("out")).stderr(file("log")).spawn().unwrap())
    }

    /// Waits until the host has logged a line with this text; the line.
    pub(crate) fn logs(&self, text: &str) -> String {
        let mut found = None;
        eventually(&format!("{text:?} in the log"), || {
            found = self.lines("log").into_iter().find(|line| line.contains(text));
            found.is_some()
        });
        found.unwrap()
    }

    /// The owners of the leases of `mailer`; none where a lease is free.
    pub(crate) fn owners(&self) -> Vec<Option<String>> {
        let output = self.run(&["leases", "list"], &["--json"]);
        let leases: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let leases = leases.as_array().cloned().unwrap_or_default();
        leases.iter().map(|lease| lease["owner"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until a host owns so many leases of `mailer`.
    pub(crate) fn owns(&self, instance: &str, count: usize) {
        eventually(&format!("{instance} owning {count} leases"), || {
            self.owners().iter().filter(|owner| owner.as_deref() == Some(instance)).count() == count
        });
    }

    /// The lines of a file in the folder; one that is being written does not count yet.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        whole.map(str::to_owned).collect()
    }

    /// Waits until `mailer` has nothing left to deliver.
    pub(crate) fn catches_up(&self) {
        eventually("mailer catching up", || {
            let output = self.run(&["lag"], &["--json"]);
            let lag: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            lag["total"] == 0
        });
    }
}

/// A host, gone when its test ends.
pub(crate) struct Host(Child);

impl Host {
    /// Asks it to stop, and waits until it has ended in good order.
    pub(crate) fn stop(mut self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut ended = None;
        eventually("the end of a host", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success(), "it ends in good order: {ended:?}");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[track_caller]
pub(crate) fn assert_good(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The ids and LSNs of lines of JSON, each a change, as the ledger has them.
pub(crate) fn changes(lines: &[String]) -> BTreeSet<String> {
    let line = |line: &String| {
        let change: Value = serde_json::from_str(line).unwrap();
        assert_eq!(change["id"], change["item"]["id"], "{change}");
        format!("{} {}", change["id"].as_str().unwrap(), change["lsn"])
    };
    lines.iter().map(line).collect()
}
