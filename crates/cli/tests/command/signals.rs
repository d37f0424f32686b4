//! SIGTERM, SIGHUP and Ctrl-C at `run`: whenever they come, it says what it did, keeps no lease, and its exit code is the
//! documented one. Other commands end, too, and leave nothing behind.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{SocketAddr, TcpListener},
    process::{Child, Command, ExitStatus, Stdio},
};

use changefeed::{
    core::{Clock as _, Container, SystemClock},
    lease::prefix::LeasePrefix,
    remote::{EMULATOR_KEY, Server},
};
use serde_json::{Value, json};

use crate::{
    http::{free_port, get},
    process::{Folder, command, eventually, text},
    shop::Shop,
};

pub(crate) fn send(signal: &str, host: &Child) {
    let sent = Command::new("kill").args(["-s", signal, &host.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// How it ended, and what it said on stderr.
pub(crate) fn ended(mut host: Child) -> (ExitStatus, String) {
    let mut status = None;
    eventually("the end of a host", || {
        status = host.try_wait().unwrap();
        status.is_some()
    });
    let mut said = Vec::new();
    host.stderr.take().unwrap().read_to_end(&mut said).unwrap();
    (status.unwrap(), text(&said))
}

pub(crate) fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_signal_while_the_store_does_not_answer_ends_it_with_a_sentence() {
    for (signal, once, code) in [("TERM", false, 0), ("INT", false, 0), ("TERM", true, 130)] {
        // Accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = format!("http://{}", silent.local_addr().unwrap());
        let mut args =
            vec!["run", "mailer", "--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
        args.extend(["--print", "--log", "off"]);
        args.extend(once.then_some("--once"));
        let host = spawn(command(&args));
        // It has asked: it is waiting for the answer.
        let (mut connection, _) = silent.accept().unwrap();
        connection.read_exact(&mut [0]).unwrap();
        send(signal, &host);
        let (status, said) = ended(host);
        assert_eq!(said, format!("stopped while opening the store {store}: no lease was acquired\n"));
        assert_eq!(status.code(), Some(code), "{signal}");
    }
}

/// The lease container of a shop, seen by a client of the test.
pub(crate) struct Leases {
    runtime: tokio::runtime::Runtime,
    container: Container,
    prefix: LeasePrefix,
}

impl Leases {
    pub(crate) fn of(shop: &Shop) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (container, prefix) = runtime.block_on(async {
            let database = Server::connect(&shop.store(), EMULATOR_KEY).unwrap().database("shop");
            let orders = database.container("orders").open().await.unwrap();
            let leases = database.container("leases").open_or_create().await.unwrap();
            (leases, LeasePrefix::new("mailer", orders.identity()).unwrap())
        });
        Self { runtime, container, prefix }
    }

    /// Breaks the document of a lease as a program does that writes something else into it; its id.
    pub(crate) fn damage(&self, token: &str) -> String {
        let id = self.prefix.lease_id(&token.parse().unwrap());
        let found = self.runtime.block_on(self.container.read_item(id.as_str(), &id)).unwrap();
        let mut document: Value = serde_json::from_slice(&found.body).unwrap();
        document["ContinuationToken"] = json!(7);
        self.runtime.block_on(self.container.upsert(&document)).unwrap();
        id
    }

    /// Leaves a lock as a host does that dies while it creates the leases.
    fn lock(&self) {
        let lock = json!({ "id": self.prefix.lock_id() });
        self.runtime.block_on(self.container.create(&lock)).unwrap();
    }

    /// The owners of all leases.
    fn owners(&self) -> Vec<Value> {
        let items = self.runtime.block_on(self.container.list(&self.prefix.leases())).unwrap();
        items.iter().map(|item| serde_json::from_slice::<Value>(&item.body).unwrap()["Owner"].clone()).collect()
    }
}

#[test]
fn a_signal_while_the_host_waits_for_the_lock_of_another_ends_it_with_a_sentence() {
    let shop = Shop::served();
    shop.load(1);
    let leases = Leases::of(&shop);
    leases.lock();
    let start = |address: SocketAddr, more: &[&str]| {
        let options = ["--print", "--log", "off", "--metrics", &address.to_string()];
        spawn(shop.command(&["run"], &[&options[..], more].concat()))
    };
    let addresses = [free_port(), free_port()];
    let (host, other) = (start(addresses[0], &[]), start(addresses[1], &["--once"]));
    for address in addresses {
        eventually("a host that has met the lock", || {
            let Some((200, metrics)) = get(address, "/metrics", &[]) else { return false };
            metrics.lines().any(|line| line.contains("container=\"leases\"") && line.contains("result=\"conflict\""))
        });
    }
    send("TERM", &host);
    send("INT", &other);
    let (status, said) = ended(host);
    assert_eq!((status.code(), said.as_str()), (Some(0), "stopped while the host was starting: no lease is kept\n"));
    let (status, said) = ended(other);
    let expected = "stopped before it had caught up: it goes on from there, and no lease is kept\n";
    assert_eq!((status.code(), said.as_str()), (Some(130), expected));
}

#[test]
fn a_signal_before_it_has_caught_up_hands_over_what_it_holds() {
    let shop = Shop::served();
    shop.load(20);
    // The first batch of each lease never ends well.
    let options = ["--exec", "touch called; false", "--once", "--from", "beginning", "--log", "off"];
    let host = spawn(shop.command(&["run"], &options));
    eventually("a call", || shop.folder.path().join("called").exists());
    let leases = Leases::of(&shop);
    assert!(leases.owners().iter().any(|owner| !owner.is_null()));
    send("TERM", &host);
    let (status, said) = ended(host);
    let expected = "stopped before it had caught up: it goes on from there, and no lease is kept\n";
    // A call may be running.
    assert!(status.code() == Some(130) && said.ends_with(expected), "{status}: {said}");
    assert_eq!(leases.owners(), vec![Value::Null; 4], "another host can take them at once");
}

#[test]
fn two_signals_at_once_are_one_request_and_leases_are_handed_over() {
    let shop = Shop::served();
    shop.load(1);
    let options = ["--exec", "touch called; sleep 3", "--from", "beginning", "--log", "off"];
    let host = spawn(shop.command(&["run"], &options));
    eventually("a call", || shop.folder.path().join("called").exists());
    // As `timeout` does: the process, then its group.
    send("TERM", &host);
    send("INT", &host);
    let (status, said) = ended(host);
    let expected = "stopping: waiting up to 30s for 1 running call; a second signal ends this host at once\n";
    assert_eq!((status.code(), said.as_str()), (Some(0), expected));
    assert_eq!(Leases::of(&shop).owners(), vec![Value::Null; 4], "another host can take them at once");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let shop = Shop::served();
    shop.load(1);
    let options =
        ["--exec", "touch called; sleep 1000", "--from", "beginning", "--log", "off", "--stop-deadline", "10m"];
    let mut host = spawn(shop.command(&["run"], &options));
    eventually("a call", || shop.folder.path().join("called").exists());
    send("TERM", &host);
    // It does not keep anybody waiting in silence.
    let mut first = String::new();
    let mut stderr = BufReader::with_capacity(1, host.stderr.take().unwrap());
    stderr.read_line(&mut first).unwrap();
    assert_eq!(first, "stopping: waiting up to 10m for 1 running call; a second signal ends this host at once\n");
    host.stderr = Some(stderr.into_inner());
    // Signals within a second of the first count as one request; the same signal twice in a row may arrive as one.
    let sent = SystemClock.wall().as_millis();
    eventually("a second that passes", || SystemClock.wall().as_millis() > sent + 1100);
    send("INT", &host);
    let (status, said) = ended(host);
    let expected = "ended at once, as asked twice: other hosts get the leases of this one when these have expired\n";
    assert_eq!((status.code(), said.as_str()), (Some(130), expected));
}

/// A command for which SIGHUP is as for one that was typed, or as under `nohup`: a test inherits it from whoever started it.
fn with_hang_up(option: &str, command: &Command) -> Command {
    let mut with = Command::new("env");
    with.arg(option).arg(command.get_program()).args(command.get_args());
    with.current_dir(command.get_current_dir().unwrap()).env_remove("CHANGEFEED_KEY").stdin(Stdio::null());
    with
}

#[test]
fn a_session_that_is_closed_ends_a_host_in_good_order_but_not_under_nohup() {
    let shop = Shop::served();
    shop.load(4);
    let options = ["--exec", "cat >> seen", "--from", "beginning", "--log", "off"];
    let run = shop.command(&["run"], &options);
    let host = spawn(with_hang_up("--default-signal=HUP", &run));
    eventually("all orders", || shop.lines("seen").len() == 4);
    shop.catches_up();
    send("HUP", &host);
    let (status, said) = ended(host);
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert_eq!(Leases::of(&shop).owners(), vec![Value::Null; 4], "another host can take them at once");

    let host = spawn(with_hang_up("--ignore-signal=HUP", &run));
    eventually("its leases", || shop.owners().iter().filter(|owner| owner.is_some()).count() == 4);
    send("HUP", &host);
    shop.load(4);
    eventually("new orders", || shop.lines("seen").len() == 8);
    send("TERM", &host);
    assert_eq!(ended(host).0.code(), Some(0));
}

#[test]
fn tail_ends_while_its_reader_has_stalled() {
    let shop = Shop::served();
    // More than a pipe holds.
    shop.load(2000);
    let store = shop.store();
    let tail = ["tail", "--store", &store, "--container", "shop/orders", "--from", "beginning", "--json"];
    let mut tail = command(&tail).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first page is being written.
    tail.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    send("TERM", &tail);
    let (status, said) = ended(tail);
    assert_eq!((status.code(), said.as_str()), (Some(130), ""));
}

#[test]
fn a_demo_that_is_asked_to_end_stops_its_processes_and_removes_its_folder() {
    let folder = Folder::new();
    let mut demo = command(&["demo"]);
    let mut demo = demo.env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Three hosts share the work")));
    send("TERM", &demo);
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let mut status = None;
    eventually("the end of the demo", || {
        status = demo.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130), "{rest:#?}");
    assert!(rest.iter().any(|line| line.contains("the demo ends here")), "{rest:#?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{rest:#?}");
}
