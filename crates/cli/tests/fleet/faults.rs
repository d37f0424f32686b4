//! Hosts whose way to the server is bad: a proxy between their processes and that of the server loses, refuses, cuts and
//! delays requests, and is cut off for longer than leases live.

use std::time::Duration;

use crate::{
    create_orders,
    host::Host,
    ledger::{Ledger, Writer},
    process::{Folder, Server, eventually},
    proxy::{Fault, Proxy},
    soak::pass,
};

#[test]
fn hosts_with_a_bad_network_lose_nothing_and_come_back_after_a_cut() {
    let folder = Folder::new();
    let (store, mut ledger) = (folder.join("store"), Ledger::new(&folder.join("ledger")));
    let server = Server::start(&["--store", &store]);
    let direct = server.endpoint();
    create_orders(&direct, 4);
    let writer = Writer::start(direct.clone());
    let (network, others) = (Proxy::start(server.address()), Proxy::start(server.address()));

    // One host has a good network, the other a bad one.
    let good = Host::start(&others.endpoint(), "good", ledger.path());
    let bad = Host::start(&network.endpoint(), "bad", ledger.path());
    bad.owns(2);
    let faults = [
        Fault::Refused(429),
        Fault::Refused(408),
        Fault::Refused(503),
        Fault::DroppedBefore,
        Fault::DroppedAfter,
        Fault::Half,
        Fault::Stalled(Duration::from_secs(3)),
    ];
    for call in ["write", "read_changes", "list_items", "read_item", "watch", "feed_ranges"] {
        for fault in faults {
            network.inject(call, fault, 2);
        }
        writer.writes(50);
        ledger.catches_up(&writer);
    }
    network.clear();
    writer.writes(100);
    ledger.catches_up(&writer);

    // Cut off for longer than its leases live: the other takes over; then it comes back by itself.
    network.cut();
    good.owns(4);
    let during = ledger.len();
    writer.writes(100);
    ledger.catches_up(&writer);
    assert_eq!(ledger.instances(during), ["good".to_owned()].into(), "the one that is cut off does not work");
    network.mend();
    eventually("a share for the one that is back", || good.leases() == 2);
    let back = ledger.len();
    writer.writes(100);
    ledger.catches_up(&writer);
    eventually("both at work", || ledger.instances(back) == ["bad", "good"].map(str::to_owned).into());

    // Both are cut off for longer than leases live: both come back, and nothing has moved or comes twice.
    let twice = ledger.duplicates();
    network.cut();
    others.cut();
    pass(Duration::from_secs(14));
    network.mend();
    others.mend();
    eventually("a share for both", || good.leases() == 2 && bad.leases() == 2);
    writer.writes(100);
    ledger.catches_up(&writer);
    assert_eq!(ledger.duplicates(), twice, "nothing comes twice");

    writer.stop();
    ledger.catches_up(&writer);
    bad.stop();
    good.stop();
    eprintln!("{} changes, {} of them twice", ledger.len(), ledger.duplicates());
}
