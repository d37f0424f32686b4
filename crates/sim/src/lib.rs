//! Deterministic simulation of the change feed processor: the code that ships, on simulated hosts, clocks, stores and
//! networks, with every promise checked. One seed is one run, and the same seed gives the same trace, byte for byte.

pub mod campaign;
pub mod checks;
pub mod commit;
pub mod delegate;
pub mod exec;
pub mod hosts;
pub mod mutants;
pub mod nemesis;
pub mod reach;
pub mod rng;
pub mod run;
pub mod runtime;
pub mod scenario;
pub mod shrink;
pub mod store;
pub mod trace;
pub mod truth;
pub mod workload;
pub mod world;

pub use self::world::Violation;
