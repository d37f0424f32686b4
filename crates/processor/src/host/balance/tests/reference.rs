//! The definition of a fair plan, written for the reader and not for speed: its time grows with hosts times leases.

use std::collections::BTreeMap;

use super::super::*;

/// What a host should do now.
pub(super) fn plan(view: &View<'_>) -> Vec<Move> {
    let mut planner = Planner::new(view);
    planner.plan();
    planner.moves
}

struct Planner<'a> {
    me: &'a str,
    /// The leases in this host's own order.
    leases: Vec<&'a LeaseView>,
    /// How many leases each host will have when all requests are answered.
    counts: BTreeMap<&'a str, usize>,
    most: usize,
    greedy: bool,
    moves: Vec<Move>,
}

impl<'a> Planner<'a> {
    fn new(view: &View<'a>) -> Self {
        let mut leases: Vec<_> = view.leases.iter().collect();
        leases.sort_by_cached_key(|lease| (scramble(lease.token.as_str(), view.shuffle), lease.token.clone()));
        let mut counts = BTreeMap::from([(view.me, 0)]);
        for lease in &leases {
            for host in lease.live_owner(view.me).into_iter().chain(lease.requested_by.as_deref()) {
                counts.entry(host).or_default();
            }
            if let Some(host) = future_owner(lease, view.me) {
                *counts.entry(host).or_default() += 1;
            }
        }
        let greedy = scramble(view.me, view.shuffle).is_multiple_of(PLANS_PER_GREEDY_PLAN);
        let most = view.max_leases.unwrap_or(usize::MAX);
        Self { me: view.me, leases, counts, most, greedy, moves: Vec::new() }
    }

    fn plan(&mut self) {
        self.take_back();
        self.take_free();
        self.settle_requests();
        self.request();
        self.steal();
    }

    /// Leases in my name without a worker: granted to me, or left from before a restart.
    fn take_back(&mut self) {
        let mine = || self.leases.iter().filter(|lease| lease.available && lease.owner.as_deref() == Some(self.me));
        let running = mine().filter(|lease| lease.mine_running).count();
        let idle = mine().filter(|lease| !lease.mine_running).take(self.most.saturating_sub(running));
        self.moves.extend(idle.map(|lease| Move::Acquire(lease.token.clone())));
    }

    /// Free and expired leases, up to a fair share; unclaimed ones beyond it. Those that are left go to other hosts.
    fn take_free(&mut self) {
        let share = self.available().div_ceil(self.counts.len());
        let mut left = 0;
        for lease in self.leases.clone().into_iter().filter(|lease| is_free(lease, self.me)) {
            let count = self.count(self.me);
            if count < self.most && (count < share || lease.unclaimed) {
                self.moves.push(Move::Acquire(lease.token.clone()));
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
        let mut requested: Vec<_> = self.leases.iter().copied().filter(|lease| lease.requested_by.is_some()).collect();
        requested.sort_by(|a, b| a.token.cmp(&b.token));
        for lease in requested {
            let (Some(owner), Some(to)) = (lease.live_owner(self.me), lease.requested_by.as_deref()) else { continue };
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
                (true, true) => self.moves.push(Move::CancelRequest(lease.token.clone())),
                (true, false) if lease.request_overdue => self.moves.push(Move::Steal(lease.token.clone())),
                _ => {}
            }
        }
    }

    /// Leases of owners that have more than their part, from the most loaded first, for hosts that have less.
    fn request(&mut self) {
        let mut requestable: BTreeMap<&str, Vec<&LeaseView>> = BTreeMap::new();
        for lease in self.leases.iter().filter(|lease| is_requestable(lease, self.me)) {
            if let Some(owner) = lease.live_owner(self.me) {
                requestable.entry(owner).or_default().push(lease);
            }
        }
        // An owner's only lease stays, even if more are on their way to it.
        let mut spare: BTreeMap<&str, usize> =
            requestable.iter().map(|(owner, leases)| (*owner, leases.len().saturating_sub(1))).collect();
        let targets = self.targets();
        let takers: Vec<&str> = if self.greedy { vec![self.me] } else { targets.keys().copied().collect() };
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
                    && let Some(lease) = requestable.get_mut(owner).and_then(Vec::pop)
                {
                    self.moves.push(Move::Request(lease.token.clone()));
                }
            }
        }
    }

    /// One lease of the most loaded owner that answers no requests, as hosts of the .NET SDK balance among themselves.
    fn steal(&mut self) {
        let mut leases: BTreeMap<&str, &LeaseView> = BTreeMap::new();
        for lease in self.leases.iter().copied().filter(|lease| lease.available && !lease.answers_requests) {
            if let Some(owner) = lease.live_owner(self.me).filter(|owner| *owner != self.me) {
                leases.entry(owner).or_insert(lease);
            }
        }
        let (count, targets) = (self.count(self.me), self.targets());
        let target = targets.get(self.me).copied().unwrap_or_default().min(self.most);
        let mine = |lease: &&&LeaseView| lease.available && lease.live_owner(self.me) == Some(self.me);
        let owned = self.leases.iter().filter(mine).count();
        let most_loaded = leases.into_iter().max_by_key(|(owner, _)| (self.count(owner), Reverse(*owner)));
        if let Some((owner, lease)) = most_loaded
            && count < target
            && self.count(owner) >= count.max(owned) + 2
        {
            self.shift(owner, self.me);
            self.moves.push(Move::Steal(lease.token.clone()));
        }
    }

    fn should_give(&self, owner: &str, taker: &str, targets: &BTreeMap<&str, usize>) -> bool {
        if taker == self.me && self.count(taker) >= self.most {
            return false;
        }
        if self.greedy {
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

fn future_owner<'a>(lease: &'a LeaseView, me: &str) -> Option<&'a str> {
    let owner = lease.live_owner(me).filter(|_| lease.available)?;
    Some(lease.requested_by.as_deref().unwrap_or(owner))
}

fn is_free(lease: &LeaseView, me: &str) -> bool {
    lease.available && lease.live_owner(me).is_none()
}

fn is_requestable(lease: &LeaseView, me: &str) -> bool {
    let owner = lease.live_owner(me);
    lease.available
        && lease.answers_requests
        && owner != Some(me)
        && lease.requested_by.as_deref().is_none_or(|to| owner == Some(to))
}
