//! A change feed processor: every change of a container reaches your code, at least once, in order per partition key,
//! spread over as many hosts as you start, resuming where it stopped, whatever crashes.

mod backoff;
mod builder;
mod caught_up;
mod dead_letter_document;
mod delegate;
mod delivery;
mod health;
mod host;
mod join;
pub mod lease;
pub mod mutant;
mod notification;
mod notifier;
mod options;
mod processor;
mod running;
pub mod runtime;
mod store;
mod tools;

pub use changefeed_core as core;
#[cfg(feature = "embedded")]
pub use changefeed_embedded as embedded;
#[cfg(feature = "remote")]
pub use changefeed_remote as remote;

pub use self::{
    backoff::Backoff,
    builder::ProcessorBuilder,
    dead_letter_document::DeadLetterDocument,
    delegate::{
        AcceptsMode, AllVersions, BatchResult, ChangeInfo, Changes, Context, DelegateError, ErrorAt, Input, ItemResult,
        Latest, RawChanges, Version, Versions,
    },
    delivery::dead_letter::DeadLetter,
    health::{Health, HostState, LeaseHealth, OwnedLease},
    lease::{loss::Loss, prefix::LeaseToken, timing::LeaseTiming},
    notification::{ErrorReport, FailedBatch, Failure, Notification, Release},
    notifier::Notifications,
    options::Checkpoint,
    processor::Processor,
    running::Running,
    tools::{
        control::{Control, Moved, Position, Reset, Scope, Seek, SeekTo},
        dead_letters::{DeadLetterPage, DeadLetterSummary, DeadLetters, Redrive, Redriven, Skipped},
        estimator::{Estimator, Lag, LagWatch, LeaseLag, LeaseState},
        explain::{Cause, Explain, Explanation},
        pull::{Bookmark, Pull, PullPage},
        snapshot::processors,
    },
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
