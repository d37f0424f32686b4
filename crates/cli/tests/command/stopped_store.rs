//! A write of the store that fails for good: the store stops, and whoever has it open ends or says so. The system refuses
//! the write, by a limit of the size of files.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use changefeed::{AdminEndpoint, Changes, Context, Processor, core::StartFrom, embedded::Engine};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::{
    process::{Folder, command, eventually, run, text},
    shop::{Shop, assert_good},
    signals::{ended, spawn},
};

/// The folder, in the process that is a program of its own.
const FOLDER: &str = "CHANGEFEED_TEST_STOPPED_STORE";

const CONTAINERS: [&str; 4] = ["--container", "shop/orders", "--leases", "shop/leases"];

/// The same command, for which a file that is too large is an error instead of its end.
fn with_errors(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    shell.env_remove("CHANGEFEED_KEY").stdin(Stdio::null());
    shell
}

/// From now on every write of this process to a file fails.
fn break_files(of: Option<&Child>) {
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    let pid = of.map(|child| Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap());
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

#[test]
fn a_command_whose_store_has_stopped_ends_with_the_cause() {
    let place = |name: &'static str, more: &[&'static str]| [&[name][..], more].concat();
    let orders = ["--container", "shop/orders"];
    for args in [
        place("run", &["mailer", "--leases", "shop/leases", "--instance", "a", "--print", "--log", "off"]),
        place("tail", &["--json"]),
        place("load", &["--rate", "50", "--json"]),
    ] {
        let shop = Shop::in_folder();
        shop.load(10);
        let store = shop.store();
        let host = spawn(with_errors(&command(&[&args[..], &orders[..], &["--store", &store]].concat())));
        let write = ["load", "--store", &store, "--container", "shop/orders", "--count", "1"];
        match args[0] {
            "run" => shop.owns("a", 4),
            // It has the folder open: others work through it.
            _ => eventually("its socket", || shop.folder.path().join("data/.admin.sock").exists()),
        }
        break_files(Some(&host));
        let mut refused = spawn(command(&write));
        let (status, said) = ended(host);
        drop(refused.kill());
        drop(refused.wait());
        assert_eq!(status.code(), Some(2), "{args:?}: {said}");
        let sentence = format!("error: the store {store} stopped after a failed write: ");
        assert!(said.contains(&sentence), "{args:?}: {said}");
        assert!(said.contains("File too large") && said.contains("start this command again"), "{args:?}: {said}");
        // Everything that was acknowledged is there, and the store takes writes again.
        assert_good(&run(&write));
        let verified = run(&["verify", "--store", &store]);
        assert_good(&verified);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_stopped_in_a_program_is_named_before_its_leases() {
    match env::var_os(FOLDER) {
        Some(folder) => stopped_program(Path::new(&folder)).await,
        None => tokio::task::spawn_blocking(look_at_a_stopped_program).await.unwrap(),
    }
}

/// A program with a host, whose store stops while it lives on.
#[expect(clippy::print_stdout, reason = "another process waits for it")]
async fn stopped_program(folder: &Path) {
    let engine = Engine::open(folder).unwrap();
    let shop = engine.database("shop");
    let orders = shop.container("orders").partition_key("/customer").open_or_create().await.unwrap();
    let leases = shop.container("leases").open_or_create().await.unwrap();
    let _admin = AdminEndpoint::open(&engine).unwrap();
    let processor = Processor::builder("mailer", &orders, &leases)
        .instance_name("embedded-1")
        .start_from(StartFrom::Beginning)
        .build(|_: Changes<Value>, _: Context| async { Ok(()) })
        .unwrap();
    let _running = processor.start().await.unwrap();
    break_files(None);
    let refused = orders.upsert(&json!({ "id": "1", "customer": "ada" })).await;
    assert!(refused.is_err());
    engine.stopped().await;
    println!("stopped");
    // Until the other process has seen enough.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
}

fn look_at_a_stopped_program() {
    let folder = Folder::new();
    let mut own = Command::new(env::current_exe().unwrap());
    let name = "stopped_store::a_store_that_has_stopped_in_a_program_is_named_before_its_leases";
    own.args(["--exact", name, "--nocapture"]);
    let mut program = with_errors(&own);
    program.env(FOLDER, folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("stopped")), "it ended before its store stopped");

    let store = folder.path().to_str().unwrap();
    let said = |name: &[&str], more: &[&str]| {
        let output = run(&[name, &["mailer", "--store", store], &CONTAINERS[..], more].concat());
        assert_eq!(output.status.code(), Some(1), "{name:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let sentence = format!("store {store}: stopped after a failed write: ");
    for name in ["explain", "lag"] {
        let shown = said(&[name], &[]);
        assert!(shown.starts_with(&sentence), "{name}: {shown}");
        assert!(shown.contains("restart the process that has it open"), "{name}: {shown}");
        assert!(!shown.contains("start one"), "another host cannot work on it either: {shown}");
    }
    let top = said(&["top"], &["--once", "--interval", "100ms"]);
    assert!(top.contains("stopped after a failed write"), "{top}");
    let explained: Value = serde_json::from_str(&said(&["explain"], &["--json"])).unwrap();
    assert!(explained[0]["store_problems"][0].as_str().unwrap().starts_with(&sentence), "{explained}");
    for name in ["lag", "top"] {
        let once: &[&str] = if name == "top" { &["--once", "--interval", "100ms"] } else { &[] };
        let shown: Value = serde_json::from_str(&said(&[name], &[&["--json"], once].concat())).unwrap();
        assert!(shown["store_problems"][0].as_str().unwrap().starts_with(&sentence), "{shown}");
    }
    drop(program.kill());
    drop(program.wait());
}
