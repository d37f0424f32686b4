//! The security checklist over real sockets: transport and limits, authentication, input.

mod authentication;
mod certificates;
mod connections;
mod keys;
mod limits;
mod panics;
mod paths;
mod slow_clients;
mod smuggling;
#[path = "../support/mod.rs"]
mod support;
