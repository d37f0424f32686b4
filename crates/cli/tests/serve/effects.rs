//! Options of `serve` that change what clients see, and when it says something or ends.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
};

use serde_json::Value;

use crate::{
    http::Http,
    process::{Folder, Server, command, run, text},
};

/// A server with the container `db/c`, made by a client of Cosmos DB that says nothing about ranges and versions.
fn start(options: &[&str]) -> Server {
    let server = Server::start(&[&["--store", "memory"], options].concat());
    Http::connect(server.address()).unwrap().make_container();
    server
}

#[test]
fn a_new_container_begins_with_as_many_ranges_as_ranges_says() {
    for (options, count) in [(&[][..], 1), (&["--ranges", "3"], 3)] {
        let server = start(options);
        let listed = run(&["ranges", "--store", &server.endpoint(), "--container", "db/c", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), count, "{listed}");
    }
}

/// All versions of an item that is written twice, each as a line of JSON.
fn versions(server: &Server) -> Result<Vec<Value>, String> {
    let folder = Folder::new();
    let bookmark = folder.join("bookmark");
    let tail = || {
        let place = ["tail", "--store", &server.endpoint(), "--container", "db/c", "--bookmark", &bookmark];
        let output = run(&[&place[..], &["--all-versions", "--once", "--json"]].concat());
        if output.status.code() != Some(0) {
            return Err(text(&output.stderr));
        }
        Ok(text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    };
    tail()?;
    let mut client = Http::connect(server.address()).unwrap();
    assert_eq!((client.write("x", 1).unwrap(), client.write("x", 2).unwrap()), (201, 200));
    tail()
}

#[test]
fn versions_are_kept_unless_retention_says_no_and_with_previous_images_if_asked() {
    let kept = versions(&start(&[])).unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let refused = versions(&start(&["--retention", "0"])).unwrap_err();
    assert!(refused.contains("keeps no versions"), "{refused}");
    for (options, previous) in [(&[][..], Value::Null), (&["--previous-images"], 1.into())] {
        assert_eq!(replaced(&start(options)), previous, "{options:?}");
    }
}

/// The number in the previous version of an item that was replaced, as the feed for clients of Cosmos DB shows it.
fn replaced(server: &Server) -> Value {
    let mut client = Http::connect(server.address()).unwrap();
    let read = |client: &mut Http, etag: &str| {
        let headers = [
            ("a-im", "Full-Fidelity Feed"),
            ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15"),
            ("x-ms-documentdb-partitionkeyrangeid", "0"),
            ("if-none-match", etag),
        ];
        client.send("GET", "/dbs/db/colls/c/docs", &headers, "").unwrap()
    };
    let begin = read(&mut client, "*").etag.unwrap();
    client.write("x", 1).unwrap();
    client.write("x", 2).unwrap();
    let page = read(&mut client, &begin);
    let versions = page.body["Documents"].as_array().unwrap();
    versions.last().unwrap()["previous"]["n"].clone()
}

#[test]
fn plain_http_beyond_loopback_is_served_if_it_is_allowed() {
    let folder = Folder::new();
    let key = folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
    let place = ["serve", "--store", "memory", "--listen", "0.0.0.0:0", "--key-file", &key];
    let server = Server::spawn(command(&place).arg("--allow-plain"));
    let port: u16 = server.endpoint().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    let mut client = Http::connect(([127, 0, 0, 1], port).into()).unwrap();
    client.keys = changefeed_server::auth::Keys::parse("bmV3a2V5bmV3a2V5bmV3a2V5").unwrap();
    assert_eq!(client.send("GET", "/dbs", &[], "").unwrap().status, 200);
}

#[test]
fn a_server_ends_with_its_stdin_if_asked() {
    let mut serve = command(&["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--until-stdin-closes"]);
    let mut child = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    // Its stdout ends with it.
    stdout.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_warns_unless_the_level_of_its_log_forbids_it() {
    let folder = Folder::new();
    let key = folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    for (options, warns) in [(&[][..], true), (&["--log", "error"], false), (&["--log", "warn"], true)] {
        let server = Server::start(&[&["--store", "memory", "--key-file", &key], options].concat());
        server.signal("TERM");
        let (_, _, _, said) = server.ended();
        assert_eq!(said.contains("chmod 600"), warns, "{options:?}: {said}");
    }
}
