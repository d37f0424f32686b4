//! The promises, checked while the run goes on and at its end. Numbers as in `spec/reliability.md` §2.

pub mod deliveries;
pub mod ending;
pub mod ledger;
