//! How a host of the version before (a92fe1f) chooses and writes leases: it writes an epoch and a session but neither
//! `cf.owner` nor an expiration, requests leases from hosts that have more, and steals them if the owner does not
//! answer within half an expiration.

use std::collections::BTreeMap;

use changefeed_core::Item;
use serde_json::{Value, json};

use super::{Action, Neighbour, Seen};
use crate::checks::lease_document::{DocumentKey, LeaseDocument};

/// Leases as they are stored.
pub(super) fn leases(items: &[Item]) -> Vec<Seen> {
    let seen = |item: &Item| {
        let body = serde_json::from_slice(&item.body).ok()?;
        let document = LeaseDocument::parse(&item.body)?;
        Some(Seen { document, body, etag: Some(item.etag.clone()) })
    };
    items.iter().filter_map(seen).collect()
}

impl Neighbour {
    pub(super) fn previous_actions(&self, all: &[Seen]) -> Vec<Action> {
        let (now, expiration) = (self.now(), self.timing.expiration * 1000);
        let expired = |seen: &Seen| {
            let silent = self.observed.get(&seen.document.key).map_or(0, |(_, since)| now - since);
            seen.document.owner.is_none() || silent >= expiration
        };
        let usable = |seen: &Seen| self.is_usable(seen) && !seen.document.is_paused() && !seen.document.is_gone();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::from([(self.name.as_str(), 0)]);
        for seen in all.iter().filter(|seen| !expired(seen)) {
            *counts.entry(seen.document.owner.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let share = all.len().div_ceil(counts.len());
        let mine = counts.get(self.name.as_str()).copied().unwrap_or_default();
        let own = |seen: &Seen| seen.document.owner.as_deref() == Some(self.name.as_str());
        let running = |seen: &Seen| self.owned.contains_key(&seen.document.key);
        let take = |seen: &Seen| Action::Take(seen.document.key.clone());
        // Granted to this host, or left from before.
        let granted = all.iter().filter(|seen| own(seen) && !running(seen) && usable(seen)).map(take);
        let mut actions: Vec<Action> = granted.collect();
        let free = all.iter().filter(|seen| expired(seen) && usable(seen) && !running(seen) && !own(seen));
        actions.extend(free.take(share.saturating_sub(mine)).map(take));
        // Its own requests that were not answered.
        let overdue = |key: &DocumentKey| self.requests.get(key).is_some_and(|since| now - since >= expiration / 2);
        let requested = |seen: &&Seen| seen.document.requested_by() == Some(self.name.as_str());
        actions.extend(all.iter().filter(requested).filter(|seen| overdue(&seen.document.key)).map(take));
        let others = counts.iter().filter(|(owner, _)| **owner != self.name);
        if let Some((victim, count)) = others.max_by_key(|(_, count)| **count)
            && *count >= mine + 2
            && actions.is_empty()
            && !all.iter().any(|seen| requested(&seen))
        {
            let of_victim = |seen: &&Seen| {
                seen.document.owner.as_deref() == Some(*victim)
                    && usable(seen)
                    && seen.document.requested_by().is_none()
            };
            actions.extend(all.iter().find(of_victim).map(|seen| Action::Request(seen.document.key.clone())));
        }
        actions
    }

    /// What an acquisition writes besides the owner.
    pub(super) fn stamp_take(&self, body: &mut Value, before: &LeaseDocument) {
        let properties = &mut body["properties"];
        properties["cf.epoch"] = json!((before.epoch() + 1).to_string());
        properties["cf.session"] = json!(format!("{}-{}", self.name, before.epoch() + 1));
        properties.as_object_mut().map(|properties| properties.remove("cf.hand-over"));
    }

    /// Requests a lease from its owner.
    pub(super) async fn request(&mut self, seen: &Seen) {
        let mut body = seen.body.clone();
        body["properties"]["cf.hand-over"] = json!(self.name);
        let timestamp = body["timestamp"].clone();
        // A request is no renewal: the owner's timestamp stays.
        let bytes = bytes::Bytes::from(body.to_string());
        let Some(key) = self.item_key(&seen.document) else { return };
        let write = changefeed_core::Write::Replace { body: bytes, if_match: seen.etag.clone() };
        let batch = changefeed_core::Batch::single(Some(key.partition_key), write);
        // An earlier request says nothing about this one, whose answer may be lost.
        self.requests.insert(seen.document.key.clone(), self.now());
        if self.leases.backend().write(batch).await.is_ok() {
            self.sim.log(format_args!("{} requested {} ({timestamp})", self.name, seen.document.token));
        }
    }

    /// Grants a lease to the host that requested it.
    pub(super) async fn grant_if_requested(&mut self, key: &DocumentKey) {
        let requested = self.owned.get(key).and_then(|owned| owned.seen.document.requested_by().map(str::to_owned));
        if let Some(to) = requested.filter(|to| *to != self.name) {
            self.release(key, Some(&to)).await;
        }
    }
}

/// What a release or a grant writes besides the owner.
pub(super) fn stamp_release(body: &mut Value) {
    let epoch: u64 = body["properties"]["cf.epoch"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    body["properties"]["cf.epoch"] = json!((epoch + 1).to_string());
    if let Some(properties) = body["properties"].as_object_mut() {
        properties.remove("cf.session");
        properties.remove("cf.hand-over");
    }
}
