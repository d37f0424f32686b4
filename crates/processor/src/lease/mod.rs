//! Leases: who works on which feed range, and how far they got.

pub mod balance;
pub mod bootstrap;
pub mod coverage;
pub mod document;
pub mod fence;
pub mod keeper;
pub mod lock;
pub mod news;
pub mod observation;
pub mod ownership;
pub mod prefix;
pub mod store;
pub mod timing;
