//! How a .NET host chooses leases: `spec/dotnet-cfp.md` §3.2. It judges expiry by `timestamp` and its wall clock, copies
//! `properties` verbatim, and knows neither requests nor pauses.

use std::collections::BTreeMap;

use super::{Action, Neighbour, Seen, timestamp};
use crate::scenario::Timing;

/// The default intervals of the .NET SDK.
pub(super) const TIMING: Timing = Timing { acquire: 13_000, renew: 17_000, expiration: 60_000 };

impl Neighbour {
    pub(super) fn dotnet_actions(&self, all: &[Seen]) -> Vec<Action> {
        let wall = self.wall();
        let expired = |seen: &Seen| {
            let written = seen.document.timestamp.as_deref().and_then(timestamp::parse).unwrap_or_default();
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
        let free = |seen: &&Seen| expired(seen) && self.is_usable(seen) && !self.owned.contains_key(&seen.document.key);
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
}
