//! A scenario: everything that a run needs to know, as a plain value. A seed is drawn into one; a regression is kept as
//! one. All times are in milliseconds of simulated time.

mod draw;

use serde::{Deserialize, Serialize};

use crate::exec::Order;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// What all streams of chance begin with.
    pub seed: u64,
    /// How the scheduler chooses.
    pub order: Order,
    /// The machines.
    pub hosts: Vec<HostPlan>,
    /// How many physical ranges the monitored container begins with.
    pub ranges: usize,
    /// The options of the processor.
    pub processor: ProcessorPlan,
    /// How requests travel.
    pub network: NetworkPlan,
    /// How the delegate behaves.
    pub delegate: DelegatePlan,
    /// What is written.
    pub workload: WorkloadPlan,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// How long things may go wrong; then comes the quiet phase.
    pub chaos: u64,
    /// What the first host does once everything is at rest.
    #[serde(default)]
    pub last_act: LastAct,
}

/// What the first host does once everything is at rest; the others must take over what it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LastAct {
    /// It goes on.
    #[default]
    Stay,
    /// It dies.
    Crash,
    /// It is stopped in good order.
    Stop,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostPlan {
    /// When its host is started.
    pub starts_at: u64,
    /// Parts per million that its clocks run fast.
    pub drift_ppm: i64,
    /// How far its time of day is ahead.
    pub offset: i64,
}

/// The options of the processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessorPlan {
    /// Between two looks at all leases.
    pub acquire: u64,
    /// Between two renewals.
    pub renew: u64,
    /// Until a silent lease is free.
    pub expiration: u64,
    /// Between two polls of an idle feed.
    pub poll: u64,
    /// The page size.
    pub max_items: usize,
    /// When progress is stored.
    pub checkpoint: CheckpointPlan,
    /// Attempts before the dead-letter container is used; none: there is none.
    pub dead_letter_after: Option<u32>,
    /// Every version, or the latest.
    pub all_versions: bool,
    /// From the beginning, or from now.
    pub from_beginning: bool,
    /// How long a stop may take.
    pub stop_deadline: u64,
    /// How long a call may take.
    pub delegate_timeout: Option<u64>,
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
    /// How many requests in a thousand are lost on the way.
    pub lost_request_per_mille: u64,
    /// How many answers in a thousand are lost.
    pub lost_response_per_mille: u64,
    /// How many requests in a thousand are refused as too many.
    pub throttled_per_mille: u64,
    /// How stores wake readers.
    pub wakes: WakePlan,
}

/// How stores wake readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakePlan {
    /// They do not.
    Never,
    /// After so many milliseconds.
    After(u64),
}

/// How the delegate behaves while things go wrong; in the quiet phase only its speed stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegatePlan {
    /// The shortest call.
    pub shortest: u64,
    /// The longest usual call.
    pub longest: u64,
    /// How many calls in a thousand fail as a whole.
    pub fail_per_mille: u64,
    /// How many blame an item.
    pub blame_per_mille: u64,
    /// How many give an outcome for each item, some to be tried again.
    pub each_per_mille: u64,
    /// How many panic.
    pub panic_per_mille: u64,
    /// How many never return. Only with a timeout.
    pub never_per_mille: u64,
    /// How many take as long as an expiration.
    pub slow_per_mille: u64,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPlan {
    /// How many partition keys.
    pub keys: u32,
    /// How many items each has.
    pub items_per_key: u32,
    /// The mean pause between two writes.
    pub pause: u64,
    /// How many writes in a thousand begin a burst of 30.
    pub burst_per_mille: u64,
    /// How many writes are there before the first host starts.
    pub before: u32,
    /// How many writes in a thousand delete.
    pub delete_per_mille: u64,
    /// How many are transactions of several items.
    pub batch_per_mille: u64,
    /// How many cannot be handled. Only with dead letters.
    pub poison_per_mille: u64,
    /// How many writes kill the process that handles them. Only with dead letters.
    pub killers: u32,
}

/// Something that goes wrong at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at: u64,
    /// What.
    pub what: Wrong,
}

/// Something that goes wrong. Times are in milliseconds; a pick is reduced to what there is to pick from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Wrong {
    /// A host dies, and is started again.
    Crash { host: usize, down: u64 },
    /// A host is stopped in good order, and started again.
    Stop { host: usize, down: u64 },
    /// A host does nothing for a while, and does not know.
    Stall { host: usize, length: u64 },
    /// A second process with the name of a host runs for a while.
    Twin { host: usize, length: u64 },
    /// The time of day on a host jumps.
    Jump { host: usize, by: i64 },
    /// Requests to a store fail for a while; of one host or of all.
    Trouble { store: Store, host: Option<usize>, kind: Trouble, length: u64 },
    /// A range is split.
    Split { pick: u64 },
    /// Two neighbours are merged.
    Merge { pick: u64 },
    /// An operator deletes the document of a lease.
    DeleteLease { pick: u64 },
}

/// One of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Store {
    /// The monitored container.
    Feed,
    /// The lease container.
    Leases,
    /// The dead-letter container.
    Letters,
}

/// How a store fails for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// It cannot be reached.
    Unavailable,
    /// Too many requests.
    Throttled,
    /// It does what it is asked, but answers are lost.
    NoAnswers,
    /// Requests do not arrive, and time out.
    NoRequests,
    /// Everything takes this long.
    Slow(u64),
    /// Requests are never answered, not even by a timeout.
    Hang,
    /// Deletes are not allowed.
    NoDeletes,
}

impl DelegatePlan {
    /// Whether calls fail only for what they are given.
    fn is_healthy(&self) -> bool {
        let failing = self.fail_per_mille + self.blame_per_mille + self.each_per_mille + self.panic_per_mille;
        failing + self.never_per_mille + self.slow_per_mille == 0
    }
}

impl Scenario {
    /// Whether nothing happens that could cause a duplicate: stops, starts, splits and merges only.
    pub fn is_planned_only(&self) -> bool {
        let planned = |fault: &Fault| {
            matches!(fault.what, Wrong::Stop { .. } | Wrong::Split { .. } | Wrong::Merge { .. } | Wrong::Jump { .. })
        };
        let edible = self.workload.poison_per_mille == 0 && self.workload.killers == 0;
        let alive = self.last_act != LastAct::Crash;
        let stored = matches!(self.processor.checkpoint, CheckpointPlan::Automatic | CheckpointPlan::Manual(1));
        self.is_calm() && self.delegate.is_healthy() && edible && alive && stored && self.faults.iter().all(planned)
    }

    /// Whether only items that deserve it may become dead letters: nothing else fails, and no process dies or seems
    /// dead for another reason.
    pub fn blames_truly(&self) -> bool {
        let deadly = |fault: &Fault| match &fault.what {
            Wrong::Crash { .. } | Wrong::Stall { .. } | Wrong::Twin { .. } => true,
            Wrong::Trouble { store, kind, .. } => *store == Store::Leases && *kind != Trouble::NoDeletes,
            _ => false,
        };
        let deadly = self.faults.iter().any(deadly) || self.last_act == LastAct::Crash;
        self.is_calm() && self.delegate.is_healthy() && !deadly
    }

    fn is_calm(&self) -> bool {
        let network = &self.network;
        network.tail_per_mille
            + network.lost_request_per_mille
            + network.lost_response_per_mille
            + network.throttled_per_mille
            == 0
    }

    /// Whether progress is stored by the delegate.
    pub fn is_manual(&self) -> bool {
        self.processor.checkpoint != CheckpointPlan::Automatic
    }

    /// The scenario as JSON, to be kept.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("invariant: numbers and names always serialise")
    }
}
