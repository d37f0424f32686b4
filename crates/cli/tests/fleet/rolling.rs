//! Planned moves while delegate calls take longer than an acquire interval: nothing comes twice.

use std::time::Duration;

use changefeed::{
    core::{PhysicalRange, RangeId},
    remote::Server as Client,
};

use crate::{
    block_on, connect, create_orders,
    host::Host,
    ledger::{Ledger, Writer},
    process::{Folder, Server, eventually},
    soak::{owners, settled},
};

/// Longer than the two seconds between two listings of the leases.
const CALL: Duration = Duration::from_secs(3);

/// Waits until the leases are shared evenly.
fn share(hosts: &[Host], client: &Client) {
    eventually("a fair share for each host", || {
        let owners = owners(client);
        settled(hosts, &owners) && hosts.iter().all(|host| host.leases() >= owners.len() / hosts.len())
    });
}

#[test]
fn a_rolling_restart_a_split_and_a_merge_under_long_calls_deliver_nothing_twice() {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    create_orders(&endpoint, 4);
    let client = connect(&endpoint);
    let writer = Writer::start(endpoint.clone());
    let start = |name: &str, path: &str| Host::with_calls(&endpoint, name, path, CALL);
    let mut hosts: Vec<Host> = ["a", "b", "c"].map(|name| start(name, ledger.path())).into();
    share(&hosts, &client);
    writer.writes(100);

    // Each is stopped, and started again under its name, while all of them work.
    for _ in 0..hosts.len() {
        let host = hosts.remove(0);
        let name = host.name().to_owned();
        host.stop();
        hosts.push(start(&name, ledger.path()));
        share(&hosts, &client);
    }
    ledger.catches_up(&writer);
    assert_eq!(ledger.duplicates(), 0, "a rolling restart causes no duplicates");

    // A range is split, and its children are merged again, while calls for them are under way.
    let children = block_on(client.catalog().split("shop", "orders", &RangeId::from(0), None)).unwrap();
    share(&hosts, &client);
    writer.writes(100);
    ledger.catches_up(&writer);
    let [PhysicalRange { id: left, .. }, PhysicalRange { id: right, .. }] = children.as_slice() else {
        panic!("two children: {children:?}")
    };
    block_on(client.catalog().merge("shop", "orders", [left, right])).unwrap();
    share(&hosts, &client);
    writer.writes(100);
    writer.stop();
    ledger.catches_up(&writer);
    hosts.into_iter().for_each(Host::stop);
    assert_eq!(ledger.duplicates(), 0, "splits and merges cause no duplicates");
    assert_eq!(ledger.instances(0), ["a", "b", "c"].map(str::to_owned).into());
}
