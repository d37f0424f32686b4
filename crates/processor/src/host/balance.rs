//! Lease balancing: which host should own which lease. Pure: takes a snapshot, returns moves; never reads a clock.
//!
//! Balance is by count. What counts is not who owns a lease now but who will own it once the requests under way are
//! answered: so one cycle asks for everything it needs, no two cycles ask for the same, and when the counts differ by
//! at most one nobody moves any more. Every host works out the moves of the whole fleet and performs its own part, so
//! hosts that plan at the same moment do not all go for the same surplus, nor for the same free leases.
//!
//! The time to plan grows with leases and hosts as sorting them does.

mod free_shares;
mod scramble;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    rc::Rc,
};

use self::scramble::scramble;
use crate::lease::prefix::LeaseToken;

/// One plan in so many does not leave to other hosts what would be theirs: they may be full, which nobody else can
/// see. Rarely enough that hosts which plan at the same moment still come to rest.
const PLANS_PER_GREEDY_PLAN: u64 = 4;

/// How many hosts, on average, go for an unclaimed lease in one cycle: several, since some may be full.
const HOSTS_PER_UNCLAIMED_LEASE: u64 = 4;

/// What one host sees of a processor's leases.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// The instance that asks. Names are compared exactly.
    pub(crate) me: &'a str,
    /// All leases of the processor.
    pub(crate) leases: &'a [LeaseView],
    /// The most leases that this host may have.
    pub(crate) max_leases: Option<usize>,
    /// Decides which of equally good leases come first: hosts with different seeds do not race for the same ones.
    pub(crate) shuffle: u64,
}

/// What one host sees of one lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseView {
    /// Its token.
    pub(crate) token: LeaseToken,
    /// Its owner; none if it is free.
    pub(crate) owner: Option<String>,
    /// Whether the owner was silent for as long as it promised, as far as this host saw.
    pub(crate) expired: bool,
    /// Whether the owner answers requests: hosts of other implementations do not.
    pub(crate) answers_requests: bool,
    /// Who asks for it. Requests of hosts that are taken for dead must be left out.
    pub(crate) requested_by: Option<String>,
    /// Whether it is to be worked on: neither paused nor a tombstone.
    pub(crate) available: bool,
    /// Whether a worker of this host is on it.
    pub(crate) mine_running: bool,
    /// This host requested it, and the user's deadline for a steal has passed.
    pub(crate) request_overdue: bool,
    /// Free or expired for some time: the host whose share it would be does not want it, so any host may acquire it.
    pub(crate) unclaimed: bool,
}

/// One thing to do, as a compare-and-swap on the lease that was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Move {
    /// Acquire a lease that is free or expired, or that this host owns without a task.
    Acquire(LeaseToken),
    /// Acquire a lease whose owner is alive: it answers no requests, or did not answer by the user's deadline.
    Steal(LeaseToken),
    /// Request a lease from its owner.
    Request(LeaseToken),
    /// Cancel a request of this host.
    CancelRequest(LeaseToken),
}

impl Move {
    /// The lease that it is about.
    pub(crate) fn lease(&self) -> &LeaseToken {
        let (Self::Acquire(token) | Self::Steal(token) | Self::Request(token) | Self::CancelRequest(token)) = self;
        token
    }
}

/// What this host should do now. A host that has its share, and one for which nothing is left, does nothing.
pub(crate) fn plan(view: &View<'_>) -> Vec<Move> {
    Planner::new(view).plan()
}

/// Whether this host would do nothing, however the dice fall: then only what others write, and time, can change that.
pub(crate) fn is_idle(view: &View<'_>) -> bool {
    let planner = Planner::new(view);
    [false, true].into_iter().all(|greedy| Planner { greedy, ..planner.clone() }.plan().is_empty())
}

/// The hosts that a plan counts with: this one, and those that own a lease or ask for one and are alive.
pub(crate) fn hosts(view: &View<'_>) -> BTreeSet<String> {
    known_hosts(view).into_iter().map(str::to_owned).collect()
}

fn known_hosts<'a>(view: &View<'a>) -> Vec<&'a str> {
    let mut hosts = vec![view.me];
    for lease in view.leases {
        hosts.extend(lease.live_owner(view.me).into_iter().chain(lease.requested_by.as_deref()));
    }
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[derive(Clone)]
struct Planner<'a> {
    /// All hosts that are known, by name: a host is its place in this list.
    hosts: Rc<[&'a str]>,
    me: usize,
    /// The leases in this host's own order.
    leases: Rc<[PlannedLease<'a>]>,
    /// How many leases each host will have when all requests are answered.
    counts: Vec<usize>,
    /// How many leases there are to be worked on.
    available: usize,
    most: usize,
    shuffle: u64,
    greedy: bool,
    moves: Vec<Move>,
}

/// A lease, with hosts by their place.
struct PlannedLease<'a> {
    view: &'a LeaseView,
    /// The owner, unless it is dead.
    owner: Option<usize>,
    requested_by: Option<usize>,
}

impl<'a> Planner<'a> {
    fn new(view: &View<'a>) -> Self {
        let hosts = known_hosts(view);
        let place = |host: &str| hosts.binary_search(&host).expect("invariant: every name was collected");
        let planned = |view_of: &'a LeaseView| PlannedLease {
            view: view_of,
            owner: view_of.live_owner(view.me).map(place),
            requested_by: view_of.requested_by.as_deref().map(place),
        };
        let mut order: Vec<_> = view
            .leases
            .iter()
            .map(|lease| (scramble(lease.token.as_str(), view.shuffle), &lease.token, lease))
            .collect();
        order.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let leases: Rc<[PlannedLease<'a>]> = order.into_iter().map(|(_, _, lease)| planned(lease)).collect();
        let mut counts = vec![0; hosts.len()];
        for host in leases.iter().filter_map(PlannedLease::future_owner) {
            counts[host] += 1;
        }
        Self {
            me: place(view.me),
            available: leases.iter().filter(|lease| lease.view.available).count(),
            most: view.max_leases.unwrap_or(usize::MAX),
            shuffle: view.shuffle,
            greedy: scramble(view.me, view.shuffle).is_multiple_of(PLANS_PER_GREEDY_PLAN),
            moves: Vec::new(),
            hosts: hosts.into(),
            leases,
            counts,
        }
    }

    fn plan(mut self) -> Vec<Move> {
        self.take_back();
        self.take_free();
        self.settle_requests();
        self.request();
        self.steal();
        self.moves
    }

    /// Leases in my name without a worker: granted to me, or left from before a restart.
    fn take_back(&mut self) {
        let mine = || self.leases.iter().filter(|lease| lease.view.available && lease.owner == Some(self.me));
        let running = mine().filter(|lease| lease.view.mine_running).count();
        let idle = mine().filter(|lease| !lease.view.mine_running).take(self.most.saturating_sub(running));
        self.moves.extend(idle.map(|lease| Move::Acquire(lease.view.token.clone())));
    }

    /// My part of the free and expired leases, and unclaimed ones beyond it. The rest goes to other hosts.
    fn take_free(&mut self) {
        let leases = Rc::clone(&self.leases);
        let free: Vec<&PlannedLease<'_>> = leases.iter().filter(|lease| lease.is_free()).collect();
        let targets = self.targets_of_free();
        let room = |host: usize| {
            let target = if host == self.me { targets[host].min(self.most) } else { targets[host] };
            target.saturating_sub(self.counts[host])
        };
        let rooms: Vec<_> = (0..self.hosts.len()).map(|host| (self.hosts[host], room(host))).collect();
        let shares = free_shares::divide(free.iter().map(|lease| lease.view.token.as_str()), &rooms);
        for (lease, share) in free.into_iter().zip(shares) {
            let mine = share == Some(self.me) || lease.view.unclaimed && self.may_claim(&lease.view.token);
            if mine && self.counts[self.me] < self.most {
                self.moves.push(Move::Acquire(lease.view.token.clone()));
                self.counts[self.me] += 1;
            } else if let Some(other) = share.filter(|share| *share != self.me) {
                self.counts[other] += 1;
            }
        }
    }

    /// Whether this plan goes for an unclaimed lease: a few hosts do at a time, not the whole fleet.
    fn may_claim(&self, token: &LeaseToken) -> bool {
        let chance = scramble(self.hosts[self.me], scramble(token.as_str(), self.shuffle));
        chance % (self.hosts.len() as u64) < HOSTS_PER_UNCLAIMED_LEASE
    }

    /// Requests that are no longer wanted, of mine and, to foresee them, of others; and requests of mine that were not
    /// answered.
    fn settle_requests(&mut self) {
        let targets = self.targets();
        let leases = Rc::clone(&self.leases);
        let mut requested: Vec<_> = leases.iter().filter(|lease| lease.requested_by.is_some()).collect();
        requested.sort_unstable_by(|a, b| a.view.token.cmp(&b.view.token));
        for lease in requested {
            let (Some(owner), Some(to)) = (lease.owner, lease.requested_by) else { continue };
            if owner == to {
                continue;
            }
            let (mine, count) = (to == self.me, self.counts[to]);
            let too_many = count > targets[to] && count >= self.counts[owner] + 2;
            let unwanted = !lease.view.available || too_many || mine && count > self.most;
            if unwanted && lease.view.available {
                self.shift(to, owner);
            }
            match (mine, unwanted) {
                (true, true) => self.moves.push(Move::CancelRequest(lease.view.token.clone())),
                (true, false) if lease.view.request_overdue => self.moves.push(Move::Steal(lease.view.token.clone())),
                _ => {}
            }
        }
    }

    /// Leases of owners that have more than their part, from the most loaded first, for hosts that have less.
    fn request(&mut self) {
        let leases = Rc::clone(&self.leases);
        let mut requestable: Vec<Vec<&PlannedLease<'_>>> = vec![Vec::new(); self.hosts.len()];
        for lease in leases.iter().filter(|lease| lease.is_requestable(self.me)) {
            if let Some(owner) = lease.owner {
                requestable[owner].push(lease);
            }
        }
        // An owner's only lease stays, even if more are on their way to it.
        let mut spare: Vec<usize> = requestable.iter().map(|leases| leases.len().saturating_sub(1)).collect();
        let targets = self.targets();
        // Owners give until they have their target, takers take until they have theirs: no host is both.
        let gives = |host: usize, count: usize| self.greedy || count > targets[host];
        let mut givers: BinaryHeap<(usize, Reverse<usize>)> = (0..self.hosts.len())
            .filter(|host| spare[*host] > 0 && gives(*host, self.counts[*host]))
            .map(|host| (self.counts[host], Reverse(host)))
            .collect();
        let takers = if self.greedy { self.me..self.me + 1 } else { 0..self.hosts.len() };
        for taker in takers {
            while self.wants(taker, &targets)
                && let Some((count, Reverse(owner))) = givers.pop()
            {
                if self.greedy && count < self.counts[taker] + 2 {
                    break;
                }
                self.shift(owner, taker);
                spare[owner] -= 1;
                if spare[owner] > 0 && (self.greedy || count - 1 > targets[owner]) {
                    givers.push((count - 1, Reverse(owner)));
                }
                if taker == self.me
                    && let Some(lease) = requestable[owner].pop()
                {
                    self.moves.push(Move::Request(lease.view.token.clone()));
                }
            }
        }
    }

    /// One lease of the most loaded owner that answers no requests, as hosts of the .NET SDK balance among themselves. That
    /// cuts the owner's call, so leases that others have requested of me still count: they may never go.
    fn steal(&mut self) {
        let mut first: Vec<Option<&PlannedLease<'_>>> = vec![None; self.hosts.len()];
        let leases = Rc::clone(&self.leases);
        for lease in leases.iter().filter(|lease| lease.view.available && !lease.view.answers_requests) {
            if let Some(owner) = lease.owner.filter(|owner| *owner != self.me) {
                first[owner].get_or_insert(lease);
            }
        }
        let (count, targets) = (self.counts[self.me], self.targets());
        let target = targets[self.me].min(self.most);
        let owned = leases.iter().filter(|lease| lease.view.available && lease.owner == Some(self.me)).count();
        let owners = (0..self.hosts.len()).filter_map(|owner| Some((owner, first[owner]?)));
        let most_loaded = owners.max_by_key(|(owner, _)| (self.counts[*owner], Reverse(*owner)));
        if let Some((owner, lease)) = most_loaded
            && count < target
            && self.counts[owner] >= count.max(owned) + 2
        {
            self.shift(owner, self.me);
            self.moves.push(Move::Steal(lease.view.token.clone()));
        }
    }

    /// Whether a host should take one more lease.
    fn wants(&self, taker: usize, targets: &[usize]) -> bool {
        let count = self.counts[taker];
        (taker != self.me || count < self.most) && (self.greedy || count < targets[taker])
    }

    /// How many leases each host should have: those that have most get what an even division leaves over, so that
    /// counts which differ by at most one are the targets themselves.
    fn targets(&self) -> Vec<usize> {
        self.divide_evenly(|count, _| Reverse(count))
    }

    /// How many leases each host should have once the free ones are taken: no host is above its target unless it is
    /// already, and what an even division leaves over goes to those that have least.
    fn targets_of_free(&self) -> Vec<usize> {
        self.divide_evenly(|count, each| (count <= each, count))
    }

    /// An even division of all leases; what it leaves over goes to the hosts that come first by `key`, which is given the
    /// count of a host and the even share, then by name.
    fn divide_evenly<K: Ord>(&self, key: impl Fn(usize, usize) -> K) -> Vec<usize> {
        let (each, more) = (self.available / self.hosts.len(), self.available % self.hosts.len());
        let mut order: Vec<_> = self.counts.iter().enumerate().map(|(host, count)| (key(*count, each), host)).collect();
        order.sort_unstable();
        let mut targets = vec![each; self.hosts.len()];
        for (_, host) in order.into_iter().take(more) {
            targets[host] += 1;
        }
        targets
    }

    /// One lease will go from one host to another.
    fn shift(&mut self, from: usize, to: usize) {
        self.counts[from] = self.counts[from].saturating_sub(1);
        self.counts[to] += 1;
    }
}

impl PlannedLease<'_> {
    /// Who will have the lease once the request for it is answered.
    fn future_owner(&self) -> Option<usize> {
        let owner = self.owner.filter(|_| self.view.available)?;
        Some(self.requested_by.unwrap_or(owner))
    }

    fn is_free(&self) -> bool {
        self.view.available && self.owner.is_none()
    }

    fn is_requestable(&self, me: usize) -> bool {
        self.view.available
            && self.view.answers_requests
            && self.owner != Some(me)
            && self.requested_by.is_none_or(|to| self.owner == Some(to))
    }
}

impl LeaseView {
    /// The owner, unless it is dead. I am not: I am running this.
    fn live_owner(&self, me: &str) -> Option<&str> {
        self.owner.as_deref().filter(|owner| !self.expired || *owner == me)
    }
}
