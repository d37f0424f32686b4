//! Deterministic simulation of the change feed processor: the code that ships, on simulated hosts, clocks, stores and
//! networks, with every promise checked. One seed is one run, and the same seed gives the same trace, byte for byte.

pub mod campaign;
pub mod checks;
pub mod commit;
pub mod coverage;
pub mod delegate;
pub mod documents;
pub mod exec;
pub mod fleet;
pub mod host;
pub mod hosts;
pub mod neighbours;
pub mod nemesis;
pub mod operator;
pub mod oracle;
pub mod planted;
pub mod rng;
pub mod run;
pub mod runtime;
pub mod scenario;
pub mod seams;
pub mod shrink;
pub mod simulation;
pub mod store;
pub mod trace;
pub mod workload;

pub use self::simulation::Violation;
