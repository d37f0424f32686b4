//! The command on a terminal, by `script`: lines that fit it, progress of what lasts, `top` until its end.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use crate::{
    process::{eventually, run, text},
    shop::Shop,
};

/// A command on a terminal of its own, gone when its test ends.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts the command on a terminal of so many columns.
    pub(crate) fn start(columns: u16, args: &[&str]) -> Self {
        let quoted = |word: &&str| format!("'{}'", word.replace('\'', "'\\''"));
        let line: Vec<String> = [env!("CARGO_BIN_EXE_changefeed")].iter().chain(args).map(quoted).collect();
        // The shell says how the command ended. A test that runs in the background inherits that Ctrl-C is ignored.
        let script = format!("stty cols {columns} rows 24; trap : INT; {}; exit $?", line.join(" "));
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "script", "-qec", &script, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env_remove("CHANGEFEED_KEY")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of bsdutils, must be installed");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (own, mut out) = (Arc::clone(&shown), child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut part) {
                own.lock().unwrap().extend_from_slice(&part[..count]);
            }
        });
        Self { keys: child.stdin.take().unwrap(), child, shown, reader: Some(reader) }
    }

    /// Everything that was shown, escapes included.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// The command that runs on it, which holds this word among its arguments.
    fn process(&self, word: &str) -> u32 {
        let mut found = None;
        eventually("a process on the terminal", || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            found = numbers.into_iter().find(|number| {
                let line = std::fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
                let mut words = line.split('\0');
                words.next() == Some(env!("CARGO_BIN_EXE_changefeed")) && words.any(|found| found == word)
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until something was shown.
    pub(crate) fn shows(&self, text: &str) {
        eventually(&format!("{text:?} on the terminal"), || self.raw().contains(text));
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end: the exit code, and everything that was shown.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut status = None;
        eventually("the end of the command", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        // What was written last may not have been read yet.
        self.reader.take().unwrap().join().unwrap();
        (status.unwrap().code(), self.raw())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What is left on a terminal of so many columns: its lines.
#[track_caller]
fn lines(columns: u16, args: &[&str]) -> Vec<String> {
    let (_, shown) = Terminal::start(columns, args).ended();
    let visible = |line: &str| line.rsplit("\x1b[2K").next().unwrap().trim_end().to_owned();
    let lines: Vec<String> = shown.lines().map(visible).collect();
    assert!(!lines.iter().any(|line| line.contains('\x1b')), "{args:?}: {lines:?}");
    lines
}

/// The arguments of a look at `mailer`.
fn on<'a>(store: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let place = ["--store", store, "--container", "shop/orders", "--leases", "shop/leases"];
    [words, &place].concat()
}

#[test]
fn what_people_read_fits_eighty_columns_and_forty() {
    let shop = Shop::served();
    let ledger = shop.load(8);
    let store = shop.store();
    // Item 3 becomes a dead letter.
    let poison = ["--exec", "! grep -q '\"number\":3,'", "--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
    let more = [&poison[..], &["--max-items", "1", "--once", "--from", "beginning", "--log", "off"]].concat();
    shop.says(&["run"], &more);
    let expected = [
        "mailer has caught up",
        "",
        "LEASE  STATE  OWNER  CHANGES  BEHIND",
        "    0  free   -            0  -",
        "    1  free   -            0  -",
        "    2  free   -            0  -",
        "    3  free   -            0  -",
    ];
    assert_eq!(lines(40, &on(&store, &["lag", "mailer"])), expected);
    let sentence = ["lease 0: caught up; no host owns it: the", "  next host takes it"];
    assert_eq!(lines(40, &on(&store, &["explain", "mailer", "--lease", "0"])), sentence);
    let ranges = ["range 0", "  from -", "  to   0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "range 1"];
    assert_eq!(lines(40, &["ranges", "--store", &store, "--container", "shop/orders"])[..4], ranges);
    let refused = lines(40, &on(&store, &["explain", "mailer", "--lease", "9"]));
    assert_eq!(refused, ["error: there is no lease 9; there are:", "  0, 1, 2, 3"]);

    let (id, _) = ledger[0].split_once(' ').unwrap();
    let key = format!("k{}", id.rsplit('-').next().unwrap());
    let backup = shop.folder.join("backup");
    for columns in [80, 40] {
        for args in [
            on(&store, &["lag", "mailer"]),
            on(&store, &["explain", "mailer"]),
            on(&store, &["leases", "list", "mailer"]),
            on(&store, &["leases", "release", "mailer", "--dry-run"]),
            on(&store, &["seek", "mailer", "--to", "beginning", "--dry-run"]),
            on(&store, &["pause", "mailer", "--dry-run"]),
            on(&store, &["resume", "mailer"]),
            on(&store, &["top", "mailer", "--once", "--interval", "10ms"]),
            on(&store, &["where", "mailer", id, "--key", &key]),
            on(&store, &["run", "mailer", "--check", "--print"]),
            vec!["dead-letters", "list", "--store", &store, "--dead-letters", "shop/rejected"],
            vec!["dead-letters", "purge", "--store", &store, "--dead-letters", "shop/rejected"],
            vec!["ranges", "--store", &store, "--container", "shop/orders"],
            vec!["verify", "--store", &store],
            vec!["throttle", "--store", &store, "--seconds", "0"],
            vec!["tail", "--store", &store, "--container", "shop/none"],
            vec!["backup", "--store", &store, "--to", &backup],
            vec!["lag", "--help"],
        ] {
            for line in lines(columns, &args) {
                // An id or a path longer than a line stays whole, to be copied, and so does the usage.
                let is_whole = line.split_whitespace().count() == 1 || line.starts_with("Usage:");
                let fits = line.chars().count() <= usize::from(columns) || is_whole;
                assert!(fits, "{columns} columns, {args:?}: {line}");
            }
        }
    }
}

#[test]
fn where_there_is_no_terminal_a_sentence_is_one_line_and_there_are_no_escapes() {
    let shop = Shop::served();
    shop.load(8);
    let store = shop.store();
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    for args in [
        on(&store, &["explain", "mailer"]),
        on(&store, &["lag", "mailer"]),
        on(&store, &["top", "mailer", "--once", "--interval", "600ms"]),
        on(&store, &["lagg"]),
        vec!["load", "--store", &store, "--container", "shop/orders", "--count", "10", "--rate", "10"],
        vec!["--help"],
    ] {
        let output = run(&args);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(!said.contains('\x1b') && !said.contains('\r'), "{args:?}: {said}");
    }
    let explained = text(&run(&on(&store, &["explain", "mailer"])).stdout);
    assert_eq!(explained.lines().count(), 5, "four leases, and what to do next: {explained}");
}

#[test]
fn what_is_waited_for_is_shown_until_ctrl_c() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("http://{}", silent.local_addr().unwrap());
    for args in [
        on(&store, &["lag", "mailer"]),
        on(&store, &["leases", "export", "mailer"]),
        on(&store, &["seek", "mailer", "--to", "now"]),
        vec!["tail", "--store", &store, "--container", "shop/orders", "--once"],
        vec!["load", "--store", &store, "--container", "shop/orders", "--count", "1"],
        vec!["split", "--store", &store, "--container", "shop/orders", "--range", "0"],
        vec!["run", "mailer", "--store", &store, "--container", "shop/orders", "--leases", "a/b", "--print"],
    ] {
        let mut terminal = Terminal::start(40, &args);
        terminal.shows("looking for shop/orders");
        terminal.press("\x03");
        let (code, shown) = terminal.ended();
        // A host ends in good order; others are ended by the signal, as shells say it.
        assert!(matches!(code, Some(0 | 130)), "{args:?}: {code:?} {shown:?}");
    }
    for (args, message) in [
        (vec!["verify", "--store", &store], "reading everything"),
        (vec!["throttle", "--store", &store, "--seconds", "1"], "waiting for http://127.0.0.1"),
        (vec!["backup", "--store", &store, "--to", "never-made"], "taking a snapshot"),
    ] {
        let mut terminal = Terminal::start(80, &args);
        terminal.shows(message);
        terminal.press("\x03");
        let (code, shown) = terminal.ended();
        assert_eq!(code, Some(130), "{args:?}: {shown:?}");
    }
}

#[test]
fn bars_fit_forty_columns_and_lines_of_the_log_stand_above_them() {
    let shop = Shop::served();
    let store = shop.store();
    let load = ["load", "--store", &store, "--container", "shop/orders", "--prefix", "o"];
    let load = |count: &'static str, rate: &'static str| [&load[..], &["--count", count, "--rate", rate]].concat();
    for (columns, expected) in [(80, "30 items, 1"), (40, "% of items")] {
        let (code, shown) = Terminal::start(columns, &load("30", "15")).ended();
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains(expected), "{shown:?}");
        assert!(!shown.contains("\x1b[1A"), "each picture takes one line: {shown:?}");
        let drawn = shown.split("\r").map(|part| part.rsplit("\x1b[2K").next().unwrap());
        assert!(drawn.clone().all(|line| line.trim_end().chars().count() <= columns.into()), "{shown:?}");
    }

    // Each batch takes a while, so that there is something to see; the log says meanwhile what happens.
    run(&load("4000", "100000"));
    let copy = ["run", "archive", "--from", "beginning", "--copy-to", "shop/archive", "--once"];
    let (code, shown) = Terminal::start(80, &on(&store, &copy)).ended();
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(shown.contains("changes copied, "), "{shown:?}");
    let acquired: Vec<&str> = shown.split("\r").filter(|part| part.contains("lease acquired")).collect();
    assert_eq!(acquired.len(), 4, "{shown:?}");
    for line in acquired {
        let line = line.rsplit("\x1b[2K").next().unwrap().trim_start_matches('\n');
        assert!(line.as_bytes()[0].is_ascii_digit(), "begins with the time of day: {line:?} in {shown:?}");
    }
}

#[test]
fn a_redrive_at_a_rate_and_a_measurement_show_what_they_do() {
    let shop = Shop::served();
    shop.load(12);
    let store = shop.store();
    let reject = ["--exec", "test -e fixed", "--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
    let host = shop.host("a", &[&reject[..], &["--max-items", "1"]].concat());
    // The container is made by the host.
    let list = ["dead-letters", "list", "--store", &store, "--dead-letters", "shop/rejected", "--json"];
    eventually("three dead letters", || text(&run(&list).stdout).lines().count() >= 3);
    shop.folder.write("fixed", "");
    shop.catches_up();
    host.stop();
    let redrive = ["dead-letters", "redrive", "--store", &store, "--dead-letters", "shop/rejected", "--container"];
    let (code, shown) = Terminal::start(80, &[&redrive[..], &["shop/orders", "--rate", "2"]].concat()).ended();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("dead letters, "), "{shown:?}");
    assert!(shown.contains("written again"), "{shown:?}");

    let (_, shown) = Terminal::start(80, &on(&store, &["top", "mailer", "--once", "--interval", "2s"])).ended();
    assert!(shown.contains("working on the leases"), "{shown:?}");
}

#[test]
fn top_ends_with_a_sentence_if_there_is_nothing_to_look_at() {
    let args = on("http://127.0.0.1:1", &["top", "mailer"]);
    let (code, shown) = Terminal::start(80, &args).ended();
    assert_eq!(code, Some(2), "{shown}");
    let (_, after) = shown.rsplit_once("\x1b[?1049l").expect("the screen is as it was before");
    assert!(after.contains("error: nothing listens at http://127.0.0.1:1: start `changefeed serve`"), "{after:?}");

    let shop = Shop::served();
    shop.load(1);
    let store = shop.store();
    let (code, shown) = Terminal::start(80, &on(&store, &["top", "mailer"])).ended();
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("there is no container shop/leases"), "{shown:?}");
}

#[test]
fn top_goes_on_while_its_server_is_gone_until_a_key_ends_it() {
    let mut shop = Shop::served();
    shop.load(4);
    let store = shop.store();
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let mut top = Terminal::start(80, &on(&store, &["top", "mailer", "--interval", "100ms"]));
    // The first picture without measurements does not say it.
    top.shows("sorted");
    shop.kill_server();
    top.shows("listens");
    assert!(top.child.try_wait().unwrap().is_none(), "the last picture stays");
    top.press("q");
    let (code, shown) = top.ended();
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(shown.trim_end().ends_with("\x1b[?25h") || shown.contains("\x1b[?1049l"), "the screen is as it was");
}

#[test]
fn top_that_is_asked_to_end_leaves_the_terminal_as_it_was() {
    let shop = Shop::served();
    shop.load(4);
    let store = shop.store();
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let top = Terminal::start(80, &on(&store, &["top", "mailer"]));
    top.shows("sorted");
    let process = top.process(&store).to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &process]).status().unwrap().success());
    let (code, shown) = top.ended();
    assert_eq!(code, Some(130), "{shown:?}");
    assert!(shown.contains("\x1b[?1049l") && shown.contains("\x1b[?25h"), "the screen is as it was: {shown:?}");
}
