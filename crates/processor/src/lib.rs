//! A change feed processor: every change of a container reaches your code, at least once, in order per partition key,
//! spread over as many hosts as you start, resuming where it stopped, whatever crashes.

mod audit;
mod backoff;
mod blame;
mod call;
mod context;
mod control;
mod dead_letter;
mod delegate;
mod deliver;
mod deployment;
mod estimator;
mod explain;
mod host;
pub mod lease;
mod moves;
pub mod mutant;
mod notification;
mod options;
mod parting;
mod patience;
mod processor;
mod pull;
mod raw;
mod rest;
pub mod runtime;
mod session;
mod succession;
mod suspicion;
mod worker;

pub use changefeed_core as core;
#[cfg(feature = "embedded")]
pub use changefeed_embedded as embedded;

pub use self::{
    backoff::Backoff,
    context::Context,
    control::{Control, Moved, Position, Reset, Scope, Seek, SeekTo},
    dead_letter::{
        DeadLetter, DeadLetterDocument, DeadLetterPage, DeadLetterSummary, DeadLetters, Kept, Redrive, Redriven,
    },
    delegate::{AllVersions, At, Changes, DelegateError, Fits, Input, Latest, Outcome, Verdict, Version, Versions},
    deployment::processors,
    estimator::{Estimator, Lag, LagWatch, LeaseLag, LeaseState},
    explain::{Cause, Explain, Explanation},
    lease::{prefix::LeaseToken, timing::LeaseTiming},
    notification::{Failure, Notification, Release},
    options::Checkpoint,
    processor::{Processor, ProcessorBuilder, Running},
    pull::{Bookmark, Pull, PullPage},
    raw::RawChanges,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
