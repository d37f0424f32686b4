//! Start and end: the ready line, signals, and clients that are connected meanwhile.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use crate::{
    http::Http,
    process::{Folder, Server, command, eventually},
};

/// Well below the time that requests under way are given.
const A_FEW_SECONDS: Duration = Duration::from_secs(5);

#[test]
fn one_line_says_that_the_server_is_ready_and_where() {
    let server = Server::start(&["--store", "memory"]);
    assert_eq!(server.ready["event"], "ready");
    assert_eq!(server.ready["pid"], server.id());
    assert_eq!(server.ready["store"], "memory");
    assert!(server.ready.get("certificate").is_none());
    assert!(server.endpoint().starts_with("http://127.0.0.1:"), "{}", server.endpoint());
    let account = Http::connect(server.address()).unwrap().send("GET", "/", &[], "").unwrap();
    assert_eq!(account.status, 200);
    let secure = Server::start(&["--store", "memory", "--tls", "self-signed"]);
    assert!(secure.endpoint().starts_with("https://127.0.0.1:"));
    assert!(secure.ready["certificate"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(!secure.ready.to_string().contains("PRIVATE KEY"));
}

#[test]
fn signals_end_the_server_in_good_order_while_clients_are_connected() {
    for signal in ["TERM", "INT"] {
        let folder = Folder::new();
        let store = folder.join("store");
        let server = Server::start(&["--store", &store]);
        let address = server.address();
        // One has asked and is idle, one has said nothing, one has begun HTTP/2 and stopped in the middle.
        let mut idle = Http::connect(address).unwrap();
        idle.make_container();
        assert_eq!(idle.write("kept", 7).unwrap(), 201);
        let silent = TcpStream::connect(address).unwrap();
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(b"PRI * HTTP/2.0\r\n\r\n").unwrap();
        server.signal(signal);
        let (status, took, out, err) = server.ended();
        assert_eq!(status.code(), Some(0), "{signal}: {err}");
        assert!(took < A_FEW_SECONDS, "{signal}: {took:?}");
        let begin = format!("new store in {store}\n");
        assert_eq!((out.as_str(), err), ("", begin), "{signal}: nothing to say about a good end");
        assert!(idle.send("GET", "/", &[], "").is_err(), "connections are closed");
        drop((silent, half));
        let again = Server::start(&["--store", &store]);
        assert_eq!(Http::connect(again.address()).unwrap().items().len(), 1, "and the store is in order");
    }
}

#[test]
fn a_client_that_does_not_let_go_is_cut_off_after_the_grace_time() {
    let server = Server::start(&["--store", "memory"]);
    // Saying goodbye in HTTP/2 takes an answer, which never comes.
    let mut deaf = TcpStream::connect(server.address()).unwrap();
    deaf.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    deaf.read_exact(&mut [0; 9]).unwrap();
    server.signal("TERM");
    let (status, took, _, err) = server.ended();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(err.contains("closed after a grace period of 10 seconds"), "{err}");
}

#[test]
fn a_signal_ends_the_server_before_anybody_was_connected() {
    for signal in ["TERM", "INT"] {
        let server = Server::start(&["--store", "memory"]);
        server.signal(signal);
        let (status, took, _, err) = server.ended();
        assert_eq!((status.code(), err.as_str()), (Some(0), ""));
        assert!(took < A_FEW_SECONDS);
    }
}

const OLD: &str = "b2xkLW1hcmtlci1rZXktb2xk";
const NEW: &str = "bmV3LW1hcmtlci1rZXktbmV3";

#[test]
fn hanging_up_reads_the_keys_again_and_keeps_connections() {
    let folder = Folder::new();
    let file = folder.write("keys", OLD);
    let mut server = Server::start(&["--store", "memory", "--key-file", &file, "--log", "trace"]);
    let keys = |text: &str| changefeed_server::auth::Keys::parse(text).unwrap();
    let mut client = Http::connect(server.address()).unwrap();
    assert_eq!(client.send("GET", "/dbs", &[], "").unwrap().status, 401, "the key of emulators is none of them");
    client.keys = keys(OLD);
    assert_eq!(client.send("GET", "/dbs", &[], "").unwrap().status, 200);
    folder.write("keys", "no key at all");
    server.signal("HUP");
    server.hear("the keys stay as they are");
    assert_eq!(client.send("GET", "/dbs", &[], "").unwrap().status, 200, "the old keys stay");
    folder.write("keys", NEW);
    server.signal("HUP");
    client.keys = keys(NEW);
    eventually("reading the new keys", || client.send("GET", "/dbs", &[], "").unwrap().status == 200);
    client.keys = keys(OLD);
    assert_eq!(client.send("GET", "/dbs", &[], "").unwrap().status, 401);
    server.signal("TERM");
    let (status, _, out, err) = server.ended();
    assert_eq!(status.code(), Some(0));
    for secret in [OLD, NEW, "marker-key"] {
        assert!(!err.contains(secret) && !out.contains(secret), "{secret} was shown");
    }
}

#[test]
fn running_out_of_files_is_survived() {
    let mut limited = std::process::Command::new("sh");
    let script = format!(
        "ulimit -n 64; exec {} serve --listen 127.0.0.1:0 --store memory --log off",
        env!("CARGO_BIN_EXE_changefeed")
    );
    let server = Server::spawn(limited.args(["-c", &script]));
    let connections: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(server.address()).ok()).collect();
    assert!(connections.len() > 64, "the system holds connections that the server cannot accept yet");
    drop(connections);
    eventually("an answer", || {
        Http::connect(server.address()).and_then(|mut client| client.send("GET", "/", &[], "")).is_ok()
    });
    server.signal("TERM");
    assert_eq!(server.ended().0.code(), Some(0));
}

#[test]
fn idle_connections_leave_file_descriptors_to_the_store() {
    let folder = Folder::new();
    let script = format!(
        "ulimit -n 192; exec {} serve --listen 127.0.0.1:0 --store {} --log off",
        env!("CARGO_BIN_EXE_changefeed"),
        folder.join("store")
    );
    let server = Server::spawn(std::process::Command::new("sh").args(["-c", &script]));
    let mut client = Http::connect(server.address()).unwrap();
    client.make_container();
    let idle: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(server.address()).ok()).collect();
    assert!(idle.len() > 192, "only {} connections", idle.len());
    // Three segments of the log, each of which is a file that the store has to open.
    let text = "x".repeat(1_000_000);
    for number in 0..48 {
        let key = format!("[\"{number}\"]");
        let body = serde_json::json!({ "id": number.to_string(), "text": text }).to_string();
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("prefer", "return=minimal")];
        let answer = client.send("POST", "/dbs/db/colls/c/docs", &headers, &body).unwrap();
        assert_eq!(answer.status, 201, "write {number} with {} idle connections: {answer:?}", idle.len());
    }
    let mut first = &idle[0];
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut health = String::new();
    first.read_to_string(&mut health).unwrap();
    assert!(health.contains(r#""status":"ok""#), "{health}");
    drop(idle);
    server.signal("TERM");
    assert_eq!(server.ended().0.code(), Some(0));
}

#[test]
fn help_says_what_the_options_are() {
    let output = command(&["serve", "--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for option in ["--store", "--listen", "--tls", "--key-file", "--ranges", "--retention", "--allow-faults", "--log"] {
        assert!(help.contains(option), "{option}: {help}");
    }
}
