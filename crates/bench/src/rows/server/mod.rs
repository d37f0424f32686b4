//! The server: requests over real sockets, against bare hyper with bodies of the same size and against the engine in
//! process.

mod bare;
mod bounds;
mod client;
mod creates;
mod fleet;
mod hostile;
mod many_items;
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
    bounds::LARGEST_RESPONSE,
    bounds::NEVER_READING,
    many_items::MANY_ITEMS,
    many_items::LONG_QUERY,
    start::EXPERIMENT,
];

/// Connections, where more than one are used.
const CONNECTIONS: u64 = 32;
