//! Sockets: accepting, TLS, HTTP/1.1 and HTTP/2 on one port, limits on every resource that a client can use.

pub(crate) mod activity;
pub(crate) mod auth_throttle;
mod body;
mod connection;
mod descriptors;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod memory;
mod response_body;
pub(crate) mod socket;
pub(crate) mod timeouts;
pub(crate) mod tls;
mod write_timeout;
