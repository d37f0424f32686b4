//! Sockets: accepting, TLS, both versions of HTTP on one port, limits on everything that a client can make grow.

mod body;
pub(crate) mod connection;
pub(crate) mod failures;
mod listen;
pub(crate) mod timer;
pub(crate) mod tls;

pub(crate) use self::listen::{Listening, listen};
