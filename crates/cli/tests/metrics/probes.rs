//! `/healthz` and `/readyz` of a host.

use changefeed::remote::EMULATOR_KEY;
use serde_json::Value;

use crate::{
    http::get,
    process::{Server, command, eventually},
    scrape::Observed,
};

fn probe(observed: &Observed, path: &str) -> Option<(u16, Value)> {
    let (status, body) = get(observed.address, path, &[])?;
    Some((status, serde_json::from_str(&body).unwrap()))
}

#[test]
fn a_host_is_ready_once_it_has_started_and_no_longer_when_its_store_is_gone() {
    let mut observed = Observed::start(&["--print"]);
    eventually("readiness", || probe(&observed, "/readyz").is_some_and(|(status, _)| status == 200));
    let (status, health) = probe(&observed, "/healthz").unwrap();
    assert_eq!((status, health["status"].as_str()), (200, Some("ok")), "{health}");
    observed.shop.kill_server();
    eventually("the store being missed", || probe(&observed, "/readyz").is_some_and(|(status, _)| status == 503));
    let (_, said) = probe(&observed, "/readyz").unwrap();
    assert_eq!(said["status"], "not ready", "{said}");
    assert!(said["problems"][0].as_str().unwrap().starts_with("the store of orders"), "{said}");
    assert_eq!(probe(&observed, "/healthz").unwrap().0, 200, "a restart of the host would not help");
}

#[test]
fn a_host_that_follows_a_container_that_was_created_again_is_ready_again() {
    let observed = Observed::start(&["--print"]);
    eventually("readiness", || probe(&observed, "/readyz").is_some_and(|(status, _)| status == 200));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = changefeed::remote::Server::connect(&observed.shop.store(), EMULATOR_KEY).unwrap();
        server.catalog().delete_container("shop", "orders").await.unwrap();
        eventually("the container being missed", || {
            probe(&observed, "/readyz").is_some_and(|(status, _)| status == 503)
        });
        server.database("shop").container("orders").partition_key("/customer").create().await.unwrap();
    });
    eventually("readiness", || probe(&observed, "/readyz").is_some_and(|(status, _)| status == 200));
    observed.shows("changefeed_processor_lag_leases{processor=\"mailer\",state=\"owned\"} 1");
    observed.host.stop();
}

#[test]
fn a_host_whose_feed_cannot_be_read_for_a_while_is_degraded_until_it_can() {
    let leases = Server::start(&["--store", "memory"]);
    let mut observed = Observed::start(&["--print", "--lease-store", &leases.endpoint()]);
    eventually("readiness", || probe(&observed, "/readyz").is_some_and(|(status, _)| status == 200));
    let status = || probe(&observed, "/healthz").unwrap().1;
    eventually("all orders", || status()["status"] == "ok");
    let (address, data) = (observed.shop.address().to_string(), observed.shop.folder.join("data"));
    // Its leases are in another store, so it keeps them.
    observed.shop.kill_server();
    let status = || probe(&observed, "/healthz").unwrap().1;
    eventually("the feed being missed", || status()["status"] == "degraded");
    let problem = status()["problems"][0].as_str().unwrap().to_owned();
    assert!(problem.starts_with("lease ") && problem.contains(": its feed could not be read "), "{problem}");
    // Nothing is written meanwhile: a read that finds nothing is enough.
    let _server = Server::spawn(&mut command(&["serve", "--listen", &address, "--store", &data]));
    eventually("the feed being read again", || status()["status"] == "ok");
    observed.host.stop();
}

#[test]
fn a_stuck_host_is_degraded_and_says_which_lease_without_the_error() {
    let observed = Observed::start(&["--exec", "echo secret >&2; exit 3"]);
    eventually("a stalled lease", || {
        probe(&observed, "/healthz").is_some_and(|(status, health)| status == 200 && health["status"] == "degraded")
    });
    let (_, health) = probe(&observed, "/healthz").unwrap();
    let problem = health["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("lease ") && problem.contains("its batch has failed "), "{problem}");
    assert!(!health.to_string().contains("exit status"), "{health}");
    observed.shows("changefeed_processor_stalled_leases{processor=\"mailer\"} 4");
    observed.host.stop();
}
