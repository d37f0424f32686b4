//! `demo` on a terminal: one picture that changes, then the ledger.

use std::path::Path;

use crate::{
    process::{Folder, eventually, run, text},
    screen::Screen,
    shop::assert_good,
    terminal::Terminal,
};

/// How many lines the terminals of tests have.
const ROWS: usize = 24;

/// The demonstration on a terminal that says where its cursor is.
fn start(columns: u16, args: &[&str]) -> Terminal {
    let mut terminal = Terminal::start(columns, &[&["demo", "--seconds", "8"], args].concat());
    eventually("the question where the cursor is", || terminal.raw().contains("\x1b[6n"));
    terminal.press("\x1b[1;1R");
    terminal
}

fn screen(columns: usize, raw: &str) -> Screen {
    Screen::after(columns, ROWS, raw)
}

/// The process of a host, if the picture shows it.
fn process(screen: &Screen, host: &str) -> Option<u32> {
    let line = screen.text().into_iter().rfind(|line| line.split_whitespace().next() == Some(host))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn the_demo_draws_its_hosts_and_the_kill_on_eighty_columns_and_keeps_its_store() {
    let folder = Folder::new();
    let store = folder.join("kept");
    let terminal = start(80, &["--keep", &store, "--seed", "7"]);
    let mut processes = Vec::new();
    eventually("three hosts in the picture", || {
        let screen = screen(80, &terminal.raw());
        processes = ["ada", "bob", "cleo"].iter().filter_map(|host| process(&screen, host)).collect();
        processes.len() == 3
    });
    // Not ada, which may be dead by now.
    let command = std::fs::read_to_string(format!("/proc/{}/cmdline", processes[2])).unwrap();
    assert!(command.contains("demo-host\0cleo"), "each host is a process: {command:?}");

    let (code, raw) = terminal.ended();
    let screen = screen(80, &raw);
    let lines = screen.text();
    assert_eq!(code, Some(0), "{lines:#?}");
    assert_eq!(screen.wraps, 0, "every line fits: {lines:#?}");
    let heading = lines.iter().position(|line| line == "HOST   PROCESS  HANDLED  RANGES").unwrap();
    let ada = &lines[heading + 1];
    let words: Vec<&str> = ada.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[3]), ("ada", processes[0].to_string().as_str(), "killed"), "{ada}");
    assert_eq!(lines.iter().filter(|line| line.contains("HOST   PROCESS")).count(), 1, "one picture: {lines:#?}");
    // The cursor is hidden after each drawing.
    let mut seen = Screen::new(80, ROWS);
    let died = raw.split_inclusive("\x1b[?25l").any(|drawn| {
        seen.write(drawn);
        seen.text().iter().any(|line| line.contains("ada died without warning, with range "))
    });
    assert!(died, "no picture says it: {lines:#?}");
    let ledger = lines.iter().position(|line| line.starts_with("Ledger after ")).unwrap();
    let lost = lines[ledger..].iter().find(|line| line.trim_start().starts_with("lost ")).unwrap();
    assert_eq!(lost.split_whitespace().collect::<Vec<_>>().join(" "), "lost 0 every change is accounted for");
    assert_eq!(lines.iter().rfind(|line| !line.is_empty()).unwrap(), &format!("The store stays in {store}."));
    for process in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "process {process} is left behind");
    }
    let verified = run(&["verify", "--store", &store]);
    assert_good(&verified);
    assert!(text(&verified.stdout).starts_with("all is well: "), "{}", text(&verified.stdout));
    let find = ["--where", "c.id = 'order-1'", "--from", "beginning", "--once", "--json"];
    let found = run(&[&["tail", "--store", &store, "--container", "demo/orders"], &find[..]].concat());
    assert_good(&found);
    let change: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(change["item"]["customer"], first_customer(7), "the seed chooses the orders: {change}");
}

/// The customer of the first order, which follows from the seed.
fn first_customer(seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    // Whether to update an order, which there is none of yet, and if so which.
    if random.u64(..).is_multiple_of(5) {
        random.u64(..);
    }
    format!("customer-{}", random.u64(..) % 500)
}

#[test]
fn the_demo_on_forty_columns_loses_nothing_either() {
    let (code, raw) = start(40, &[]).ended();
    let lines = screen(40, &raw).text();
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(!raw.contains("panicked"), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "HOST   PROCESS  HANDLED  RANGES"), "{lines:#?}");
    let lost = lines.iter().rfind(|line| line.trim_start().starts_with("lost ")).unwrap();
    assert_eq!(lost.split_whitespace().nth(1), Some("0"), "{lines:#?}");
}
