//! Who may read metrics, and what is said to others.

use crate::{
    http::{free_port, get},
    process::{Folder, Server, eventually, run, text},
    scrape::Observed,
};

const KEY: &str = "c2VjcmV0IHNlY3JldCBzZWNyZXQ=";
const READS: &str = "cmVhZC1vbmx5IHJlYWQtb25seQ==";

#[test]
fn a_server_shows_its_metrics_to_this_machine_and_to_whoever_has_a_read_only_key() {
    let folder = Folder::new();
    let file = folder.write("keys", &format!("{KEY}\nread-only {READS}\n"));
    let server = Server::start(&["--store", "memory", "--key-file", &file]);
    let status = |headers: &[(&str, &str)]| get(server.address(), "/metrics", headers).unwrap().0;
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("host", "evil.example.com")]), 401);
    let reads = format!("Bearer {READS}");
    assert_eq!(status(&[("host", "metrics.example.com"), ("authorization", &reads)]), 200);
    let writes = format!("Bearer {KEY}");
    assert_eq!(status(&[("host", "metrics.example.com"), ("authorization", &writes)]), 401);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(server.address(), path, &[("host", "metrics.example.com")]).unwrap().0, 200, "{path} is open");
    }
}

#[test]
fn a_host_shows_its_metrics_under_names_of_this_machine_only() {
    let observed = Observed::start(&["--print"]);
    observed.shows("changefeed_processor_hosts{processor=\"mailer\"} 1");
    let status = |path: &str, host: &str| get(observed.address, path, &[("host", host)]).unwrap().0;
    assert_eq!(status("/metrics", "localhost:9464"), 200);
    assert_eq!(status("/metrics", "[::1]:9464"), 200);
    assert_eq!(status("/metrics", "evil.example.com"), 403);
    assert_eq!(status("/healthz", "evil.example.com"), 200);
    assert_eq!(status("/nothing", "localhost"), 404);
    observed.host.stop();
}

#[test]
fn a_key_opens_the_metrics_of_a_host() {
    let folder = Folder::new();
    let file = folder.write("key", "0123456789abcdef0123\n");
    let observed = Observed::start(&["--print", "--metrics-key-file", &file]);
    let ask = |headers: &[(&str, &str)]| get(observed.address, "/metrics", headers);
    eventually("the endpoint", || ask(&[]).is_some());
    assert_eq!(ask(&[]).unwrap().0, 401);
    assert_eq!(ask(&[("authorization", "Bearer 0123456789abcdef0124")]).unwrap().0, 401);
    let (status, body) = ask(&[("authorization", "Bearer 0123456789abcdef0123")]).unwrap();
    assert_eq!(status, 200, "{body}");
    eventually("readiness", || get(observed.address, "/readyz", &[]).is_some_and(|(status, _)| status == 200));
    observed.host.stop();
}

#[test]
fn metrics_that_others_could_read_need_a_key_or_a_word() {
    let folder = Folder::new();
    let refused = |more: &[&str]| {
        let data = folder.join("data");
        let place = ["--store", &data, "--container", "shop/orders", "--leases", "shop/leases", "--print"];
        let output = run(&[&["run", "mailer"], &place[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let open = refused(&["--metrics", "0.0.0.0:0"]);
    assert!(open.contains("pass --metrics-key-file FILE") && open.contains("--metrics-open"), "{open}");
    let key = folder.write("key", "0123456789abcdef0123\n");
    let plain = refused(&["--metrics", "0.0.0.0:0", "--metrics-key-file", &key]);
    assert!(plain.contains("without TLS shows the key") && plain.contains("--allow-plain"), "{plain}");
    let short = folder.write("short", "abc");
    let said = refused(&["--metrics", "0.0.0.0:0", "--metrics-key-file", &short, "--allow-plain"]);
    assert!(said.contains("must hold one key of at least 16 characters"), "{said}");
    let said = refused(&["--metrics", "metrics"]);
    assert!(said.contains("for example 127.0.0.1:9464"), "{said}");
    let said = refused(&["--metrics-open"]);
    assert!(said.contains("--metrics"), "{said}");
    let taken = std::net::TcpListener::bind(free_port()).unwrap();
    let said = refused(&["--metrics", &taken.local_addr().unwrap().to_string()]);
    assert!(said.contains("choose another address with --metrics"), "{said}");
}

#[test]
fn metrics_beyond_this_machine_are_shown_under_any_name() {
    let shop = crate::shop::Shop::served();
    shop.load(1);
    let key = shop.folder.write("key", "0123456789abcdef0123\n");
    for (more, status) in [(&["--metrics-open"][..], 200), (&["--metrics-key-file", &key, "--allow-plain"], 401)] {
        let port = free_port().port();
        let host = shop.host("a", &[&["--print", "--metrics", &format!("0.0.0.0:{port}")], more].concat());
        let ask = || get(([127, 0, 0, 1], port).into(), "/metrics", &[("host", "metrics.example.com")]);
        eventually("the endpoint", || ask().is_some());
        assert_eq!(ask().unwrap().0, status);
        host.stop();
    }
}
