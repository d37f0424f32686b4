//! The command on a program that has its folder open: this test is that program.

use std::{os::unix::fs::PermissionsExt as _, process::Stdio};

use changefeed::{AdminEndpoint, Changes, Context, Processor, core::StartFrom, embedded::Engine};
use serde_json::{Value, json};

use crate::{
    process::{Folder, Server, command, eventually, run, text},
    shop::{Shop, assert_good},
    signals::{ended, send, spawn},
};

const CONTAINERS: [&str; 4] = ["--container", "shop/orders", "--leases", "shop/leases"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_look_and_repair_works_on_a_program_that_has_its_folder_open() {
    let folder = Folder::new();
    let engine = Engine::open(folder.path()).unwrap();
    let shop = engine.database("shop");
    let orders = shop.container("orders").partition_key("/customer").ranges(2).open_or_create().await.unwrap();
    let leases = shop.container("leases").open_or_create().await.unwrap();
    let store = folder.path().to_str().unwrap().to_owned();
    let refused = command(&["verify", "--store", &store]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("offers no admin endpoint"), "{}", text(&refused.stderr));

    let admin = AdminEndpoint::open(&engine).unwrap();
    let mode = std::fs::symlink_metadata(admin.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "only this user reaches it");
    let processor = Processor::builder("mailer", &orders, &leases)
        .instance_name("embedded-1")
        .start_from(StartFrom::Beginning)
        .build(|_: Changes<Value>, _: Context| async { Ok(()) })
        .unwrap();
    let running = processor.start().await.unwrap();
    for number in 0..20 {
        orders.upsert(&json!({ "id": format!("o{number}"), "customer": format!("c{number}") })).await.unwrap();
    }
    let on_mailer = async |name: &[&str], more: &[&str]| {
        let args = [name, &["mailer", "--store", &store], &CONTAINERS[..], more].concat();
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let run = move || run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let json = |output: &std::process::Output| -> Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    // Commands in other processes, while this one goes on.
    loop {
        let lag = json(&on_mailer(&["lag"], &["--json"]).await);
        assert_eq!(lag["leases"].as_array().unwrap().len(), 2);
        if lag["total"] == 0 && lag["leases"].as_array().unwrap().iter().all(|lease| lease["owner"] == "embedded-1") {
            break;
        }
    }
    let explained = on_mailer(&["explain"], &[]).await;
    assert_good(&explained);
    let caught_up =
        "lease 0: caught up; embedded-1 waits for changes\nlease 1: caught up; embedded-1 waits for changes\n";
    assert_eq!(text(&explained.stdout), caught_up);
    assert_good(&on_mailer(&["top"], &["--once"]).await);
    assert_good(&on_mailer(&["leases", "show"], &["0"]).await);
    assert_eq!(text(&on_mailer(&["pause"], &[]).await.stdout), "2 leases paused: 0, 1\n");
    assert_eq!(text(&on_mailer(&["resume"], &[]).await.stdout), "2 leases resumed: 0, 1\n");
    assert_good(&on_mailer(&["seek"], &["--to", "beginning"]).await);
    assert_good(&on_mailer(&["where"], &["o7", "--key", "c7"]).await);
    let verified = tokio::task::spawn_blocking(move || run(&["verify", "--store", &store])).await.unwrap();
    assert!(text(&verified.stdout).starts_with("all is well: 1 database, 2 containers"), "{}", text(&verified.stderr));

    running.stop().await.unwrap();
    admin.close().await;
    assert!(!std::fs::exists(folder.path().join(changefeed::ADMIN_SOCKET)).unwrap(), "the socket goes with it");
    drop((orders, leases, processor));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_socket_that_a_killed_program_left_is_replaced_and_a_store_in_memory_has_none() {
    let folder = Folder::new();
    let engine = Engine::open(folder.path()).unwrap();
    let socket = folder.path().join(changefeed::ADMIN_SOCKET);
    // As a killed process leaves it: bound once, and nobody listens.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let store = folder.path().to_str().unwrap().to_owned();
    let refused = run(&["verify", "--store", &store]);
    assert!(text(&refused.stderr).contains("offers no admin endpoint"), "{}", text(&refused.stderr));
    let admin = AdminEndpoint::open(&engine).unwrap();
    let verified = tokio::task::spawn_blocking(move || run(&["verify", "--store", &store])).await.unwrap();
    assert_good(&verified);
    admin.close().await;
    engine.close().await.unwrap();
    let error = AdminEndpoint::open(&Engine::in_memory().unwrap()).unwrap_err();
    assert!(error.message().contains("in memory"), "{error}");
}

#[test]
fn a_folder_that_load_or_tail_has_open_serves_other_commands() {
    let shop = Shop::in_folder();
    shop.load(20);
    let store = shop.store();
    let orders = ["--store", &store, "--container", "shop/orders"];
    let socket = || eventually("a socket", || shop.folder.path().join("data/.admin.sock").exists());

    let loading = spawn(command(&[&["load", "--rate", "20"], &orders[..]].concat()));
    socket();
    let read = run(&[&["tail", "--from", "beginning", "--once", "--json"], &orders[..]].concat());
    assert_good(&read);
    assert!(text(&read.stdout).lines().count() >= 20);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    send("TERM", &loading);
    assert_eq!(ended(loading).0.code(), Some(0));

    let mut tail = command(&[&["tail", "--json"], &orders[..]].concat());
    let printed = std::fs::File::create(shop.folder.path().join("printed")).unwrap();
    let tail = tail.stdout(printed).stderr(Stdio::piped()).spawn().unwrap();
    socket();
    shop.load(5);
    eventually("changes from another process", || shop.lines("printed").len() == 5);
    send("INT", &tail);
    assert_eq!(ended(tail).0.code(), Some(130));
}

#[test]
fn a_host_that_works_through_another_process_says_so_and_what_happens_when_that_ends() {
    let shop = Shop::in_folder();
    shop.load(4);
    let store = shop.store();
    let first = spawn(command(&["tail", "--store", &store, "--container", "shop/orders"]));
    eventually("a socket", || shop.folder.path().join("data/.admin.sock").exists());
    let host = shop.logged_host("b", &["--print", "--json"]);
    let joined = shop.logs("another process has the store in ");
    let advice = format!("`changefeed serve --store {store}` lets hosts come and go");
    assert!(
        joined.contains("this host works through it, and waits if it ends") && joined.ends_with(&advice),
        "{joined}"
    );
    eventually("all orders", || shop.lines("out").len() == 4);

    send("KILL", &first);
    ended(first);
    let waits = shop.logs("has ended: this host waits");
    assert!(waits.ends_with(&format!("start `changefeed serve --store {store}`")), "{waits}");
    let server = Server::start(&["--store", &store]);
    shop.logs("open again: this host goes on");
    shop.load(4);
    eventually("the rest", || shop.lines("out").len() == 8);
    host.stop();
    drop(server);
}
