//! A scenario: everything that one run depends on, as a plain value. A seed is drawn into a scenario; a regression is
//! kept as one. All times are in milliseconds of simulated time unless a name says otherwise.

mod behaviours;
mod draw;
mod facts;
mod faults;

use serde::{Deserialize, Serialize};

pub use self::{
    behaviours::Behaviour,
    facts::WITHOUT_PROMISE,
    faults::{Damage, Fault, FaultKind, OperatorCommand, SeekTarget, Store, StoreFault},
};
use crate::exec::Order;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The seed of all random streams.
    pub seed: u64,
    /// How the scheduler chooses among runnable tasks.
    pub order: Order,
    /// The machines.
    pub hosts: Vec<HostPlan>,
    /// Number of physical ranges of the monitored container at the start.
    pub ranges: usize,
    /// The options of the processor.
    pub processor: ProcessorPlan,
    /// How requests travel.
    pub network: NetworkPlan,
    /// How the delegate behaves.
    pub delegate: DelegatePlan,
    /// What is written.
    pub workload: WorkloadPlan,
    /// Faults and commands, and when they happen.
    pub faults: Vec<Fault>,
    /// The length of the fault phase; the quiet phase follows.
    pub chaos: u64,
    /// What the first host does at the end of the quiet phase.
    #[serde(default, alias = "last_act")]
    pub final_step: FinalStep,
    /// Hosts of other kinds that share the leases during the fault phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<NeighbourPlan>,
    /// Leases left by an old .NET fleet, before the first host starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legacy: Option<LegacyPlan>,
    /// Leases that hosts of the .NET SDK have created before the first host of ours starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dotnet_bootstrap: Option<BootstrapPlan>,
    /// Whether the lease container is partitioned by `/partitionKey` instead of `/id`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leases_by_partition_key: bool,
    /// Whether a host gets a new instance name at each start, as pods do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_names: bool,
}

/// What the first host does at the end of the quiet phase; the others must take over its leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinalStep {
    /// It continues.
    #[default]
    Stay,
    /// It crashes.
    Crash,
    /// It is stopped gracefully.
    Stop,
    /// It drops its running processor without stopping it, and keeps the contexts of its calls.
    Drop,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostPlan {
    /// When its host is started.
    pub starts_at: u64,
    /// Parts per million that its clocks run fast.
    pub drift_ppm: i64,
    /// How far its wall clock is ahead.
    pub offset: i64,
    /// Intervals that differ from those of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
}

/// Lease intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Between two balance cycles.
    pub acquire: u64,
    /// Between two renewals.
    pub renew: u64,
    /// Until a lease without a sign of life is free.
    pub expiration: u64,
}

/// The options of the processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessorPlan {
    /// Between two balance cycles.
    pub acquire: u64,
    /// Between two renewals.
    pub renew: u64,
    /// Until a lease without a sign of life is free.
    pub expiration: u64,
    /// Between two polls of an idle feed.
    pub poll: u64,
    /// The page size.
    pub max_items: usize,
    /// When progress is stored.
    pub checkpoint: CheckpointPlan,
    /// Attempts before the dead-letter container is used; none: there is no such container.
    pub dead_letter_after: Option<u32>,
    /// Every version, or the latest.
    pub all_versions: bool,
    /// From the beginning, or from now.
    pub from_beginning: bool,
    /// The deadline of a stop.
    pub stop_deadline: u64,
    /// The limit of a delegate call.
    pub delegate_timeout: Option<u64>,
    /// Whether a host may steal a lease whose owner does not answer a hand-over request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced_steal: bool,
    /// How many delegate calls of a host may run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_calls: Option<usize>,
    /// How many bytes of changes a host may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_in_flight: Option<u64>,
    /// How many request units a host may spend in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_request_units_per_second: Option<u64>,
}

/// When progress is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointPlan {
    /// After each batch, by the processor.
    Automatic,
    /// By the delegate, after so many batches.
    Manual(u32),
    /// By the delegate, for the batch before, during the next one.
    Lagging,
    /// By the delegate, before the end of the call.
    Early,
    /// By a task of its own, so many milliseconds after the call returned.
    Late(u64),
    /// Never.
    Never,
}

/// How requests travel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkPlan {
    /// The fastest way to a store or back, in microseconds; both 0: stores are in the same process.
    pub fastest_micros: u64,
    /// The slowest usual one.
    pub slowest_micros: u64,
    /// How many requests in a thousand are much slower.
    pub tail_per_mille: u64,
    /// How slow those can be.
    pub tail: u64,
    /// After this long a client gives up on a request.
    pub timeout: u64,
    /// How many requests in a thousand are lost.
    pub lost_request_per_mille: u64,
    /// How many responses in a thousand are lost.
    pub lost_response_per_mille: u64,
    /// How many requests in a thousand are throttled.
    pub throttled_per_mille: u64,
    /// How stores wake readers.
    pub wakes: WakePlan,
    /// How long every read of the feed takes, in the quiet phase too; 0: no longer than other requests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slow_reads: u64,
    /// How many calls of a store in a hundred thousand panic.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub panics: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How stores wake readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakePlan {
    /// They do not.
    Never,
    /// After so many milliseconds.
    After(u64),
}

/// How the delegate behaves in the fault phase; in the quiet phase only its speed and type stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegatePlan {
    /// The shortest call.
    pub shortest: u64,
    /// The longest usual call.
    pub longest: u64,
    /// How many calls in a thousand fail as a whole.
    pub fail_per_mille: u64,
    /// How many name the item that failed.
    pub blame_per_mille: u64,
    /// How many return a result for each item, some to be retried.
    pub each_per_mille: u64,
    /// How many panic.
    pub panic_per_mille: u64,
    /// How many never return. Only with a timeout.
    pub never_per_mille: u64,
    /// How many take up to an expiration.
    pub slow_per_mille: u64,
    /// How many take as long as `long`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub long_per_mille: u64,
    /// The length of a long call, longer than any expiration.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub long: u64,
    /// Whether calls watch `cancelled` and return early.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watches_cancelled: bool,
    /// Whether the delegate takes typed changes instead of raw ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub typed: bool,
    /// Whether contexts are kept until the end of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_contexts: bool,
    /// How many calls in a thousand ask for all their items again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_all_per_mille: u64,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPlan {
    /// Number of partition keys.
    pub keys: u32,
    /// Number of items of each.
    pub items_per_key: u32,
    /// The mean pause between two writes.
    pub pause: u64,
    /// How many writes in a thousand begin a burst of 30.
    pub burst_per_mille: u64,
    /// Number of writes before the first host starts.
    pub before: u32,
    /// How many writes in a thousand delete.
    pub delete_per_mille: u64,
    /// How many are transactions of several items.
    pub batch_per_mille: u64,
    /// How many no delegate can handle. Only with dead letters.
    pub poison_per_mille: u64,
    /// Number of writes that crash the process that handles them. Only with dead letters.
    pub killers: u32,
    /// How many do not parse as the type of a typed delegate.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unparsable_per_mille: u64,
}

/// A host of another kind that shares the leases during the fault phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourPlan {
    /// How it behaves.
    pub kind: NeighbourKind,
    /// When it starts.
    pub starts_at: u64,
    /// When it leaves.
    pub leaves_at: u64,
    /// Whether it crashes instead of releasing its leases.
    pub crashes: bool,
}

/// How a neighbour behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NeighbourKind {
    /// As a host of the .NET SDK, version 3.
    DotNet,
    /// As a host of this library at a92fe1f.
    Previous,
}

/// Leases of an old .NET fleet: without `FeedRange`, and without any state of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyPlan {
    /// How long that fleet ran.
    pub ran: u64,
    /// Ranges split or merged while no host runs: a pick, and whether it is a merge.
    pub reshaped: Vec<(u64, bool)>,
    /// Number of writes while no host runs.
    pub writes: u32,
}

/// Leases as the bootstrap of .NET hosts leaves them: without continuations, beside an `.info` without positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapPlan {
    /// Whether our hosts start at that time as well, instead of at now; a start at the beginning is always given to both.
    pub at_time: bool,
    /// How long no host runs then.
    pub idle: u64,
    /// Number of writes in that time.
    pub writes: u32,
}
