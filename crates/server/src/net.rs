//! Sockets: accepting, TLS, both versions of HTTP on one port, limits on everything that a client can make grow.

mod body;
pub(crate) mod connection;
mod descriptors;
pub(crate) mod failures;
mod listen;
pub(crate) mod memory;
mod response_body;
pub(crate) mod timer;
pub(crate) mod tls;
mod write_timeout;

pub(crate) use self::listen::{Listening, listen};
