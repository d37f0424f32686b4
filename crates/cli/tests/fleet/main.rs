//! Hosts in processes of their own, through a server in a process of its own: they join, leave, are killed, are stopped
//! for too long and go on, and the server is killed and restarted. Nothing is lost, the order per partition key is kept,
//! and planned moves cause no duplicates.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account_host;
mod faults;
mod push;
mod restarts;
mod rolling;
mod soak;

#[path = "../hosts/mod.rs"]
mod hosts;
#[path = "../../../remote/tests/support/proxy.rs"]
mod proxy;

use self::{
    host::Host,
    hosts::{block_on, connect, create_orders, host, ledger, process, split},
    ledger::{Ledger, Writer},
    process::{Folder, Server, command, eventually},
};

fn serve(store: &str, listen: &str) -> Server {
    Server::spawn(command(&["serve", "--store", store, "--listen", listen]).stdin(std::process::Stdio::null()))
}

#[test]
fn a_fleet_of_processes_loses_nothing_whatever_happens_to_it() {
    let folder = Folder::new();
    let (store, mut ledger) = (folder.join("store"), Ledger::new(&folder.join("ledger")));
    let mut server = serve(&store, "127.0.0.1:0");
    let (endpoint, address) = (server.endpoint(), server.address().to_string());
    create_orders(&endpoint, 4);
    let writer = Writer::start(endpoint.clone());

    // Planned moves: one joins, one leaves, then all are replaced one after the other.
    let first = Host::start(&endpoint, "a", ledger.path());
    first.owns(4);
    let second = Host::start(&endpoint, "b", ledger.path());
    second.owns(2);
    writer.writes(100);
    ledger.catches_up(&writer);
    first.stop();
    second.owns(4);
    let third = Host::start(&endpoint, "c", ledger.path());
    third.owns(2);
    second.stop();
    third.owns(4);
    writer.writes(100);
    ledger.catches_up(&writer);
    assert_eq!(ledger.duplicates(), 0, "planned moves cause no duplicates");
    assert_eq!(ledger.instances(0), ["a", "b", "c"].map(str::to_owned).into());

    // A range is split under load.
    let fourth = Host::start(&endpoint, "d", ledger.path());
    fourth.owns(2);
    split(&endpoint, "0");
    eventually("five leases in all", || third.leases() + fourth.leases() == 5);
    writer.writes(100);
    ledger.catches_up(&writer);
    assert_eq!(ledger.duplicates(), 0, "a split causes no duplicates");

    // One is killed: the other takes over what it had.
    third.kill();
    fourth.owns(5);
    writer.writes(100);
    ledger.catches_up(&writer);

    // One is stopped until its leases have expired, and goes on: it does not work on what it has lost.
    let fifth = Host::start(&endpoint, "e", ledger.path());
    eventually("a share for the newcomer", || fifth.leases() >= 2);
    fifth.signal("STOP");
    fourth.owns(5);
    writer.writes(100);
    ledger.catches_up(&writer);
    fifth.signal("CONT");
    eventually("a share for the one that is back", || fifth.leases() >= 2 && fifth.leases() + fourth.leases() == 5);
    writer.writes(100);
    ledger.catches_up(&writer);

    // The server is killed and restarted: both carry on.
    server.kill();
    server = serve(&store, &address);
    writer.writes(100);
    let before = ledger.len();
    writer.writes(200);
    ledger.catches_up(&writer);
    eventually("both hosts at work", || ledger.instances(before) == ["d", "e"].map(str::to_owned).into());

    writer.stop();
    ledger.catches_up(&writer);
    fourth.stop();
    fifth.stop();
    drop(server);
}
