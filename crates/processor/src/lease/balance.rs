//! Lease balancing: who should own what. Pure: takes a snapshot, returns moves; never reads a clock.
//!
//! Balance is by count. What counts is not who owns a lease now but who will own it once the requests under way are
//! answered: so one cycle asks for everything it needs, no two cycles ask for the same, and when the counts differ by
//! at most one nobody moves any more. Every host works out the moves of the whole fleet and performs its own part, so
//! hosts that plan at the same moment do not all go for the same surplus.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeMap};

use super::prefix::LeaseToken;

/// One plan in so many does not leave to other hosts what would be theirs: they may be full, which nobody else can
/// see. Rarely enough that hosts which plan at the same moment still come to rest.
const PLANS_PER_SELFISH_PLAN: u64 = 4;

/// What one host sees of a processor's leases.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The instance that asks. Names are compared exactly.
    pub me: &'a str,
    /// All leases of the processor.
    pub leases: &'a [LeaseView],
    /// The most leases that this host may have.
    pub max_leases: Option<usize>,
    /// Decides which of equally good leases come first: hosts with different seeds do not race for the same ones.
    pub shuffle: u64,
}

/// What one host sees of one lease.
#[derive(Clone, Debug)]
pub struct LeaseView {
    /// Its token.
    pub token: LeaseToken,
    /// Its owner; none if it is free.
    pub owner: Option<String>,
    /// Whether the owner has been silent for the expiration interval, judged by observation.
    pub expired: bool,
    /// Who asks for it. A request that stood unanswered far beyond its deadline must be left out: its author is dead.
    pub hand_over_to: Option<String>,
    /// Whether it is to be worked on: neither paused nor a tombstone.
    pub available: bool,
    /// Whether a worker of this host is on it.
    pub mine_running: bool,
    /// This host asked for it, and the deadline has passed.
    pub asked_overdue: bool,
    /// Free or expired for several cycles: those whose share it would be do not want it, so it is anyone's.
    pub stranded: bool,
}

/// One thing to do, as a compare-and-swap on the lease that was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// Own a lease that is free or expired, or is mine without a worker.
    Take(LeaseToken),
    /// Own a lease whose owner did not answer the request by the deadline.
    Force(LeaseToken),
    /// Request a lease from its owner.
    Ask(LeaseToken),
    /// Take back a request of mine that is no longer wanted.
    Withdraw(LeaseToken),
}

impl Move {
    /// The lease that it is about.
    pub fn lease(&self) -> &LeaseToken {
        let (Self::Take(token) | Self::Force(token) | Self::Ask(token) | Self::Withdraw(token)) = self;
        token
    }
}

/// What this host should do now. A host that has its share, and one for which nothing is left, does nothing.
pub fn plan(view: &View<'_>) -> Vec<Move> {
    let mut planner = Planner::new(view);
    planner.plan();
    planner.moves
}

/// Whether this host would do nothing, however the dice fall: then only what others write, and time, can change that.
pub fn is_at_rest(view: &View<'_>) -> bool {
    [false, true].into_iter().all(|selfish| {
        let mut planner = Planner { selfish, ..Planner::new(view) };
        planner.plan();
        planner.moves.is_empty()
    })
}

struct Planner<'a> {
    me: &'a str,
    /// The leases in this host's own order.
    leases: Vec<&'a LeaseView>,
    /// How many leases each host will have when all requests are answered.
    counts: BTreeMap<&'a str, usize>,
    most: usize,
    selfish: bool,
    moves: Vec<Move>,
}

impl<'a> Planner<'a> {
    fn new(view: &View<'a>) -> Self {
        let mut leases: Vec<_> = view.leases.iter().collect();
        leases.sort_by_cached_key(|lease| (scramble(lease.token.as_str(), view.shuffle), lease.token.clone()));
        let mut counts = BTreeMap::from([(view.me, 0)]);
        for lease in &leases {
            for host in lease.live_owner(view.me).into_iter().chain(lease.hand_over_to.as_deref()) {
                counts.entry(host).or_default();
            }
            if let Some(host) = lease.future_owner(view.me) {
                *counts.entry(host).or_default() += 1;
            }
        }
        let selfish = scramble(view.me, view.shuffle).is_multiple_of(PLANS_PER_SELFISH_PLAN);
        let most = view.max_leases.unwrap_or(usize::MAX);
        Self { me: view.me, leases, counts, most, selfish, moves: Vec::new() }
    }

    fn plan(&mut self) {
        self.take_back();
        self.take_free();
        self.settle_requests();
        self.ask();
    }

    /// Leases in my name without a worker: granted to me, or left from before a restart.
    fn take_back(&mut self) {
        let mine = || self.leases.iter().filter(|lease| lease.available && lease.owner.as_deref() == Some(self.me));
        let running = mine().filter(|lease| lease.mine_running).count();
        let idle = mine().filter(|lease| !lease.mine_running).take(self.most.saturating_sub(running));
        self.moves.extend(idle.map(|lease| Move::Take(lease.token.clone())));
    }

    /// Free and expired leases, up to a fair share; stranded ones beyond it. Those that are left go to other hosts.
    fn take_free(&mut self) {
        let share = self.available().div_ceil(self.counts.len());
        let mut left = 0;
        for lease in self.leases.clone().into_iter().filter(|lease| lease.is_free(self.me)) {
            let count = self.count(self.me);
            if count < self.most && (count < share || lease.stranded) {
                self.moves.push(Move::Take(lease.token.clone()));
                *self.counts.entry(self.me).or_default() += 1;
            } else {
                left += 1;
            }
        }
        let targets = self.targets();
        for (host, count) in &mut self.counts {
            let wanted = targets.get(host).map_or(0, |target| target.saturating_sub(*count)).min(left);
            if *host != self.me {
                *count += wanted;
                left -= wanted;
            }
        }
    }

    /// Requests that are no longer wanted, of mine and, to foresee them, of others; and requests of mine that were not
    /// answered.
    fn settle_requests(&mut self) {
        let targets = self.targets();
        let mut requested: Vec<_> = self.leases.iter().copied().filter(|lease| lease.hand_over_to.is_some()).collect();
        requested.sort_by(|a, b| a.token.cmp(&b.token));
        for lease in requested {
            let (Some(owner), Some(to)) = (lease.live_owner(self.me), lease.hand_over_to.as_deref()) else { continue };
            if owner == to {
                continue;
            }
            let (mine, count) = (to == self.me, self.count(to));
            let too_many = Some(&count) > targets.get(to) && count >= self.count(owner) + 2;
            let unwanted = !lease.available || too_many || mine && count > self.most;
            if unwanted && lease.available {
                self.shift(to, owner);
            }
            match (mine, unwanted) {
                (true, true) => self.moves.push(Move::Withdraw(lease.token.clone())),
                (true, false) if lease.asked_overdue => self.moves.push(Move::Force(lease.token.clone())),
                _ => {}
            }
        }
    }

    /// Leases of owners that have more than their part, from the most loaded first, for hosts that have less.
    fn ask(&mut self) {
        let mut askable: BTreeMap<&str, Vec<&LeaseView>> = BTreeMap::new();
        for lease in self.leases.iter().filter(|lease| lease.is_askable(self.me)) {
            if let Some(owner) = lease.live_owner(self.me) {
                askable.entry(owner).or_default().push(lease);
            }
        }
        // An owner's only lease stays, even if more are on their way to it.
        let mut spare: BTreeMap<&str, usize> =
            askable.iter().map(|(owner, leases)| (*owner, leases.len().saturating_sub(1))).collect();
        let targets = self.targets();
        let takers: Vec<&str> = if self.selfish { vec![self.me] } else { targets.keys().copied().collect() };
        for taker in takers {
            loop {
                spare.retain(|_, count| *count > 0);
                let givers = spare.keys().filter(|owner| self.should_give(owner, taker, &targets));
                let Some(owner) = givers.max_by_key(|owner| (self.count(owner), Reverse(**owner))).copied() else {
                    break;
                };
                spare.entry(owner).and_modify(|count| *count -= 1);
                self.shift(owner, taker);
                if taker == self.me
                    && let Some(lease) = askable.get_mut(owner).and_then(Vec::pop)
                {
                    self.moves.push(Move::Ask(lease.token.clone()));
                }
            }
        }
    }

    fn should_give(&self, owner: &str, taker: &str, targets: &BTreeMap<&str, usize>) -> bool {
        if taker == self.me && self.count(taker) >= self.most {
            return false;
        }
        if self.selfish {
            return self.count(owner) >= self.count(taker) + 2;
        }
        let target = |host| targets.get(host).copied().unwrap_or_default();
        self.count(taker) < target(taker) && self.count(owner) > target(owner)
    }

    /// How many leases each host should have: those that have most get what an even division leaves over, so that
    /// counts which differ by at most one are the targets themselves.
    fn targets(&self) -> BTreeMap<&'a str, usize> {
        let mut hosts: Vec<_> = self.counts.iter().map(|(host, count)| (Reverse(*count), *host)).collect();
        hosts.sort_unstable();
        let (each, more) = (self.available() / hosts.len(), self.available() % hosts.len());
        hosts.into_iter().enumerate().map(|(at, (_, host))| (host, each + usize::from(at < more))).collect()
    }

    fn available(&self) -> usize {
        self.leases.iter().filter(|lease| lease.available).count()
    }

    fn count(&self, host: &str) -> usize {
        self.counts.get(host).copied().unwrap_or_default()
    }

    /// One lease will go from one host to another.
    fn shift(&mut self, from: &'a str, to: &'a str) {
        let count = self.counts.entry(from).or_default();
        *count = count.saturating_sub(1);
        *self.counts.entry(to).or_default() += 1;
    }
}

impl LeaseView {
    /// The owner, unless it is dead. I am not: I am running this.
    fn live_owner(&self, me: &str) -> Option<&str> {
        self.owner.as_deref().filter(|owner| !self.expired || *owner == me)
    }

    /// Who will have the lease once the request for it is answered.
    fn future_owner(&self, me: &str) -> Option<&str> {
        let owner = self.live_owner(me).filter(|_| self.available)?;
        Some(self.hand_over_to.as_deref().unwrap_or(owner))
    }

    fn is_free(&self, me: &str) -> bool {
        self.available && self.live_owner(me).is_none()
    }

    fn is_askable(&self, me: &str) -> bool {
        let owner = self.live_owner(me);
        self.available && owner != Some(me) && self.hand_over_to.as_deref().is_none_or(|to| owner == Some(to))
    }
}

/// A number that looks random but is always the same for one text and one seed.
fn scramble(text: &str, seed: u64) -> u64 {
    // FNV-1a, then the finalizer of SplitMix64, because FNV alone leaves the order of similar texts almost unchanged.
    let hash = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325 ^ seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}
