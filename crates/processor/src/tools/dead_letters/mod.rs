//! Dead letters from outside: list, inspect, delete, redrive.

mod list;
mod redrive;

pub use self::{
    list::{DeadLetterPage, DeadLetterSummary, DeadLetters},
    redrive::{Redrive, Redriven, Skipped},
};
