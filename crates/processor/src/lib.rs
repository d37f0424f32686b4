//! A change feed processor, modelled on that of Azure Cosmos DB. Your code receives each item of a container that was
//! inserted or updated, at its newest version, at least once and in order per partition key. All hosts that you start share
//! the work; after a crash another host resumes at the last checkpoint.
//!
//! In latest-version mode, the default, an item that changes twice quickly may arrive once, and deletes do not arrive;
//! [`ProcessorBuilder::all_versions`] delivers every version and delete.
//!
//! # Overview
//!
//! ```
//! use changefeed::{Changes, Context, Processor, core::StartFrom, embedded::Engine};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     total: f64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> changefeed::core::Result<()> {
//! let shop = Engine::in_memory()?.database("shop"); // or Engine::open("./data")
//! let orders = shop.container("orders").partition_key("/customer").ranges(4).open_or_create().await?;
//! let leases = shop.container("leases").open_or_create().await?;
//! let processor = Processor::builder("mailer", &orders, &leases)
//!     .instance_name("worker-1") // each host has its own
//!     .start_from(StartFrom::Beginning)
//!     .build(|orders: Changes<Order>, ctx: Context| async move {
//!         for (order, info) in orders.with_info() {
//!             println!("lease {}: order {} over {}", ctx.lease(), info.id(), order.total);
//!         }
//!         Ok(())
//!     })?;
//! let running = processor.start().await?;
//! running.stop().await
//! # }
//! ```
//!
//! A *processor* is a name, a monitored container and a lease container. Every processor receives all changes. The *hosts*
//! of a processor are started under the same processor name and different instance names, in one process or in many. They
//! share its *leases*, one for each feed range of the monitored container. A lease stores how far its range was handled.
//!
//! A typed delegate such as the one above never sees the members that the store adds, so `deny_unknown_fields` works on its
//! type. [`ProcessorBuilder::start_from`] also takes a moment, as [`SystemTime`](std::time::SystemTime).
//!
//! | topic | types |
//! |---|---|
//! | the delegate: your code that receives the changes | [`Changes`], [`Versions`], [`RawChanges`], [`Context`], [`ManualContext`], [`ChangeInfo`] |
//! | its result: all handled, a result for each item, an error | [`BatchResult`], [`ItemResult`], [`DelegateError`] |
//! | items that cannot be handled | [`DeadLetter`], [`DeadLetters`] |
//! | a running host: stop, health, notifications | [`Running`], [`Health`], [`Notification`] |
//! | a job that ends when it has caught up | [`Processor::run_until_caught_up`] |
//! | the lag of a processor, and its reason | [`Estimator`], [`Explain`] |
//! | moving, resetting, pausing a processor, releasing, exporting and importing leases | [`Control`] |
//! | reading changes at your own pace, without leases | [`Pull`] |
//!
//! # Delivery
//!
//! A change arrives at least once. It arrives again if the host crashes before the checkpoint, if the delegate fails or if
//! a lease is lost: make the delegate idempotent, for example with [`ChangeInfo::change_id`] as a key. If the delegate
//! fails, its batch is retried with back-off. Without a dead-letter container that has no limit, and later changes of the
//! same feed range wait. With [`DeadLetter`], the items that still fail after five attempts are stored in the dead-letter
//! container, and the others of the batch are delivered.
//!
//! In a delegate, `?` works on every error that is `Send` and `Sync`: those of the standard library, boxed ones and
//! `anyhow::Error`. A delegate itself returns a [`DelegateError`]; a function that returns another error type, such as
//! `anyhow::Result<()>`, becomes a delegate with [`delegate_fn`]. `anyhow::bail!` needs it, too; without it, write
//! `Err(anyhow!("…"))?`. Both anyhow and this crate have a `Context`: import that of anyhow as `use anyhow::Context as _`.
//!
//! # Options
//!
//! All are setters of [`ProcessorBuilder`].
//!
//! | option | default | advice |
//! |---|---|---|
//! | [`instance_name`](ProcessorBuilder::instance_name) | random | set it, to something that survives a restart: the host takes its leases back at once |
//! | [`start_from`](ProcessorBuilder::start_from) | now | counts at the first start only; move a processor later with [`Control::seek`] |
//! | [`all_versions`](ProcessorBuilder::all_versions) | off | for deletes and intermediate versions; the container must keep them |
//! | [`dead_letter`](ProcessorBuilder::dead_letter) | none | set it, unless a poison item should stop its range |
//! | [`retry`](ProcessorBuilder::retry) | 200 ms to 30 s | raise the first pause if the sink needs time to recover |
//! | [`store_retry`](ProcessorBuilder::store_retry) | 100 ms to 10 s | raise it if the store is often throttled and names no time to wait |
//! | [`stalled_after`](ProcessorBuilder::stalled_after) | 3 attempts | raise it if single failures are usual: it decides when `Stalled` is sent |
//! | [`delegate_timeout`](ProcessorBuilder::delegate_timeout) | none | set it if a call can hang |
//! | [`slow_after`](ProcessorBuilder::slow_after) | half of the timeout, or 30 s | lower it to learn of slow calls earlier |
//! | [`max_items`](ProcessorBuilder::max_items) | 1,000 | lower it if items are large or handling one is slow |
//! | [`max_leases`](ProcessorBuilder::max_leases) | no limit | set it to bound what one host does |
//! | [`max_concurrent_calls`](ProcessorBuilder::max_concurrent_calls) | one for each lease | as many as the sink takes well: connections of a pool, calls of an API |
//! | [`max_bytes_in_flight`](ProcessorBuilder::max_bytes_in_flight) | no limit | set it if a host has many leases and large items; several times 4 MiB |
//! | [`max_request_units_per_second`](ProcessorBuilder::max_request_units_per_second) | no limit | set it to leave throughput to other users of the containers |
//! | [`checkpoint`](ProcessorBuilder::checkpoint) | after each batch | [`Checkpoint::Every`] for fewer writes |
//! | [`manual_checkpoints`](ProcessorBuilder::manual_checkpoints) | off | for batches of your own: the delegate gets a [`ManualContext`] and says what is handled |
//! | [`lease_timing`](ProcessorBuilder::lease_timing) | 13, 17, 60 s; in process 1, 20, 60 s; over a server 2, 3, 10 s | shorter finds crashes earlier and writes more |
//! | [`poll_interval`](ProcessorBuilder::poll_interval) | 5 s; 60 s with wake-ups | with wake-ups only in case one is lost |
//! | [`read_timeout`](ProcessorBuilder::read_timeout) | 65 s | longer than the slowest read that may succeed; over a server, more than six times the `timeout` of the connection |
//! | [`start_timeout`](ProcessorBuilder::start_timeout) | 10 s | raise it if hosts are started together with their store; a program that opens its containers over a server first has `start_timeout` of the connection, too |
//! | [`steal_after`](ProcessorBuilder::steal_after) | never | only if duplicates are cheaper than waiting for a long call |
//! | [`stop_deadline`](ProcessorBuilder::stop_deadline) | 30 s | below the time that your scheduler leaves a process |
//! | [`on_notification`](ProcessorBuilder::on_notification), [`on_notification_async`](ProcessorBuilder::on_notification_async), [`on_error`](ProcessorBuilder::on_error), [`on_lease_acquired`](ProcessorBuilder::on_lease_acquired), [`on_lease_released`](ProcessorBuilder::on_lease_released) | none | for metrics and alerts; [`Running::notifications`] is the same as a stream |
//! | [`lease_metrics`](ProcessorBuilder::lease_metrics) | off | switch it on with few leases, to find the one that lags |
//! | [`notification_capacity`](ProcessorBuilder::notification_capacity) | 1,024 | raise it for a receiver that is slow at times |
//!
//! # Feature flags
//!
//! | feature | default | what |
//! |---|---|---|
//! | `embedded` | on | the embedded store, as the module `embedded` |
//! | `remote` | off | containers of a `changefeed serve` in another process, as the module `remote` |
//! | `cosmos` | off | containers of Azure Cosmos DB through its official SDK, as the module `cosmos` |
//! | `admin` | off | `AdminEndpoint`: the command works on a program that has its store open |
//! | `anyhow` | on | [`DelegateError::downcast_ref`] finds the error inside an `anyhow::Error`; `?` works without it, too |
//! | `mutants` | off | planted bugs, for the simulation of this project only |
//!
//! # Metrics
//!
//! Through the crate [`metrics`](https://docs.rs/metrics): install a recorder of your choice before you start a host, for
//! example that of `metrics-exporter-prometheus`. Names begin with `changefeed_`; `docs/metrics.md` lists them. The lag is
//! recorded by [`Estimator::watch`]. Without a recorder nothing is recorded.
//!
//! # Logs and traces
//!
//! Through `tracing`: spans `processor` (processor, instance), `lease` (lease) and `delegate`, one for each batch
//! (processor, instance, lease, attempt, first_lsn, last_lsn, items). If items carry the trace context of their writer, as
//! a member `traceparent` of the form that W3C Trace Context defines, the span has those of the batch in `traceparents`,
//! separated by commas, 32 at most. Levels: `warn` for failures, stalled leases, dead letters, outages and slow calls,
//! `error` for a host that died, `info` for leases that come and go and for requests that a start repeats, `debug` for leases
//! that caught up.

#[cfg(feature = "admin")]
mod admin;
mod backoff;
mod builder;
mod caught_up;
mod dead_letter_document;
mod delegate;
mod delivery;
mod health;
mod host;
mod host_task;
mod join;
mod launch;
#[doc(hidden)] // no part of the API: documents for the fuzz targets
pub mod lease;
mod limits;
mod metrics;
#[doc(hidden)] // no part of the API: planted bugs for the simulation
pub mod mutant;
mod notification;
mod notifier;
mod options;
mod processor;
mod retired_host;
mod running;
#[doc(hidden)] // no part of the API: clocks for the simulation and tests
pub mod runtime;
mod store;
mod tools;

#[cfg(feature = "admin")]
#[doc(hidden)] // no part of the API: for the command
pub use self::admin::storage_of;
#[cfg(feature = "admin")]
pub use self::admin::{ADMIN_SOCKET, AdminEndpoint};
pub use changefeed_core as core;
#[cfg(feature = "cosmos")]
pub use changefeed_cosmos as cosmos;
#[cfg(feature = "embedded")]
pub use changefeed_embedded as embedded;
#[cfg(feature = "remote")]
pub use changefeed_remote as remote;

pub use self::{
    backoff::Backoff,
    builder::ProcessorBuilder,
    dead_letter_document::DeadLetterDocument,
    delegate::{
        AcceptsMode, AllVersions, AutomaticCheckpoints, BatchResult, ChangeInfo, Changes, CheckpointMode, Context,
        DelegateError, ErrorAt, Input, IntoBatchResult, IntoDelegateError, ItemResult, Latest, ManualCheckpoints,
        ManualContext, RawChanges, Version, Versions, delegate_fn,
    },
    delivery::dead_letter::DeadLetter,
    health::{Health, HostState, LeaseHealth, OwnedLease},
    lease::{loss::Loss, prefix::LeaseToken, timing::LeaseTiming},
    notification::{ErrorReport, FailedBatch, Failure, Notification, Release},
    notifier::Notifications,
    options::Checkpoint,
    processor::Processor,
    running::Running,
    store::replacement::replacement,
    tools::{
        control::{
            ArchivedContainer, Control, Import, ImportAction, ImportedLease, LeaseArchive, LeaseRelease, Moved,
            Position, ReleaseOutcome, ReleasedLease, Reset, Scope, Seek, SeekTo, adopt_store,
        },
        dead_letters::{DeadLetterPage, DeadLetterSummary, DeadLetters, Redrive, Redriven, Skipped},
        estimator::{Estimator, Lag, LagWatch, LeaseLag, LeaseState},
        explain::{Cause, Explain, Explanation},
        foreign_leases::{AppliedLease, ConvertedLease, ImportOutcome, ImportPlan, LeaseDialect, plan_import},
        locate::{ItemLocation, Locate, Progress},
        pull::{Bookmark, Pull, PullPage},
        snapshot::processors,
    },
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
