//! The options that many sub-commands share: where the store is, how to get in, which containers are meant, and `--json`.
//! Each sub-command is tried with each of them.

use std::process::Output;

use serde_json::Value;

use crate::{
    process::{Folder, Server, run, text},
    shop::{Shop, assert_good},
    terminal::Terminal,
};

/// What a sub-command takes besides the options of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A processor: the containers that are monitored and of leases.
    Processor,
    /// A container.
    Container,
    /// A dead-letter container.
    DeadLetters,
    /// A dead-letter container and the monitored one.
    DeadLettersAndContainer,
    /// The store only.
    Store,
}

use Takes::{Container, DeadLetters, DeadLettersAndContainer, Processor, Store};

/// Every sub-command that opens a store, with arguments that leave it as it is or do no harm to those that follow. `FILE` is
/// a file of exported leases, `NEW` a folder that is not there, `LETTER` the id of a dead letter, `ITEM` that of an item.
const COMMANDS: [(Takes, &str); 28] = [
    (Processor, "run mailer --print --once --log off --start-timeout 2s"),
    (Processor, "run mailer --print --check --log off"),
    (Processor, "lag mailer"),
    (Processor, "top mailer --once --interval 1ms"),
    (Processor, "explain mailer"),
    (Processor, "leases list mailer"),
    (Processor, "leases show mailer 1"),
    (Processor, "leases release mailer"),
    (Processor, "leases export mailer --to FILE"),
    (Processor, "leases import mailer --from FILE"),
    (Processor, "seek mailer --to now --dry-run"),
    (Processor, "pause mailer"),
    (Processor, "resume mailer"),
    (Processor, "where mailer ITEM --key k0"),
    (Container, "tail --once --from beginning --max 1"),
    (Container, "load --count 1"),
    (Container, "ranges"),
    (Container, "split --range 3"),
    (Container, "merge --ranges 0,1"),
    (DeadLetters, "dead-letters list"),
    (DeadLetters, "dead-letters show LETTER"),
    (DeadLettersAndContainer, "dead-letters redrive --dry-run"),
    (DeadLetters, "dead-letters purge"),
    (Store, "verify"),
    (Store, "backup --to NEW"),
    (Store, "throttle --seconds 0"),
    (Store, "fault --status 503 --path-contains nothing"),
    (Store, "fault --clear"),
];

/// A secure server with a processor that has run and left a dead letter.
struct Secure {
    folder: Folder,
    server: Server,
    letter: String,
    item: String,
}

impl Secure {
    fn start() -> Self {
        let folder = Folder::new();
        let key = folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
        let store = folder.join("data");
        let server = Server::start(&["--store", &store, "--tls", "self-signed", "--key-file", &key, "--allow-faults"]);
        folder.write("ca.pem", server.ready["certificate"].as_str().unwrap());
        let mut secure = Self { folder, server, letter: String::new(), item: String::new() };
        let loaded = secure.run(Container, "load --count 4 --prefix o", &secure.access());
        assert_good(&loaded);
        let rejects = "run mailer --exec false --dead-letters shop/rejected --dead-letter-after 1 --max-items 1 --once";
        assert_good(&secure.run(Processor, &format!("{rejects} --from beginning --log off"), &secure.access()));
        assert_good(&secure.run(Processor, "leases export mailer --to FILE", &secure.access()));
        let listed = text(&secure.run(DeadLetters, "dead-letters list --json", &secure.access()).stdout);
        let letter: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
        secure.letter = letter["id"].as_str().unwrap().to_owned();
        secure.item = "o-0".to_owned();
        secure
    }

    /// The options with which the server lets a client in, and a client trusts the server.
    fn access(&self) -> Vec<String> {
        ["--key-file", &self.folder.join("key"), "--ca-file", &self.folder.join("ca.pem")].map(str::to_owned).into()
    }

    fn run(&self, takes: Takes, line: &str, more: &[String]) -> Output {
        let containers: &[&str] = match takes {
            Processor => &["--container", "shop/orders", "--leases", "shop/leases"],
            Container => &["--container", "shop/orders"],
            DeadLetters => &["--dead-letters", "shop/rejected"],
            DeadLettersAndContainer => &["--dead-letters", "shop/rejected", "--container", "shop/orders"],
            Store => &[],
        };
        self.run_on(&self.server.endpoint(), containers, line, more)
    }

    fn run_on(&self, store: &str, containers: &[&str], line: &str, more: &[String]) -> Output {
        let word = |word: &str| match word {
            "FILE" => self.folder.join("leases.json"),
            "NEW" => {
                // What was made before is in the way.
                drop(std::fs::remove_dir_all(self.folder.join("backup")));
                self.folder.join("backup")
            }
            "LETTER" => self.letter.clone(),
            "ITEM" => self.item.clone(),
            word => word.to_owned(),
        };
        let mut args: Vec<String> = line.split(' ').map(word).collect();
        args.extend(["--store".to_owned(), store.to_owned()]);
        args.extend(containers.iter().map(|word| (*word).to_owned()));
        args.extend_from_slice(more);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

#[track_caller]
fn assert_refused(output: &Output, line: &str, words: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(said.contains(words), "{line}: {words:?} is not in {said}");
}

/// Done, whether what it found is well or not.
#[track_caller]
fn assert_done(output: &Output, line: &str) {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {}", text(&output.stderr));
}

#[test]
fn every_sub_command_reaches_a_secure_store_by_its_key_and_certificate_only() {
    let secure = Secure::start();
    let other = Server::start(&["--store", "memory", "--tls", "self-signed"]);
    let wrong = secure.folder.write("wrong.pem", other.ready["certificate"].as_str().unwrap());
    let access = secure.access();
    let (key, ca) = access.split_at(2);
    for (takes, line) in COMMANDS {
        assert_refused(&secure.run(takes, line, ca), line, "does not accept the key");
        let distrusted = [key, &["--ca-file".to_owned(), wrong.clone()]].concat();
        assert_refused(&secure.run(takes, line, &distrusted), line, "is not trusted");
        assert_done(&secure.run(takes, line, &access), line);
    }
}

#[test]
fn every_sub_command_works_on_the_store_and_the_containers_that_are_named() {
    let secure = Secure::start();
    let access = secure.access();
    let endpoint = secure.server.endpoint();
    for (takes, line) in COMMANDS {
        let nowhere = secure.run_on("http://127.0.0.1:1", &containers(takes, ""), line, &[]);
        assert_refused(&nowhere, line, "nothing listens at http://127.0.0.1:1");
        for wrong in containers(takes, "").chunks(2).map(|option| option[0]) {
            // The first host makes its lease container, an import as well, and load its container.
            if wrong == "--leases" && (line.starts_with("run ") || line.starts_with("leases import")) {
                continue;
            }
            if wrong == "--container" && line.starts_with("load") {
                continue;
            }
            let output = secure.run_on(&endpoint, &containers(takes, wrong), line, &access);
            assert_refused(&output, line, "there is no container shop/none");
        }
    }
    // Those make what is missing, under the name that was given.
    for (made, containers, line) in [
        ("shop/new", vec!["--container", "shop/new"], "load --count 1"),
        (
            "shop/new-leases",
            vec!["--container", "shop/orders", "--leases", "shop/new-leases"],
            "run mailer --print --once",
        ),
        (
            "shop/imported",
            vec!["--container", "shop/orders", "--leases", "shop/imported"],
            "leases import mailer --from FILE",
        ),
    ] {
        let looks = || secure.run_on(&endpoint, &["--container", made], "ranges", &access);
        assert_refused(&looks(), line, &format!("there is no container {made}"));
        assert_good(&secure.run_on(&endpoint, &containers, line, &access));
        assert_good(&looks());
    }
}

/// The options that name containers; the one called `wrong` names another container than it should.
fn containers(takes: Takes, wrong: &str) -> Vec<&'static str> {
    let options: &[(&str, &str)] = match takes {
        Processor => &[("--container", "shop/orders"), ("--leases", "shop/leases")],
        Container => &[("--container", "shop/orders")],
        DeadLetters => &[("--dead-letters", "shop/rejected")],
        DeadLettersAndContainer => &[("--dead-letters", "shop/rejected"), ("--container", "shop/orders")],
        Store => &[],
    };
    let named =
        |(option, name): &(&'static str, &'static str)| [*option, if *option == wrong { "shop/none" } else { *name }];
    options.iter().flat_map(named).collect()
}

#[test]
fn every_sub_command_prints_json_if_asked() {
    let secure = Secure::start();
    let is_json = |output: &Output| {
        let said = text(&output.stdout);
        !said.is_empty() && said.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
    };
    for (takes, line) in COMMANDS {
        // Both print, and neither hinders the other.
        let line = match line {
            line if line.starts_with("run mailer --print --once") => {
                "run json --print --once --from beginning --log off"
            }
            "split --range 3" => "split --range 0",
            "merge --ranges 0,1" => "merge --ranges 2,3",
            line => line,
        };
        let json = secure.run(takes, line, &[secure.access(), vec!["--json".to_owned()]].concat());
        assert_done(&json, line);
        assert!(is_json(&json), "{line}: {}", text(&json.stdout));
        if line.starts_with("run json") {
            assert_good(&secure.run(takes, "seek json --to beginning", &secure.access()));
        }
        if !line.starts_with("split") && !line.starts_with("merge") {
            let plain = secure.run(takes, line, &secure.access());
            assert_done(&plain, line);
            assert!(!is_json(&plain), "{line}: {}", text(&plain.stdout));
        }
    }
    let restored = secure.folder.join("restored");
    let restore = ["restore", "--from", &secure.folder.join("backup"), "--store"];
    let json = run(&[&restore[..], &[&restored, "--json"]].concat());
    assert_good(&json);
    assert!(is_json(&json) && !is_json(&run(&[&restore[..], &[&format!("{restored}-plain")]].concat())));
    for (args, expected) in [(&["config", "show"][..], false), (&["config", "show", "--json"], true)] {
        let shown = crate::process::command(args).env("CHANGEFEED_LEASES", "shop/leases").output().unwrap();
        assert_eq!(is_json(&shown), expected, "{args:?}: {}", text(&shown.stdout));
    }
}

/// Options with those that name another store of leases.
fn with<'a>(lease_store: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--lease-store", lease_store], more].concat()
}

#[test]
fn every_sub_command_on_a_processor_finds_leases_in_another_store() {
    let (shop, other) = (Shop::in_folder(), Shop::in_folder());
    let ledger = shop.load(4);
    other.load(1);
    let elsewhere = other.store();
    shop.says(&["run"], &with(&elsewhere, &["--print", "--once", "--from", "beginning", "--log", "warn"]));
    let file = shop.folder.join("leases.json");
    let (item, _) = ledger[0].split_once(' ').unwrap();
    let key = format!("k{}", item.rsplit('-').next().unwrap());
    for (name, more) in [
        (&["leases", "export"][..], &["--to", &file][..]),
        (&["lag"], &[]),
        (&["top"], &["--once", "--interval", "1ms"]),
        (&["explain"], &[]),
        (&["leases", "list"], &[]),
        (&["leases", "release"], &[]),
        (&["seek"], &["--to", "now", "--dry-run"]),
        (&["pause"], &["--dry-run"]),
        (&["resume"], &[]),
        (&["leases", "import"], &["--from", &file, "--dry-run"]),
    ] {
        let found = shop.run(name, &with(&elsewhere, more));
        assert_done(&found, &name.join(" "));
        assert_refused(&shop.run(name, more), &name.join(" "), "there is no container shop/leases");
    }
    let store = shop.store();
    let place = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    for words in [&["leases", "show", "mailer", "1"][..], &["where", "mailer", item, "--key", &key]] {
        assert_good(&run(&[words, &place[..], &["--lease-store", &elsewhere]].concat()));
        assert_refused(&run(&[words, &place[..]].concat()), words[0], "there is no container shop/leases");
    }
    let check = ["--print", "--check", "--log", "warn"];
    assert!(shop.says(&["run"], &with(&elsewhere, &check)).contains("it has run before and goes on where it was"));
    assert!(shop.says(&["run"], &check).contains("shop/leases would be created"));
}

#[test]
fn each_store_of_a_processor_may_have_a_key_of_its_own() {
    let folder = Folder::new();
    let [one, two] = ["b25lb25lb25lb25lb25lb25l", "dHdvdHdvdHdvdHdvdHdvdHdv"];
    let (key, other_key) = (folder.write("one", one), folder.write("two", two));
    let server = Server::start(&["--store", "memory", "--key-file", &key]);
    let other = Server::start(&["--store", "memory", "--key-file", &other_key]);
    let store = ["--store", &server.endpoint(), "--key-file", &key, "--container", "shop/orders"];
    assert_good(&run(&[&["load", "--count", "3", "--create"], &store[..]].concat()));
    assert_good(&run(&[
        "load",
        "--count",
        "1",
        "--store",
        &other.endpoint(),
        "--key-file",
        &other_key,
        "--container",
        "shop/other",
    ]));
    let leases = ["--leases", "shop/leases", "--lease-store", &other.endpoint()];
    let place = [&store[..], &leases[..]].concat();
    let own = ["--lease-key-file", &other_key];
    let once = ["run", "mailer", "--print", "--once", "--from", "beginning", "--log", "warn"];
    assert_good(&run(&[&once[..], &place[..], &own[..]].concat()));
    let (file, empty) = (folder.join("leases.json"), []);
    for (words, more) in [
        (&["lag", "mailer"][..], &empty[..]),
        (&["top", "mailer"], &["--once", "--interval", "1ms"]),
        (&["explain", "mailer"], &empty),
        (&["leases", "list", "mailer"], &empty),
        (&["leases", "show", "mailer", "0"], &empty),
        (&["leases", "release", "mailer"], &empty),
        (&["leases", "export", "mailer"], &["--to", &file]),
        (&["leases", "import", "mailer"], &["--from", &file, "--dry-run"]),
        (&["seek", "mailer"], &["--to", "now", "--dry-run"]),
        (&["pause", "mailer"], &["--dry-run"]),
        (&["resume", "mailer"], &empty),
        (&["where", "mailer", "o-0"], &["--key", "k0"]),
    ] {
        let line = [words, more, &place[..]].concat();
        assert_done(&run(&[&line[..], &own[..]].concat()), &words.join(" "));
        assert_refused(&run(&line), &words.join(" "), "does not accept the key");
    }

    let target = format!("{}/shop/archive", other.endpoint().trim_end_matches('/'));
    let copy = ["run", "archive", "--copy-to", &target, "--once", "--from", "beginning", "--log", "warn"];
    let copy = [&copy[..], &store[..], &["--leases", "shop/leases"]].concat();
    assert_refused(&run(&copy), "run --copy-to", "does not accept the key");
    assert_good(&run(&[&copy[..], &["--copy-key-file", &other_key]].concat()));
    let tail = ["tail", "--once", "--from", "beginning", "--store", &other.endpoint(), "--key-file", &other_key];
    let copies = run(&[&tail[..], &["--container", "shop/archive", "--json"]].concat());
    assert_eq!(text(&copies.stdout).lines().count(), 3);
}

#[test]
fn what_libraries_warn_of_is_shown_by_every_command() {
    use std::os::unix::fs::PermissionsExt as _;

    let secure = Secure::start();
    let key = secure.folder.path().join("key");
    let expected = format!("warning: others can read the key file: run chmod 600 on it file={}\n", key.display());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    for (takes, line) in COMMANDS {
        // A host has a log, which these two switch off.
        if !line.starts_with("run ") {
            let output = secure.run(takes, line, &secure.access());
            assert_done(&output, line);
            let said = text(&output.stderr);
            assert!(said.contains(&expected), "{line}: {said}");
        }
    }
    let place = ["--store", &secure.server.endpoint(), "--container", "shop/orders", "--leases", "shop/leases"]
        .map(str::to_owned);
    let args = [&["top".to_owned(), "mailer".to_owned()], &place[..], &secure.access()].concat();
    let mut top = Terminal::start(80, &args.iter().map(String::as_str).collect::<Vec<_>>());
    top.shows("sorted");
    assert!(!top.raw().contains("others can read"), "not into the picture");
    top.press("q");
    let (_, shown) = top.ended();
    let (_, after) = shown.rsplit_once("\x1b[?1049l").expect("the screen is as it was before");
    assert_eq!(after.matches("others can read the key file").count(), 1, "{after:?}");
}

#[test]
fn a_folder_that_cannot_have_an_admin_endpoint_is_warned_of() {
    let folder = Folder::new();
    // The path of a socket has about 100 bytes at most.
    let store = folder.join(&"x".repeat(100));
    let loaded = run(&["load", "--store", &store, "--create", "--container", "shop/orders", "--count", "1"]);
    assert_good(&loaded);
    let said = text(&loaded.stderr);
    assert!(said.starts_with("warning: no admin endpoint") && said.lines().count() == 1, "{said}");
}
