//! Writing: all of a batch or nothing of it.

use changefeed_core::{
    Batch, ETag, Epk, Error, ErrorKind, Item, ItemId, Lsn, MAX_ITEM_BYTES, Operation, ResourceId, Result, Timestamp,
    Write, WriteResult,
};

use super::{
    Bug,
    body::Parsed,
    state::{State, Stored},
};

/// A write that was found well-formed.
enum Checked<'a> {
    Put { parsed: Parsed, how: How, if_match: Option<&'a ETag> },
    Delete { id: ItemId, if_match: Option<&'a ETag> },
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Create,
    Upsert,
    Replace,
}

/// When a batch is written, and where.
#[derive(Clone, Copy)]
struct Moment<'a> {
    epk: &'a Epk,
    lsn: Lsn,
    index: usize,
    now: Timestamp,
}

impl State {
    /// Performs a batch under the next LSN, or under one that was handed out before.
    pub(super) fn write(&mut self, batch: &Batch, now: Timestamp, reserved: Option<Lsn>) -> Result<Vec<WriteResult>> {
        self.expire(now);
        let mut draft = self.clone();
        match draft.apply(batch, now, reserved) {
            Ok(written) => {
                *self = draft;
                Ok(written)
            }
            Err(error) => {
                if self.has(Bug::KeepsHalfABatch) {
                    *self = draft;
                }
                if self.has(Bug::BurnsAnLsnOnErrors) {
                    self.lsn = self.lsn.next();
                }
                Err(error)
            }
        }
    }

    fn apply(&mut self, batch: &Batch, now: Timestamp, reserved: Option<Lsn>) -> Result<Vec<WriteResult>> {
        if batch.writes.is_empty() || batch.writes.len() > Batch::MAX_WRITES {
            let message = format!("a batch has 1 to {} writes, not {}", Batch::MAX_WRITES, batch.writes.len());
            return Err(Error::new(ErrorKind::BadBatch, message));
        }
        let checked = self.check(batch)?;
        let epk = self.key_of(batch, &checked)?;
        let mut written = Vec::new();
        for (index, write) in checked.iter().enumerate() {
            if index == 0 || self.has(Bug::OneLsnPerWrite) {
                self.lsn = reserved.unwrap_or(self.lsn.next()).max(self.lsn);
            }
            let lsn = reserved.unwrap_or(self.lsn);
            let result = self.one(write, Moment { epk: &epk, lsn, index, now });
            let mut result = result.map_err(|error| error.with_operation(index))?;
            result.item = result.item.filter(|_| batch.return_items);
            written.push(result);
        }
        Ok(written)
    }

    fn check<'a>(&self, batch: &'a Batch) -> Result<Vec<Checked<'a>>> {
        let limit = if self.has(Bug::AcceptsLargeItems) { usize::MAX } else { MAX_ITEM_BYTES };
        let check = |write: &'a Write| {
            let (body, how, if_match) = match write {
                Write::Create { body } => (body, How::Create, None),
                Write::Upsert { body, if_match } => (body, How::Upsert, if_match.as_ref()),
                Write::Replace { body, if_match } => (body, How::Replace, if_match.as_ref()),
                Write::Delete { id, if_match } => {
                    return Ok(Checked::Delete { id: id.clone(), if_match: if_match.as_ref() });
                }
            };
            Ok(Checked::Put { parsed: Parsed::new(body, &self.spec.partition_key, limit)?, how, if_match })
        };
        let numbered = batch.writes.iter().enumerate();
        numbered.map(|(index, write)| check(write).map_err(|error: Error| error.with_operation(index))).collect()
    }

    /// The one partition key of the batch.
    fn key_of(&self, batch: &Batch, checked: &[Checked<'_>]) -> Result<Epk> {
        let definition = &self.spec.partition_key;
        let given = batch.partition_key.as_ref().map(|key| definition.epk(key)).transpose()?;
        let mut found = None;
        for (index, write) in checked.iter().enumerate() {
            let Checked::Put { parsed, .. } = write else { continue };
            let epk = definition.epk(&parsed.key)?;
            match (&given, &found) {
                (Some(given), _) if *given != epk && !self.has(Bug::AcceptsAWrongPartitionKey) => {
                    let message = format!("item {} has another partition key than the request", parsed.id);
                    return Err(Error::new(ErrorKind::WrongPartitionKey, message).with_operation(index));
                }
                (None, Some(first)) if *first != epk => {
                    return Err(Error::new(ErrorKind::BadBatch, "a batch has one partition key").with_operation(index));
                }
                _ => found = Some(epk),
            }
        }
        given.or(found).ok_or_else(|| {
            Error::new(ErrorKind::WrongPartitionKey, "the partition key is missing: a delete does not tell it")
        })
    }

    fn one(&mut self, write: &Checked<'_>, moment: Moment<'_>) -> Result<WriteResult> {
        match write {
            Checked::Put { parsed, how, if_match } => self.put(parsed, *how, *if_match, moment),
            Checked::Delete { id, if_match } => self.delete(id, *if_match, moment),
        }
    }

    fn put(&mut self, parsed: &Parsed, how: How, if_match: Option<&ETag>, moment: Moment<'_>) -> Result<WriteResult> {
        let place = self.place(moment.epk, &parsed.id);
        let old = self.items.get(&place).cloned();
        match (&old, how) {
            (Some(_), How::Create) if !self.has(Bug::CreatesOverExistingItems) => {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("item {} exists already", parsed.id)));
            }
            (None, How::Replace) => return Err(not_found(&parsed.id)),
            (None, How::Upsert) if if_match.is_some() && self.has(Bug::EtagMustMatchSomething) => {
                return Err(not_found(&parsed.id));
            }
            (Some(old), _) if !self.has(Bug::IgnoresIfMatch) => check_etag(old, if_match)?,
            _ => {}
        }
        let mut parsed = parsed.clone();
        if let Some(old) = old.as_ref().filter(|_| self.has(Bug::MergesBodies)) {
            parsed.merge(&old.item.body);
        }
        let rid = old.as_ref().map(|old| old.item.rid).filter(|_| !self.has(Bug::NewResourceIdAtEveryWrite));
        let item = self.new_item(&parsed, rid, moment)?;
        let operation = if old.is_some() { Operation::Replace } else { Operation::Create };
        let images = (Some(&item), old.as_ref().map(|old| &old.item));
        self.record(&place, operation, images, (moment.lsn, moment.index), moment.now);
        let mut stored = Stored {
            item: item.clone(),
            order: (moment.lsn, moment.index),
            expires: self.expires(parsed.ttl, moment.now),
        };
        if let Some(old) = &old {
            if self.has(Bug::KeepsThePlaceOfRewrittenItems) {
                (stored.order, stored.item.lsn) = (old.order, old.item.lsn);
            }
            if self.has(Bug::RewritingDoesNotProlongLife) {
                stored.expires = old.expires;
            }
        }
        self.items.insert(place, stored);
        Ok(WriteResult {
            id: parsed.id.clone(),
            etag: Some(item.etag.clone()),
            lsn: moment.lsn,
            timestamp: moment.now,
            created: old.is_none(),
            item: Some(item),
        })
    }

    fn delete(&mut self, id: &ItemId, if_match: Option<&ETag>, moment: Moment<'_>) -> Result<WriteResult> {
        let place = self.place(moment.epk, id);
        let old = self.items.get(&place).cloned().ok_or_else(|| not_found(id))?;
        if !self.has(Bug::IgnoresIfMatch) && !self.has(Bug::IgnoresIfMatchOfDeletes) {
            check_etag(&old, if_match)?;
        }
        if !self.has(Bug::ShowsDeletedItems) {
            self.items.remove(&place);
        }
        self.record(&place, Operation::Delete, (None, Some(&old.item)), (moment.lsn, moment.index), moment.now);
        let (id, lsn, timestamp) = (id.clone(), moment.lsn, moment.now);
        Ok(WriteResult { id, etag: None, lsn, timestamp, created: false, item: None })
    }

    fn new_item(&mut self, parsed: &Parsed, rid: Option<ResourceId>, moment: Moment<'_>) -> Result<Item> {
        self.counter += 1;
        let version = if self.has(Bug::OneEtagPerBatch) { moment.lsn.get() } else { self.counter };
        let etag = ETag::new(format!("\"model-{version}\""))?;
        let container = self.rid.container_number().unwrap_or_default();
        let rid = match rid {
            Some(rid) => rid,
            None => ResourceId::document(self.rid.database_number(), container, self.counter)?,
        };
        let body = parsed.stored(&etag, &rid, moment.now, self.bug);
        Ok(Item { id: parsed.id.clone(), etag, timestamp: moment.now, lsn: moment.lsn, rid, body })
    }

    /// Where the item lives.
    pub(super) fn place(&self, epk: &Epk, id: &ItemId) -> (Epk, ItemId) {
        let blind = self.has(Bug::IgnoresPartitionKeys);
        let there = blind.then(|| self.items.keys().find(|(_, other)| other == id).cloned()).flatten();
        there.unwrap_or_else(|| (epk.clone(), id.clone()))
    }
}

fn check_etag(old: &Stored, wanted: Option<&ETag>) -> Result<()> {
    match wanted {
        Some(wanted) if *wanted != old.item.etag => {
            let message = format!("item {} has the etag {}, not {wanted}", old.item.id, old.item.etag);
            Err(Error::new(ErrorKind::PreconditionFailed, message))
        }
        _ => Ok(()),
    }
}

pub(super) fn not_found(id: &ItemId) -> Error {
    Error::new(ErrorKind::ItemNotFound, format!("there is no item {id} under this partition key"))
}
