//! What is mistyped or not there: exit code 2, and a sentence that says what to do.

use crate::{
    process::{Folder, Server, run, text},
    shop::Shop,
};

#[track_caller]
fn assert_refused(args: &[&str], words: &[&str]) {
    let output = run(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

#[test]
fn stores_and_containers_that_are_not_there_are_named() {
    let folder = Folder::new();
    let missing = folder.join("missing");
    assert_refused(
        &["load", "--store", &missing, "--container", "a/b", "--count", "1"],
        &["there is no folder", "load --create"],
    );
    assert!(!folder.path().join("missing").exists(), "it is not made in silence");
    let empty = folder.join("empty");
    std::fs::create_dir(&empty).unwrap();
    let processor = ["mailer", "--container", "a/b", "--leases", "a/l", "--store", &empty];
    let on_processor = |name: &[&'static str], more: &[&'static str]| [name, &processor[..], more].concat();
    for command in [
        on_processor(&["lag"], &[]),
        on_processor(&["explain"], &[]),
        on_processor(&["top"], &["--once"]),
        on_processor(&["leases", "list"], &[]),
        on_processor(&["leases", "show"], &["0"]),
        on_processor(&["leases", "release"], &[]),
        on_processor(&["leases", "export"], &[]),
        on_processor(&["seek"], &["--to", "now"]),
        on_processor(&["pause"], &[]),
        on_processor(&["resume"], &[]),
        on_processor(&["where"], &["i", "--key", "k"]),
        on_processor(&["run"], &["--print"]),
        vec!["tail", "--store", &empty, "--container", "a/b"],
        vec!["load", "--store", &empty, "--container", "a/b"],
        vec!["dead-letters", "list", "--store", &empty, "--dead-letters", "a/d"],
        vec!["ranges", "--store", &empty, "--container", "a/b"],
        vec!["split", "--store", &empty, "--container", "a/b", "--range", "0"],
        vec!["merge", "--store", &empty, "--container", "a/b", "--ranges", "0,1"],
        vec!["verify", "--store", &empty],
        vec!["backup", "--store", &empty, "--to", "none"],
    ] {
        assert_refused(&command, &["there is no store in the folder"]);
    }
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing is made in it");
    assert_refused(
        &["tail", "--store", "http://127.0.0.1:1", "--container", "a/b"],
        &["nothing listens", "changefeed serve"],
    );

    let shop = Shop::in_folder();
    shop.load(1);
    let store = shop.store();
    let tail = |more: &[&'static str]| [&["tail", "--store", &store, "--once"], more].concat();
    let on_orders = |more: &[&'static str]| tail(&[&["--container", "shop/orders"], more].concat());
    assert_refused(&tail(&["--container", "shop/order"]), &["there is no container shop/order;", "shop/orders"]);
    assert_refused(&tail(&["--container", "orders"]), &["database/container"]);
    assert_refused(&on_orders(&["--range", "9"]), &["there is no range 9; there are: 0, 1, 2, 3"]);
    let on_ranges = |more: &[&'static str]| [&more[..1], &["--store", &store], &more[1..]].concat();
    assert_refused(
        &on_ranges(&["split", "--container", "shop/orders", "--range", "9"]),
        &["there is no range 9; there are: 0, 1, 2, 3"],
    );
    assert_refused(
        &on_ranges(&["merge", "--container", "shop/orders", "--ranges", "0,x"]),
        &["there is no range x; there are: 0, 1, 2, 3"],
    );
    assert_refused(
        &on_ranges(&["split", "--container", "shop/ordes", "--range", "0"]),
        &["did you mean shop/orders? there are: shop/orders"],
    );
    let nowhere = shop.folder.join("none/bookmark");
    let output = run(&["tail", "--store", &store, "--container", "shop/orders", "--once", "--bookmark", &nowhere]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "", "nothing is printed whose position cannot be kept");
    assert!(text(&output.stderr).contains("write the bookmark"), "{}", text(&output.stderr));
    assert_refused(&on_orders(&["--where", "c.number >"]), &["--where", "c.total > 100"]);
    assert_refused(&on_orders(&["--from", "yesterday"]), &["10m ago"]);
    let bookmark = shop.folder.write("bookmark", "no bookmark");
    assert_refused(
        &["tail", "--store", &store, "--container", "shop/orders", "--once", "--bookmark", &bookmark],
        &["cannot be read", "delete the file"],
    );
}

#[test]
fn a_server_that_hangs_does_not_keep_verify_waiting() {
    let folder = Folder::new();
    let server = Server::start(&["--store", &folder.join("data")]);
    let args = ["verify", "--store", &server.endpoint()];
    assert_eq!(run(&args).status.code(), Some(0));
    server.signal("STOP");
    let output = run(&args);
    server.signal("CONT");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the server has not answered within 10 s"), "{said}");
}

#[test]
fn mistyped_words_are_recognised() {
    assert_refused(&["lagg"], &["lag"]);
    assert_refused(&["tail", "--stor", "x"], &["--store"]);
    assert_refused(&["run", "mailer", "--print", "--delegate-timeout", "5"], &["500ms, 10s, 5m or 1h"]);
    let on_memory = ["--store", "memory", "--container", "a/b", "--leases", "a/l"];
    assert_refused(&[&["run", "mailer"], &on_memory[..]].concat(), &["--print, --exec, --webhook or --copy-to"]);
    assert_refused(&["load", "--rate", "0"], &["above zero"]);
    assert_refused(&[&["run", "", "--print"], &on_memory[..]].concat(), &["a value is required for", "PROCESSOR"]);
    assert_refused(&["throttle", "--store", "http://127.0.0.1:1", "--seconds", "-1"], &["a number of seconds, or 0"]);
    let on_no_host = ["lag", "mailer", "--store", "http://", "--container", "a/b", "--leases", "a/l"];
    assert_refused(&on_no_host, &["--store http://", "such as http://127.0.0.1:8081"]);
}

#[test]
fn a_length_of_time_that_must_not_be_zero_is_refused() {
    let on_memory = ["--store", "memory", "--container", "a/b", "--leases", "a/l"];
    for option in ["--webhook-timeout", "--lag-interval", "--read-timeout", "--delegate-timeout", "--dead-letter-ttl"] {
        for delegate in [&["--print"][..], &["--exec", "cat"]] {
            let args = [&["run", "mailer"], delegate, &[option, "0s"], &on_memory[..]].concat();
            assert_refused(&args, &[option, "pass a length of time above zero, such as 500ms"]);
        }
    }
    assert_refused(&[&["top", "mailer", "--interval", "0ms"], &on_memory[..]].concat(), &["above zero"]);
    for option in ["--poll-interval", "--stop-deadline", "--acquire-interval", "--slow-after"] {
        let args = [&["run", "mailer", "--print", option, "0s"], &on_memory[..]].concat();
        let said = text(&run(&args).stderr);
        assert!(said.starts_with("error: "), "{option}: {said}");
    }
}

#[test]
fn a_processor_that_never_ran_is_told_from_one_that_did() {
    let shop = Shop::in_folder();
    shop.load(1);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let store = shop.store();
    let place = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    let dry_run = ["pause", "mailer", "--lease", "7", "--dry-run"];
    assert_refused(&[&dry_run[..], &place[..]].concat(), &["there is no lease 7: the leases are 0, 1, 2, 3"]);
    for command in ["lag", "explain", "pause"] {
        assert_refused(&[&[command, "mailr"], &place[..]].concat(), &["mailr", "existing processors are: mailer"]);
    }
    let show = ["leases", "show", "mailer", "7"];
    assert_refused(&[&show[..], &place[..]].concat(), &["there is no lease 7; there are: 0, 1, 2, 3"]);
    assert_refused(&[&["explain", "mailer", "--lease", "7"], &place[..]].concat(), &["there is no lease 7"]);
    let letter = ["dead-letters", "show", "mailer.1", "--store", &store, "--dead-letters", "shop/orders"];
    assert_refused(&letter, &["there is no dead letter mailer.1: `changefeed dead-letters list`"]);
}

#[cfg(not(feature = "cosmos"))]
#[test]
fn an_account_of_azure_says_how_to_build_the_command_for_it() {
    for store in [
        "https://my-shop.documents.azure.com",
        "https://my-shop.documents.azure.com:443/",
        "AccountEndpoint=https://my-shop.documents.azure.com:443/;AccountKey=YWJj;",
    ] {
        let words = ["my-shop.documents.azure.com is an account of Azure Cosmos DB", "--features cosmos"];
        assert_refused(&["tail", "--store", store, "--container", "a/b"], &words);
    }
}
