//! The checks: at every lease write, at every delegate call, and at the end of a run.
//!
//! Numbers are those of `spec/reliability.md` §2. In addition: S17, operator commands hold (a paused lease is not
//! worked on, a seek is not undone); S18, `Context::cancelled` fires; S19, hosts keep their limits; L7, stalls are reported.
//!
//! Nothing here uses the processor's own code for leases: documents, ranges and positions are read independently.

pub mod deliveries;
pub mod dotnet;
pub mod key_range;
pub mod lease;
pub mod lease_checker;
pub mod lease_document;
pub mod limits;
pub mod liveness;
pub mod observations;
pub mod ownerships;
pub mod position;
pub mod reports;
pub mod reset;
pub mod seek;
pub mod takeover;
pub mod tiling;

/// A broken rule: its number and a sentence.
pub type Broken = (&'static str, String);
