//! Our hosts beside one that handles leases as the .NET SDK does, all in processes of their own: both make progress, nothing
//! is lost, nobody takes more than a fair share from a host that renews, and every lease stays a document of that SDK.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../testkit/src/dot_net_lease.rs"]
#[allow(unreachable_pub, reason = "public in its own crate")]
mod dot_net_lease;
#[path = "../hosts/mod.rs"]
mod hosts;
mod neighbour;

use changefeed::remote::Server as Client;

use self::{
    host::Host,
    hosts::{block_on, connect, create_orders, host, ledger, process, split},
    ledger::{Ledger, Writer},
    neighbour::Neighbour,
    process::{Folder, Server, eventually},
};

/// Checks that every lease is a document of the .NET SDK; how many there are.
fn documents(client: &Client) -> usize {
    let items = block_on(async {
        let leases = client.database("shop").container("leases").open().await.unwrap();
        leases.list("fleet").await.unwrap()
    });
    let leases: Vec<_> = items.iter().filter(|item| item.id.contains("..")).collect();
    for lease in &leases {
        dot_net_lease::check(&lease.body).unwrap_or_else(|why| panic!("{}: {why}", lease.id));
    }
    leases.len()
}

/// Waits until these have delivered something of what is written from now on, and all of it is delivered.
fn at_work(instances: &[&str], ledger: &mut Ledger, writer: &Writer) {
    let before = ledger.len();
    let all = instances.iter().copied().map(str::to_owned).collect();
    eventually("all hosts at work", || ledger.instances(before).is_superset(&all));
    writer.writes(100);
    ledger.catches_up(writer);
}

#[test]
fn hosts_of_both_kinds_share_the_leases_and_lose_nothing() {
    let folder = Folder::new();
    let mut ledger = Ledger::new(&folder.join("ledger"));
    let server = Server::start(&["--store", &folder.join("store")]);
    let endpoint = server.endpoint();
    let client = connect(&endpoint);
    create_orders(&endpoint, 6);
    let writer = Writer::start(endpoint.clone());

    // It joins a host of ours, and takes its share one by one.
    let a = Host::start(&endpoint, "a", ledger.path());
    a.owns(6);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    net.owns(3);
    a.owns(3);
    assert_eq!(net.taken_from(), ["a", "a", "a"]);
    at_work(&["a", "net"], &mut ledger, &writer);
    assert_eq!(documents(&client), 6);

    // Another one of ours takes its share of both, and no more.
    let b = Host::start(&endpoint, "b", ledger.path());
    b.owns(2);
    net.owns(2);
    a.owns(2);
    net.renews(8);
    at_work(&["a", "b", "net"], &mut ledger, &writer);
    assert_eq!((net.count("lost"), net.leases().len()), (1, 2), "it keeps its share while it renews");
    assert_eq!(documents(&client), 6);

    // One of its ranges is split, and then one of ours.
    let of_net = net.leases().remove(0);
    split(&endpoint, &of_net);
    eventually("seven leases", || documents(&client) == 7 && a.leases() + b.leases() + net.leases().len() == 7);
    at_work(&["a", "b", "net"], &mut ledger, &writer);
    let of_ours = (0..6).map(|id| id.to_string()).find(|id| *id != of_net && !net.leases().contains(id)).unwrap();
    split(&endpoint, &of_ours);
    eventually("eight leases", || documents(&client) == 8 && a.leases() + b.leases() + net.leases().len() == 8);
    at_work(&["a", "b", "net"], &mut ledger, &writer);

    // It leaves: ours take over. It comes back, and ours leave: it takes over all.
    net.stop();
    eventually("all leases with our hosts", || a.leases() + b.leases() == 8);
    at_work(&["a", "b"], &mut ledger, &writer);
    assert_eq!(documents(&client), 8);
    let net = Neighbour::start(&endpoint, "net", ledger.path());
    a.stop();
    b.stop();
    net.owns(8);
    writer.stop();
    ledger.catches_up(&writer);
    assert_eq!(documents(&client), 8);
    net.stop();
}
