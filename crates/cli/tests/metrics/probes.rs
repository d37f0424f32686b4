//! `/healthz` and `/readyz` of a host.

use serde_json::Value;

use crate::{http::get, process::eventually, scrape::Observed};

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
