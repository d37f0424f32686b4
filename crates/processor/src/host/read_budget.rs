//! How often an idle host reads what was written to leases. Pure.

use std::time::Duration;

/// How many reads an idle host may save up, to react at once where hardly anything is written.
const SAVED_READS: u32 = 3;

/// Bounds how often an idle host reads: once in an interval, and sooner if it has read less before.
#[derive(Debug)]
pub(super) struct ReadBudget {
    interval: Duration,
    /// When all reads so far are paid for, at one in an interval.
    paid: Duration,
}

impl ReadBudget {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, paid: Duration::ZERO }
    }

    /// A read at `now`: a listing, or the feed to its end.
    pub(super) fn spend(&mut self, now: Duration) {
        // A host that is not idle may read more often; it need not make up for all of that.
        let most = now + self.interval * (SAVED_READS + 1);
        self.paid = (self.paid.max(now) + self.interval).min(most);
    }

    /// How long to wait before the next read.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        self.paid.saturating_sub(self.interval * SAVED_READS).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_host_reads_once_in_an_interval_and_sooner_after_a_quiet_time() {
        let at = Duration::from_secs;
        let mut budget = ReadBudget::new(at(10));
        let mut reads = Vec::new();
        // A host that reads whenever it may, asked once a second.
        for second in 1000..1100 {
            if budget.wait(at(second)).is_zero() {
                budget.spend(at(second));
                reads.push(second);
            }
        }
        assert_eq!(reads, [1000, 1001, 1002, 1003, 1010, 1020, 1030, 1040, 1050, 1060, 1070, 1080, 1090]);
    }

    #[test]
    fn a_busy_time_delays_the_next_read_by_one_interval_at_most() {
        let at = Duration::from_secs;
        let mut budget = ReadBudget::new(at(10));
        (0..100).for_each(|_| budget.spend(at(1000)));
        assert_eq!(budget.wait(at(1000)), at(10));
    }
}
