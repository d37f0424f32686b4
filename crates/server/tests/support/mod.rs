//! A server in this process, and clients of it: signed requests over each kind of connection, or plain bytes.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

pub(crate) mod client;
pub(crate) mod raw;
pub(crate) mod time;
pub(crate) mod trust;
pub(crate) mod world;

pub(crate) use self::{
    client::{Ask, Client, Reply, Wire},
    world::{World, item},
};
