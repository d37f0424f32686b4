//! Where leases of other implementations begin that have no position yet, given when they were created. Pure.

use std::time::Duration;

use changefeed_core::{StartFrom, Timestamp};

/// How long before it creates its leases a .NET host may have started, by the clock of the store: it begins 1 s before its
/// start by its own clock, and then waits for the lock in steps of 15 s.
const MARGIN: Duration = Duration::from_secs(300);

/// Where a lease begins that .NET hosts created at `created` and that has no continuation; `start` is what they were told.
/// .NET hosts that begin at now begin at their start; where nobody knows when that was, only the beginning loses nothing.
/// Pure.
pub(crate) fn start_of(start: &StartFrom, created: Option<Timestamp>) -> StartFrom {
    let created = created.map(|created| created.saturating_sub(MARGIN));
    match (start, created) {
        (StartFrom::Now, Some(created)) => StartFrom::Time(created),
        (StartFrom::Now, None) => StartFrom::Beginning,
        (StartFrom::Time(time), Some(created)) => StartFrom::Time(created.min(*time)),
        (start, _) => start.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_dotnet_begins_no_later_than_its_hosts_do() {
        let [early, created, late] = [100, 1000, 2000].map(Timestamp::from_secs);
        let before = StartFrom::Time(Timestamp::from_secs(700));
        let table = [
            (StartFrom::Now, Some(created), before.clone()),
            (StartFrom::Now, None, StartFrom::Beginning),
            (StartFrom::Beginning, Some(created), StartFrom::Beginning),
            (StartFrom::Beginning, None, StartFrom::Beginning),
            (StartFrom::Time(early), Some(created), StartFrom::Time(early)),
            (StartFrom::Time(late), Some(created), before),
            (StartFrom::Time(late), None, StartFrom::Time(late)),
        ];
        for (start, created, expected) in table {
            assert_eq!(start_of(&start, created), expected, "{start:?} {created:?}");
        }
    }
}
