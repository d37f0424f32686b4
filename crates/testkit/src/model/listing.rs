//! Listing and reading items.

use changefeed_core::{Epk, Error, ErrorKind, Item, ItemId, ItemKey, ItemPage, ListItems, Result, Timestamp};

use super::{
    Bug, body,
    state::{Place, State},
    write::not_found,
};

impl State {
    pub(super) fn get(&mut self, key: &ItemKey, now: Timestamp) -> Result<Item> {
        self.expire(now);
        let epk = self.spec.partition_key.epk(&key.partition_key)?;
        let place = self.place(&epk, &key.id);
        let stored = self.items.get(&place).ok_or_else(|| not_found(&key.id))?;
        let mut item = stored.item.clone();
        if self.has(Bug::ShowsTheLsnInReads) {
            item.body = body::with_lsn(&item.body, item.lsn);
        }
        Ok(item)
    }

    pub(super) fn list(&mut self, request: &ListItems, now: Timestamp) -> Result<ItemPage> {
        self.expire(now);
        if request.max_items == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_items is 0: ask for at least one item"));
        }
        let after = request.after.as_deref().map(place_of).transpose()?;
        let mut found = self.items.iter().filter(|(place, stored)| {
            let (epk, id) = place;
            request.range.contains(epk)
                && id.starts_with(&request.id_prefix)
                && request.rid.is_none_or(|rid| rid == stored.item.rid)
                && after.as_ref().is_none_or(|after| *place > after)
        });
        let mut page: Vec<_> = found.by_ref().take(request.max_items).collect();
        let more = found.next().is_some();
        let cursor = |(epk, id): &Place| format!("{epk}/{id}");
        let next = page.last().filter(|_| more).map(|(place, _)| cursor(place));
        if more && page.len() > 1 && self.has(Bug::ListingDropsTheItemAtThePageEdge) {
            page.pop();
        }
        let mut cursors: Vec<String> =
            page.iter().filter(|_| request.cursors).map(|(place, _)| cursor(place)).collect();
        if self.has(Bug::CursorsAreThoseOfThePage)
            && let Some(last) = cursors.last().cloned()
        {
            cursors.fill(last);
        }
        Ok(ItemPage { items: page.into_iter().map(|(_, stored)| stored.item.clone()).collect(), cursors, next })
    }
}

/// Reads `next` of a page back.
fn place_of(text: &str) -> Result<Place> {
    let bad = || Error::new(ErrorKind::BadContinuation, format!("{text:?} is not where a listing of this store ended"));
    let (epk, id) = text.split_once('/').ok_or_else(bad)?;
    let epk: Epk = epk.parse().map_err(|_| bad())?;
    let id = ItemId::new(id).map_err(|_| bad())?;
    Ok((epk, id))
}
