//! The driver program of the captures, over every kind of connection and body.

use std::process::Command;

use crate::server::{OwnServer, binary};

fn passes_all_steps(name: &str, serve: &[&str], arguments: &[&str], environment: &[(&str, &str)]) {
    let own = OwnServer::start(name, serve);
    let endpoint = &own.server.endpoint;
    let split = format!("{} split --store {endpoint} --container {{db}}/{{coll}} --range {{range}} --json", binary());
    let done = Command::new(env!("CARGO_BIN_EXE_driver"))
        .arg(endpoint)
        .args(arguments)
        .env("SPLIT_CMD", split)
        .envs(environment.iter().copied())
        .output()
        .expect("the driver starts");
    let told = String::from_utf8_lossy(&done.stdout);
    let passed = told.lines().filter(|line| line.starts_with("OK ")).count();
    assert_eq!(passed, 26, "{told}");
}

#[test]
fn the_driver_passes_with_binary_bodies_over_http_2() {
    passes_all_steps("binary", &[], &[], &[]);
}

#[test]
fn the_driver_passes_with_text_bodies_over_http_2() {
    passes_all_steps("text", &[], &["text"], &[]);
}

#[test]
fn the_driver_passes_over_http_1() {
    passes_all_steps("http1", &[], &[], &[("AZURE_COSMOS_CONNECTION_POOL_IS_HTTP2_ALLOWED", "false")]);
}

#[test]
fn the_driver_passes_over_tls_with_http_2() {
    let trust = ("AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED", "true");
    passes_all_steps("tls", &["--tls", "self-signed"], &[], &[trust]);
}

#[test]
fn the_driver_passes_over_tls_with_http_1() {
    let environment = [
        ("AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED", "true"),
        ("AZURE_COSMOS_CONNECTION_POOL_IS_HTTP2_ALLOWED", "false"),
    ];
    passes_all_steps("tls-http1", &["--tls", "self-signed"], &[], &environment);
}
