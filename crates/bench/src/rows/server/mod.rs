//! The server: requests over real sockets, against bare hyper with bodies of the same size and against the engine in
//! process.

mod bare;
mod client;
mod creates;
mod fleet;
mod hostile;
mod pages;
mod reads;
mod remote;
mod start;

pub(crate) use self::{fleet::host_until_killed, start::serve_until_killed};
use super::{Context, Experiment, Goal, Row};

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    reads::EXPERIMENT,
    creates::EXPERIMENT,
    pages::EXPERIMENT,
    remote::DELIVERY,
    remote::LATENCY,
    fleet::IDLE,
    fleet::BALANCE,
    hostile::EXPERIMENT,
    start::EXPERIMENT,
];

/// Connections, where more than one are used.
const CONNECTIONS: u64 = 32;
