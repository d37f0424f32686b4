//! Hosts that are started before their server, as programs that start together are.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    process::{Child, ChildStderr, Stdio},
};

use crate::{
    process::{Folder, Server, command, run, text},
    shop::assert_good,
};

/// An address where nothing listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A host that prints what it gets until it has caught up, and has said that it cannot reach the server yet.
fn waiting_host(address: &str, start_timeout: &str) -> (Child, BufReader<ChildStderr>) {
    let url = format!("http://{address}");
    let arguments = ["run", "mailer", "--store", &url, "--container", "shop/orders", "--leases", "shop/leases"];
    let options = ["--from", "beginning", "--print", "--json", "--once", "--start-timeout", start_timeout];
    let mut host = command(&[&arguments[..], &options].concat());
    let mut host = host.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(host.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("the store cannot be opened yet, retrying") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    (host, stderr)
}

#[test]
fn a_host_that_is_started_before_its_server_waits_for_it() {
    let (folder, address) = (Folder::new(), free_address());
    let store = folder.join("data");
    assert_good(&run(&["load", "--create", "--store", &store, "--container", "shop/orders", "--count", "3"]));
    let (host, _stderr) = waiting_host(&address, "2m");
    let _server = Server::spawn(&mut command(&["serve", "--store", &store, "--listen", &address]));
    let output = host.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(0), 3));
}

#[test]
fn a_host_that_waits_for_its_server_gives_up_at_the_timeout_of_a_start() {
    let address = free_address();
    let (mut host, mut stderr) = waiting_host(&address, "1s");
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(host.wait().unwrap().code(), Some(2), "{said}");
    assert!(said.contains(&format!("nothing listens at http://{address}")), "{said}");
}
