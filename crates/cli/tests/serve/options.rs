//! Options that make no sense: one clear sentence, exit code 2, nothing on stdout.

use std::net::TcpListener;

use crate::process::{Folder, Server, run, text};

/// Runs `serve` with these arguments, which it must refuse; what it says.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = run(&[&["serve"], args].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert_eq!(text(&output.stdout), "", "{args:?}: stdout is for the ready line");
    assert!(said.starts_with("error: "), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[track_caller]
fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

const MEMORY: [&str; 4] = ["--store", "memory", "--listen", "127.0.0.1:0"];

#[test]
fn tls_that_cannot_be_is_refused() {
    let folder = Folder::new();
    let (garbage, key) = (folder.write("garbage.pem", "garbage"), folder.join("missing.pem"));
    let with = |tls: &str| refused(&[&MEMORY[..], &["--tls", tls]].concat());
    assert_says(&with("yes"), &["--tls yes", "self-signed", "CERT,KEY"]);
    assert_says(&with(&format!("{key},{key}")), &["missing.pem"]);
    assert_says(&with(&format!("{garbage},{garbage}")), &["BEGIN CERTIFICATE"]);
    assert_says(&with(","), &["read"]);
    assert_says(&refused(&[&MEMORY[..], &["--tls-name", "db.example.com"]].concat()), &["pass --tls self-signed"]);
    let named = |name: &str| refused(&[&MEMORY[..], &["--tls", "self-signed", "--tls-name", name]].concat());
    assert_says(&named("db.example.com:8081"), &["without port", "db.example.com or 192.0.2.7"]);
    assert_says(&named(""), &["--tls-name"]);
}

#[test]
fn key_files_that_hold_no_keys_are_refused_without_being_shown() {
    let folder = Folder::new();
    let with = |file: &str| refused(&[&MEMORY[..], &["--key-file", file]].concat());
    assert_says(&with(&folder.join("missing")), &["read the key file", "missing"]);
    assert_says(&with(&folder.write("empty", "")), &["empty", "no key", "openssl rand"]);
    let said = with(&folder.write("short", "c2VjcmV0\n"));
    assert_says(&said, &["line 1", "less than 16 bytes"]);
    assert!(!said.contains("c2VjcmV0"), "{said}");
    let said = with(&folder.write("text", "# mine\nvery secret words!\n"));
    assert_says(&said, &["line 2", "not base64"]);
    assert!(!said.contains("very secret"), "{said}");
    with(folder.path().to_str().unwrap());
}

#[test]
fn a_key_file_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let key = folder.write("key", "bm9rZXk=");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let output = run(&[&["serve"], &MEMORY[..], &["--key-file", &key]].concat());
    assert_says(&text(&output.stderr), &["chmod 600", &key, "less than 16 bytes"]);
}

#[test]
fn an_address_that_others_can_reach_needs_a_key_and_tls() {
    let folder = Folder::new();
    let key = folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
    let public = folder.write("public", changefeed_server::auth::EMULATOR_KEY);
    for address in ["0.0.0.0:0", "[::]:0"] {
        let beyond = ["--store", "memory", "--listen", address];
        assert_says(&refused(&beyond), &["needs a key of your own", "--key-file"]);
        assert_says(&refused(&[&beyond[..], &["--tls", "self-signed"]].concat()), &["needs a key of your own"]);
        let said = refused(&[&beyond[..], &["--key-file", &public, "--tls", "self-signed"]].concat());
        assert_says(&said, &["the emulator's key is public"]);
        assert_says(&refused(&[&beyond[..], &["--key-file", &key]].concat()), &["without TLS", "--allow-plain"]);
    }
}

#[test]
fn an_address_that_is_taken_or_none_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_says(&refused(&["--store", "memory", "--listen", &address]), &[&address, "--listen", "in use"]);
    for address in ["localhost", "127.0.0.1", "127.0.0.1:99999", "nowhere:80", ""] {
        let said = refused(&["--store", "memory", "--listen", address]);
        assert_says(&said, &["--listen", "for example 127.0.0.1:8081"]);
    }
    let local = address.replace("127.0.0.1", "localhost");
    assert_says(&refused(&["--store", "memory", "--listen", &local]), &[&address, "in use"]);
    let folder = Folder::new();
    let store = folder.join("never-served");
    assert_says(&refused(&["--store", &store, "--listen", &address]), &["in use"]);
    assert!(!std::fs::exists(&store).unwrap(), "no store is made that nobody serves");
    // Not an address of this machine.
    let key = folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
    refused(&["--store", "memory", "--listen", "192.0.2.1:0", "--key-file", &key, "--tls", "self-signed"]);
}

#[test]
fn a_store_that_cannot_be_opened_is_refused() {
    let folder = Folder::new();
    let store = folder.join("store");
    let server = Server::start(&["--store", &store]);
    let said = refused(&["--store", &store, "--listen", "127.0.0.1:0"]);
    assert_says(&said, &[&store, "open in another process", "stop the process that has it open, then start serve"]);
    let account = crate::http::Http::connect(server.address()).unwrap().send("GET", "/", &[], "").unwrap();
    assert_eq!(account.status, 200, "the first server is not disturbed");
    let file = folder.write("file", "precious");
    refused(&["--store", &file, "--listen", "127.0.0.1:0"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    refused(&["--store", &format!("{file}/below"), "--listen", "127.0.0.1:0"]);
    let full = folder.join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(format!("{full}/thesis.txt"), "precious").unwrap();
    drop(run(&["verify", "--store", &full]));
    assert_eq!(std::fs::read_to_string(format!("{full}/thesis.txt")).unwrap(), "precious");
}

/// A server that is replaced, as process managers do it: the new one is started while the old one still ends.
#[test]
fn a_store_that_another_process_is_about_to_leave_is_waited_for() {
    let folder = Folder::new();
    let store = folder.join("store");
    let first = Server::start(&["--store", &store]);
    let second = crate::process::command(&["serve", "--store", &store, "--listen", "127.0.0.1:0"]);
    let second = std::thread::spawn(move || Server::spawn(&mut { second }));
    first.signal("TERM");
    assert_eq!(first.ended().0.code(), Some(0));
    let second = second.join().unwrap();
    assert_eq!(second.ready["event"], "ready");
}

#[test]
fn options_out_of_range_are_refused() {
    for (option, value) in [
        ("--ranges", "0"),
        ("--ranges", "1001"),
        ("--ranges", "x"),
        ("--retention", "-1"),
        ("--log", "loud"),
        ("--colour", "red"),
    ] {
        let output = run(&[&["serve"], &MEMORY[..], &[&format!("{option}={value}")]].concat());
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
    assert_says(&refused(&["--listen", "127.0.0.1:0"]), &["--store"]);
}

#[test]
fn a_new_store_is_not_made_in_silence() {
    let folder = Folder::new();
    let store = folder.join("store");
    for said in [format!("new store in {store}\n"), String::new()] {
        let server = Server::start(&["--store", &store]);
        server.signal("TERM");
        let (status, _, _, err) = server.ended();
        assert_eq!((status.code(), err), (Some(0), said));
    }
}
