//! A naive store in memory: ordered maps under one lock, nothing clever, obviously right.
//!
//! It shows that the conformance suite can be passed, its planted [`Bug`]s show that the suite can fail, and property
//! tests compare other stores with it. Its [`Variant`]s show that the suite demands no more than the contract does.

mod body;
mod bug;
mod catalog;
mod container;
mod feed;
mod fixture;
mod listing;
mod ranges;
mod state;
mod variant;
mod write;

pub use self::{bug::Bug, catalog::ModelStore, fixture::ModelFixture, variant::Variant};
