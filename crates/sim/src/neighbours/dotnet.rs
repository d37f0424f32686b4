//! How a .NET host chooses leases: `spec/dotnet-cfp.md` §3.2. It judges expiry by `timestamp` and its wall clock, copies
//! `properties` verbatim, and knows neither requests nor pauses nor tombstones. How it writes leases is in `update`, how it
//! replaces them after splits and merges in `split`.

mod lease;
mod split;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use changefeed_core::{FeedRange, Item};

use super::{Action, Neighbour, Owned, Seen, timestamp};
use crate::scenario::Timing;

/// The default intervals of the .NET SDK.
pub(super) const TIMING: Timing = Timing { acquire: 13_000, renew: 17_000, expiration: 60_000 };

impl Neighbour {
    /// Leases as its class holds them; none at all if two have one token, on which its balancing fails.
    pub(super) fn dotnet_leases(&self, items: &[Item]) -> Option<Vec<Seen>> {
        let leases: Vec<Seen> = items.iter().filter_map(Seen::of_class).collect();
        let tokens: BTreeSet<&str> = leases.iter().map(|seen| seen.document.token.as_str()).collect();
        (tokens.len() == leases.len()).then_some(leases)
    }

    pub(super) fn dotnet_actions(&self, all: &[Seen]) -> Vec<Action> {
        let wall = self.wall();
        let expired = |seen: &Seen| {
            let noted = seen.document.timestamp.as_deref().and_then(timestamp::parse);
            let written = noted.unwrap_or_else(|| seen.body["_ts"].as_u64().unwrap_or_default() * 1000);
            seen.document.owner.is_none() || written + TIMING.expiration < wall
        };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::from([(self.name.as_str(), 0)]);
        for seen in all.iter().filter(|seen| !expired(seen)) {
            *counts.entry(seen.document.owner.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let (leases, hosts) = (all.len(), counts.len());
        let target = if leases > hosts { leases.div_ceil(hosts) } else { 1 };
        let mine = counts.get(self.name.as_str()).copied().unwrap_or_default();
        let need = target.saturating_sub(mine);
        let take = |seen: &Seen| Action::Take(seen.document.key.clone());
        // Its own that have expired are written again.
        let free = |seen: &&Seen| expired(seen) && self.is_usable(seen);
        let found: Vec<Action> = all.iter().filter(free).take(need).map(take).collect();
        if need == 0 || !found.is_empty() {
            return found;
        }
        let others = counts.iter().filter(|(owner, _)| **owner != self.name);
        let Some((victim, count)) = others.max_by_key(|(_, count)| **count) else { return Vec::new() };
        if *count <= target - usize::from(need > 1) {
            return Vec::new();
        }
        let of_victim = |seen: &&Seen| seen.document.owner.as_deref() == Some(*victim) && self.is_usable(seen);
        all.iter().find(of_victim).map(take).into_iter().collect()
    }

    /// Acquires a lease and begins to work on it.
    pub(super) async fn dotnet_take(&mut self, seen: &Seen) {
        if self.owned.contains_key(&seen.document.key) {
            return self.dotnet_update_properties(seen).await;
        }
        if let Some(acquired) = self.dotnet_acquire(seen).await {
            self.own(acquired);
        }
    }

    /// Begins to work on a lease that it has acquired.
    fn own(&mut self, seen: Seen) {
        let position = seen.document.continuation.clone();
        let (now, key) = (self.now(), seen.document.key.clone());
        // The first renewal comes after half an interval.
        let renewed = now.saturating_sub(TIMING.renew * 500);
        self.owned.insert(key, Owned { seen, range: None, position, renewed, polls_at: now });
    }

    /// The keys that it reads for a lease: a physical range by its id, or the range in the document; none if it is gone.
    pub(super) async fn dotnet_range(&self, seen: &Seen) -> Option<FeedRange> {
        match seen.is_version_1() {
            true => seen.feed_range(),
            false => self.physical_range(&seen.document.token).await,
        }
    }
}
