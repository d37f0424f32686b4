//! What interrupts what: the one table that says what a signal does to the work on a lease. Pure.
//!
//! `docs/lease-lifecycle.md` prints this table; a test compares the two.

/// A reason to interrupt the work on a lease, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// The lease is no longer owned.
    Lost,
    /// The stop deadline has passed.
    Abort,
    /// The host stops.
    Stop,
    /// An operator paused the lease.
    Paused,
    /// Another host asked for the lease.
    Requested,
    /// The own deadline has passed, and whether the last renewal succeeded is unknown.
    Fenced,
    /// The range was split or merged, or may have been.
    RangeGone,
}

/// What a lease is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// Reading a page, waiting for changes, or waiting before it reads again.
    Reading,
    /// A delegate call is running.
    Calling,
    /// A pause before a retry, or a wait for the turn to deliver in isolation or for the host's permit to call.
    Pausing,
    /// A dead letter or a mark is being written.
    DeadLettering,
    /// The lease is being replaced by those of its successors.
    Splitting,
}

/// What happens to the work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// It is dropped; then the lease is left.
    Drop,
    /// It is finished, and its result counts; then the lease is left. `Context::cancelled` fires as a hint, but not at a
    /// split.
    Finish,
    /// It may finish, but its result is discarded. `Context::cancelled` fires as a hint.
    Discard,
    /// It goes on; nothing new begins until the outcome of the renewal is known.
    Hold,
}

/// What the signal does to the activity; how the lease is left then, see [`Leave`].
pub(crate) const fn interrupt(signal: Signal, activity: Activity) -> Interrupt {
    use Activity::{Calling, DeadLettering, Pausing, Reading, Splitting};
    use Interrupt::{Discard, Drop, Finish, Hold};
    match (signal, activity) {
        //                 reading         calling           pausing         dead-lettering          splitting
        (Signal::Lost, Reading | Pausing | DeadLettering) => Drop,
        (Signal::Lost, Calling | Splitting) => Discard,
        (Signal::Abort, Reading | Calling | Pausing | DeadLettering) => Drop,
        (Signal::Abort, Splitting) => Finish,
        (Signal::Stop | Signal::Paused | Signal::Requested, Reading | Pausing) => Drop,
        (Signal::Stop | Signal::Paused | Signal::Requested, Calling | DeadLettering | Splitting) => Finish,
        (Signal::Fenced, Reading | Calling | Pausing | DeadLettering | Splitting) => Hold,
        (Signal::RangeGone, Reading | Pausing) => Drop,
        (Signal::RangeGone, Calling | DeadLettering | Splitting) => Finish,
    }
}

/// How a lease is left once nothing is under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Nothing is written.
    Abandon,
    /// Progress is stored and the lease released, in one write.
    Release,
    /// Progress is stored and the lease granted to the host that asked, in one write.
    Grant,
    /// It is replaced by leases of its successors.
    Split,
    /// It stays.
    Stay,
}

/// How a signal makes a host leave a lease.
pub(crate) const fn leave(signal: Signal) -> Leave {
    match signal {
        Signal::Lost => Leave::Abandon,
        Signal::Abort | Signal::Stop | Signal::Paused => Leave::Release,
        Signal::Requested => Leave::Grant,
        Signal::RangeGone => Leave::Split,
        Signal::Fenced => Leave::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVITIES: [Activity; 5] =
        [Activity::Reading, Activity::Calling, Activity::Pausing, Activity::DeadLettering, Activity::Splitting];

    /// The table of DESIGN §16, row by row.
    #[test]
    fn each_signal_interrupts_each_activity_as_the_design_says() {
        use Interrupt::{Discard, Drop, Finish, Hold};
        let table = [
            (Signal::Lost, [Drop, Discard, Drop, Drop, Discard], Leave::Abandon),
            (Signal::Abort, [Drop, Drop, Drop, Drop, Finish], Leave::Release),
            (Signal::Stop, [Drop, Finish, Drop, Finish, Finish], Leave::Release),
            (Signal::Paused, [Drop, Finish, Drop, Finish, Finish], Leave::Release),
            (Signal::Requested, [Drop, Finish, Drop, Finish, Finish], Leave::Grant),
            (Signal::Fenced, [Hold, Hold, Hold, Hold, Hold], Leave::Stay),
            (Signal::RangeGone, [Drop, Finish, Drop, Finish, Finish], Leave::Split),
        ];
        for (signal, row, how) in table {
            assert_eq!(ACTIVITIES.map(|activity| interrupt(signal, activity)), row, "{signal:?}");
            assert_eq!(leave(signal), how, "{signal:?}");
        }
    }

    #[test]
    fn the_documentation_prints_this_table() {
        let page = include_str!("../../../../docs/lease-lifecycle.md");
        let signals = [
            Signal::Lost,
            Signal::Abort,
            Signal::Stop,
            Signal::Paused,
            Signal::Requested,
            Signal::Fenced,
            Signal::RangeGone,
        ];
        for signal in signals {
            let cells = ACTIVITIES.map(|activity| format!("{:?}", interrupt(signal, activity)).to_lowercase());
            let row = format!("| `{signal:?}` | {} | {:?} |", cells.join(" | "), leave(signal)).to_lowercase();
            assert!(page.to_lowercase().contains(&row), "docs/lease-lifecycle.md lacks the row\n{row}");
        }
    }
}
