//! The options of a processor on the command line: what each of them changes, seen from outside.

use std::{
    net::SocketAddr,
    process::{Output, Stdio},
    time::Duration,
};

use changefeed::{
    core::{Clock as _, SystemClock, TimeToLive},
    remote::{EMULATOR_KEY, Server as Client},
};
use serde_json::{Value, json};

use crate::{
    http::{free_port, get},
    process::{command, eventually, run, text},
    proxy::{Fault, Proxy},
    shop::{Shop, assert_good, changes},
    signals::{ended, send, spawn},
};

/// A run to the end of the feed that says nothing but warnings.
const ONCE: [&str; 5] = ["--once", "--from", "beginning", "--log", "warn"];

/// Now, in milliseconds.
fn now() -> u64 {
    SystemClock.wall().as_millis()
}

/// Runs another processor than `mailer` on the orders.
fn run_as(shop: &Shop, name: &str, more: &[&str]) -> Output {
    let store = shop.store();
    let place = ["run", name, "--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    run(&[&place[..], more].concat())
}

/// The sum of a counter of requests to one container by one operation.
fn requests(address: SocketAddr, metric: &str, container: &str, operation: &str) -> f64 {
    let Some((200, text)) = get(address, "/metrics", &[]) else { return 0.0 };
    let labels = [format!("container=\"{container}\""), format!("operation=\"{operation}\"")];
    let is_meant = |line: &&str| line.starts_with(metric) && labels.iter().all(|label| line.contains(label));
    text.lines().filter(is_meant).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

const REQUESTS: &str = "changefeed_processor_requests_total{";

#[test]
fn a_processor_and_tail_begin_where_from_says() {
    let shop = Shop::in_folder();
    shop.load(3);
    let written = now() / 1000;
    eventually("the second after the next", || now() / 1000 >= written + 2);
    let between = std::time::UNIX_EPOCH + Duration::from_secs(written + 1);
    let between = humantime::format_rfc3339_seconds(between).to_string();
    shop.load(4);
    let store = shop.store();
    let begins: [(&[&str], usize); 5] = [
        (&["--from", "beginning"], 7),
        (&["--from", "1h ago"], 7),
        (&["--from", &between], 4),
        (&["--from", "now"], 0),
        (&[], 0),
    ];
    for (number, (from, count)) in begins.into_iter().enumerate() {
        let printed = run_as(&shop, &format!("p{number}"), &[&["--print", "--once", "--log", "warn"], from].concat());
        assert_good(&printed);
        assert_eq!(text(&printed.stdout).lines().count(), count, "run {from:?}");
        let tail = run(&[&["tail", "--store", &store, "--container", "shop/orders", "--once"], from].concat());
        assert_good(&tail);
        assert_eq!(text(&tail.stdout).lines().count(), count, "tail {from:?}");
    }
}

#[test]
fn batches_hold_as_many_changes_as_max_items_allows() {
    let shop = Shop::in_folder();
    shop.load(40);
    shop.says(&["run"], &[&["--exec", "wc -l >> sizes", "--max-items", "3"], &ONCE[..]].concat());
    let sizes: Vec<usize> = shop.lines("sizes").iter().map(|size| size.trim().parse().unwrap()).collect();
    assert_eq!((sizes.iter().max(), sizes.iter().sum()), (Some(&3), 40), "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_versions_brings_deletes() {
    let shop = Shop::served();
    let database = Client::connect(&shop.store(), EMULATOR_KEY).unwrap().database("shop");
    let orders = database.container("orders").all_versions(Duration::from_secs(600)).create().await.unwrap();
    let out = std::fs::File::create(shop.folder.path().join("out")).unwrap();
    let options = ["--instance", "a", "--all-versions", "--print", "--json", "--log", "warn"];
    let host = shop.command(&["run"], &options).stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    shop.owns("a", 1);
    orders.create(&json!({ "id": "o1" })).await.unwrap();
    orders.delete("o1", "o1").await.unwrap();
    eventually("both versions", || shop.lines("out").len() == 2);
    send("TERM", &host);
    let (status, said) = ended(host);
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    let version: Value = serde_json::from_str(&shop.lines("out")[1]).unwrap();
    assert_eq!((version["id"].as_str(), version["operation"].as_str()), (Some("o1"), Some("delete")), "{version}");
}

#[test]
fn a_start_that_is_not_the_first_says_that_from_does_not_count() {
    let shop = Shop::in_folder();
    shop.load(3);
    let once = |more: &[&str]| text(&shop.run(&["run"], &[&["--print", "--once"], more].concat()).stderr);
    let sentence = "--from does not count, the processor goes on where it was; `changefeed seek mailer` moves it";
    let first = once(&["--from", "beginning"]);
    assert!(first.contains("first start: delivers from the beginning") && !first.contains(sentence), "{first}");
    let second = once(&["--from", "beginning"]);
    assert_eq!(second.matches(sentence).count(), 1, "{second}");
    assert!(!second.contains("first start: delivers"), "{second}");
    let third = once(&[]);
    assert!(!third.contains("--from"), "{third}");
}

#[test]
fn all_versions_from_the_beginning_is_refused_by_check_as_by_a_run() {
    let shop = Shop::served();
    let store = shop.store();
    let load = ["load", "--store", &store, "--container", "shop/orders", "--count", "1", "--retention", "10"];
    assert_good(&crate::process::run(&load));
    for more in [&["--check"][..], &["--once"]] {
        let refused = shop.run(&["run"], &[&["--all-versions", "--print", "--from", "beginning"], more].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains("an all-versions processor starts from now"), "{more:?}: {said}");
    }
}

#[test]
fn check_refuses_what_a_run_refuses_and_creates_nothing() {
    let shop = Shop::served();
    let store = shop.store();
    let load = ["load", "--store", &store, "--container", "shop/orders", "--count", "1", "--retention", "10"];
    assert_good(&run(&load));
    shop.says(&["run"], &[&["--print"], &ONCE[..]].concat());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let refused: [(&[&str], &str); 11] = [
        (&["--copy-to", "http://127.0.0.1:1/shop/x", "--start-timeout", "2s"], "nothing listens"),
        (&["--copy-to", "shop/orders"], "this is the monitored container"),
        (&["--copy-to", "shop/leases"], "this is the lease container"),
        (&["--copy-to", "shop/dead", "--dead-letters", "shop/dead"], "this is the dead-letter container"),
        (&["--print", "--metrics", &taken], "choose another address with --metrics"),
        (&["--print", "--metrics", "0", "--metrics-key-file", "nofile"], "nofile"),
        (&["--print", "--all-versions"], "was made for LatestVersion mode"),
        (&["--print", "--dead-letters", "shop/orders"], "pass another container to --dead-letters"),
        (&["--print", "--dead-letters", "shop/leases"], "pass another container to --dead-letters"),
        (&["--print", "--max-items", "0"], "--max-items must be at least 1"),
        (&["--webhook", "http://example.com/hook"], "use https://"),
    ];
    for (options, problem) in refused {
        for more in [&["--check"][..], &["--once"]] {
            let output = shop.run(&["run"], &[options, more].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{options:?} {more:?}: {said}");
            assert!(said.contains(problem), "{options:?} {more:?}: {said}");
        }
    }
    let options = ["--copy-to", "shop/copies", "--dead-letters", "shop/dead", "--metrics", "0", "--check"];
    let said = shop.says(&["run"], &options);
    let expected =
        "copies to shop/copies, which would be created; dead letters go to shop/dead, which would be created\n";
    assert!(said.ends_with(expected), "{said}");
    let checked = shop.json(&["run"], &options);
    assert_eq!(checked["dead_letters"], "shop/dead, which would be created", "{checked}");
    let missing = run(&["tail", "--store", &store, "--container", "shop/none", "--once"]);
    assert!(text(&missing.stderr).ends_with("there are: shop/leases, shop/orders\n"), "{}", text(&missing.stderr));
}

#[test]
fn nothing_is_announced_or_created_by_a_run_that_is_refused() {
    let shop = Shop::in_folder();
    shop.load(1);
    let refused: [(&[&str], &str); 4] = [
        (&["--print", "--max-items", "0"], "error: --max-items must be at least 1\n"),
        (
            &["--print", "--expiration", "1s"],
            "error: --expiration (1s) must be at least three times --renew-interval (20s)",
        ),
        (&["--print", "--all-versions", "--from", "beginning"], "--all-versions"),
        (
            &["--webhook", "ftp://example.com"],
            "error: --webhook ftp://example.com: pass a URL that begins with https://\n",
        ),
    ];
    for (options, problem) in refused {
        let output = shop.run(&["run"], options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(problem) && !said.contains("first start"), "{options:?}: {said}");
    }
    let lag = shop.run(&["lag"], &[]);
    assert!(text(&lag.stderr).contains("there is no container shop/leases"), "{}", text(&lag.stderr));
}

#[test]
fn a_host_owns_no_more_leases_than_max_leases_allows() {
    let shop = Shop::served();
    shop.load(4);
    let first = shop.host("a", &["--print", "--max-leases", "1", "--acquire-interval", "200ms"]);
    shop.owns("a", 1);
    let second = shop.host("b", &["--print", "--acquire-interval", "200ms"]);
    // Without the limit each of them owns two.
    shop.owns("b", 3);
    shop.owns("a", 1);
    first.stop();
    second.stop();
}

#[test]
fn calls_run_at_once_unless_max_concurrent_calls_or_max_bytes_in_flight_forbids_it() {
    let shop = Shop::served();
    shop.load(20);
    // Ends well only if a call for another lease runs at the same time.
    let meets = "touch met.$CHANGEFEED_LEASE; until test $(ls met.* | wc -l) -ge 2; do sleep 0.02; done";
    assert_good(&shop.run(&["run"], &[&["--exec", meets], &ONCE[..]].concat()));
    let alone = "mkdir busy || echo x >> overlaps; cat >> got; sleep 0.02; rmdir busy";
    for limit in [["--max-concurrent-calls", "1"], ["--max-bytes-in-flight", "1"]] {
        shop.says(&["seek"], &["--to", "beginning"]);
        shop.folder.write("got", "");
        shop.says(&["run"], &[&["--exec", alone, "--max-items", "1"], &limit[..], &ONCE[..]].concat());
        assert_eq!(shop.lines("got").len(), 20, "{limit:?}");
        assert_eq!(shop.lines("overlaps").len(), 0, "{limit:?}");
    }
}

#[test]
fn an_idle_feed_is_read_as_often_as_the_poll_interval_says() {
    let shop = Shop::served();
    shop.load(4);
    let address = free_port();
    let options = ["--print", "--poll-interval", "50ms", "--metrics", &address.to_string()];
    let host = shop.host("a", &options);
    shop.catches_up();
    let before = requests(address, REQUESTS, "monitored", "read_changes");
    // In the default interval of a minute four leases are read four times.
    eventually("forty more reads", || requests(address, REQUESTS, "monitored", "read_changes") >= before + 40.0);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_takes_longer_than_the_read_timeout_is_given_up() {
    let shop = Shop::served();
    shop.load(4);
    let proxy = Proxy::start(shop.address());
    proxy.inject("read_changes", Fault::Stalled(Duration::from_secs(600)), usize::MAX);
    let endpoint = proxy.endpoint();
    let place = ["run", "mailer", "--store", &endpoint, "--container", "shop/orders", "--leases", "shop/leases"];
    let log = std::fs::File::create(shop.folder.path().join("log")).unwrap();
    let mut host = command(&[&place[..], &["--from", "beginning", "--print", "--read-timeout", "300ms"]].concat());
    let mut host = host.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let line = shop.logs("orders did not answer within");
    host.kill().unwrap();
    drop(host.wait());
    assert!(line.contains("orders did not answer within 300ms"), "{line}");
}

#[test]
fn a_call_that_takes_longer_than_slow_after_is_reported() {
    let shop = Shop::served();
    shop.load(1);
    let host = shop.logged_host("a", &["--exec", "until test -e go; do sleep 0.02; done", "--slow-after", "100ms"]);
    let line = shop.logs("delegate call is slow");
    shop.folder.write("go", "");
    shop.catches_up();
    host.stop();
    let running = line.split("running=").nth(1).unwrap().split_whitespace().next().unwrap();
    // The default is half a minute.
    let seconds: f64 = match running.strip_suffix("ms") {
        Some(millis) => millis.parse::<f64>().unwrap() / 1000.0,
        None => running.trim_end_matches('s').parse().unwrap(),
    };
    assert!((0.1..25.0).contains(&seconds), "{line}");
}

#[test]
fn a_batch_that_has_failed_as_often_as_stalled_after_says_is_reported() {
    let shop = Shop::served();
    shop.load(1);
    let host = shop.logged_host("a", &["--exec", "exit 3", "--stalled-after", "2"]);
    let line = shop.logs("lease stalled");
    host.stop();
    assert!(line.contains("attempts=2 "), "{line}");
}

#[test]
fn a_stop_waits_no_longer_than_the_stop_deadline() {
    let shop = Shop::served();
    shop.load(1);
    let options = ["--exec", "touch called; sleep 1000", "--from", "beginning", "--log", "off"];
    let host = spawn(shop.command(&["run"], &[&options[..], &["--stop-deadline", "700ms"]].concat()));
    eventually("a call", || shop.folder.path().join("called").exists());
    send("TERM", &host);
    let (status, said) = ended(host);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("stop did not finish within 700ms"), "{said}");
}

#[test]
fn leases_are_stolen_from_a_living_host_after_steal_after() {
    let shop = Shop::served();
    shop.load(20);
    let timing = ["--acquire-interval", "200ms", "--renew-interval", "500ms", "--expiration", "1m"];
    let busy = shop.host("a", &[&["--exec", "echo $CHANGEFEED_LEASE >> called; sleep 1000"], &timing[..]].concat());
    eventually("a call for each lease", || shop.lines("called").len() == 4);
    // Its owner renews them all the time and hands none of them over.
    let thief = shop.logged_host("b", &[&["--print", "--steal-after", "1s"], &timing[..]].concat());
    let line = shop.logs("lease stolen");
    assert!(line.contains("from=\"a\""), "{line}");
    drop(busy);
    thief.stop();
}

#[test]
fn progress_is_stored_as_often_as_checkpoint_every_says_and_at_the_end() {
    let shop = Shop::served();
    let ledger = shop.load(10).into_iter().collect();
    // Renewals store progress, too.
    let timing = ["--renew-interval", "3m", "--expiration", "10m"];
    let host = shop.host("a", &[&["--print", "--json", "--checkpoint-every", "3m"], &timing[..]].concat());
    eventually("all orders", || changes(&shop.lines("out")) == ledger);
    let ledger = shop.load(10).into_iter().collect();
    eventually("all orders", || changes(&shop.lines("out")) == ledger);
    assert_eq!(shop.json(&["lag"], &[])["total"], 20, "nothing is stored yet");
    host.stop();
    assert_eq!(shop.json(&["lag"], &[])["total"], 0, "a lease that is given up is stored");
    assert_eq!(shop.lines("out").len(), 20);
}

/// How many seconds it takes until a host with these options has made so many more requests of one kind to its leases.
fn seconds_until(shop: &Shop, options: &[&str], operation: &str, more: f64) -> u64 {
    let address = free_port();
    let host = shop.host("a", &[&["--print", "--metrics", &address.to_string()], options].concat());
    shop.owns("a", 4);
    shop.catches_up();
    let (begin, before) = (now(), requests(address, REQUESTS, "leases", operation));
    eventually(operation, || requests(address, REQUESTS, "leases", operation) >= before + more);
    let seconds = (now() - begin) / 1000;
    host.stop();
    seconds
}

#[test]
fn leases_are_looked_for_and_renewed_as_often_as_the_intervals_say() {
    let shop = Shop::served();
    shop.load(4);
    // By default a host looks every two seconds and renews each of four leases every three: both take a minute.
    let seconds = seconds_until(&shop, &["--acquire-interval", "50ms"], "read_changes", 60.0);
    assert!(seconds < 40, "{seconds} s");
    let seconds = seconds_until(&shop, &["--renew-interval", "100ms"], "write", 80.0);
    assert!(seconds < 40, "{seconds} s");
    let refused = shop.run(&["run"], &["--print", "--check", "--renew-interval", "4s"]);
    assert!(text(&refused.stderr).contains("--expiration (10s) must be at least three times --renew-interval (4s)"));
    let refused = shop.run(&["run"], &["--print", "--check", "--acquire-interval", "11s"]);
    assert!(text(&refused.stderr).contains("--acquire-interval (11s) must not exceed"));
}

#[test]
fn an_owner_promises_the_expiration_that_was_given() {
    let shop = Shop::served();
    shop.load(4);
    let host = shop.host("a", &["--print", "--expiration", "17s"]);
    shop.owns("a", 4);
    let store = shop.store();
    let place = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    let shown = run(&[&["leases", "show", "mailer", "0"], &place[..]].concat());
    let lease: Value = serde_json::from_slice(&shown.stdout).unwrap();
    host.stop();
    assert_eq!(lease["properties"]["cf.expiration"], "17000", "{lease}");
}

#[test]
fn dead_letters_are_kept_as_long_as_their_time_to_live_says() {
    let shop = Shop::in_folder();
    shop.load(1);
    let reject = ["--exec", "false", "--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
    let reject =
        |ttl: &'static str| [&reject[..], &["--dead-letter-ttl", ttl, "--once", "--from", "beginning"]].concat();
    let list = || crate::dead_letters::letters(&shop, &["list", "--json"]);
    assert_good(&shop.run(&["run"], &reject("1h")));
    let letter: Value = serde_json::from_str(list().trim()).unwrap();
    assert_eq!(letter["ttl"], 3600, "{letter}");
    shop.says(&["seek"], &["--to", "beginning"]);
    let again = shop.run(&["run"], &reject("1s"));
    assert_good(&again);
    assert!(text(&again.stderr).contains("item dead-lettered"), "{}", text(&again.stderr));
    eventually("the end of the dead letter", || list().is_empty());
    // A container that was made for something else keeps its items.
    let elsewhere = ["--exec", "false", "--dead-letters", "shop/orders", "--dead-letter-ttl", "1h", "--once"];
    let refused = shop.run(&["run"], &elsewhere);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("set its defaultTtl to -1"), "{}", text(&refused.stderr));
}

#[test]
fn the_log_has_as_much_as_its_level_says() {
    let shop = Shop::in_folder();
    shop.load(4);
    for (level, acquired, caught_up) in
        [("off", false, false), ("warn", false, false), ("info", true, false), ("debug", true, true)]
    {
        let output = run_as(&shop, level, &["--print", "--once", "--from", "beginning", "--log", level]);
        assert_good(&output);
        let said = text(&output.stderr);
        assert_eq!(said.contains("lease acquired"), acquired, "{level}: {said}");
        assert_eq!(said.contains("lease caught up"), caught_up, "{level}: {said}");
    }
}

#[test]
fn a_first_start_is_announced_with_where_it_begins() {
    let shop = Shop::in_folder();
    shop.load(2);
    let run = |more: &[&str]| text(&shop.run(&["run"], &[&["--print", "--once"], more].concat()).stderr);
    let first = run(&[]);
    assert!(first.contains("first start: delivers from now on, without the changes before"), "{first}");
    assert!(!run(&[]).contains("first start"), "it has run before");
}

/// Leases that expire are lost with their checkpoints.
#[test]
fn a_lease_container_that_deletes_items_is_refused() {
    let shop = Shop::served();
    shop.load(1);
    let client = Client::connect(&shop.store(), EMULATOR_KEY).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let leases = client.database("shop").container("leases").time_to_live(TimeToLive::Seconds(3600));
    runtime.block_on(leases.create()).unwrap();
    for more in [&["--check"][..], &["--once"]] {
        let refused = shop.run(&["run"], &[&["--print"], more].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{more:?}: {said}");
        assert!(
            said.contains("shop/leases deletes items after 3600 s (defaultTtl), leases among them"),
            "{more:?}: {said}"
        );
    }
}
