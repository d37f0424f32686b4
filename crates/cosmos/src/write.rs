//! Writes: one item, or several under one partition key together.

use azure_core::http::Etag;
use azure_data_cosmos::{
    TransactionalBatch,
    models::{ItemResponse, TransactionalBatchOperationResult},
    options::{
        BatchDeleteOptions, BatchOptions, BatchReplaceOptions, BatchUpsertOptions, ItemWriteOptions, Precondition,
    },
};
use bytes::Bytes;
use changefeed_core::{
    Batch, ETag, Error, ErrorKind, ItemId, Lsn, PartitionKey, Response, Result, Timestamp, Write, WriteResult,
};
use serde_json::value::RawValue;

use crate::{
    body::{self, Stored},
    container::CosmosContainer,
    error::{Call, refused},
    key,
    list::is_no_path,
};

/// Other writes of a batch that was not performed, because one of them was refused.
const FAILED_DEPENDENCY: u16 = 424;

/// A write that was found good.
struct Checked<'a> {
    id: ItemId,
    action: Action<'a>,
}

enum Action<'a> {
    Create(&'a RawValue),
    Upsert(&'a RawValue, Option<Precondition>),
    Replace(&'a RawValue, Option<Precondition>),
    Delete(Option<Precondition>),
}

impl CosmosContainer {
    pub(crate) async fn write_batch(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        let (partition_key, writes) = self.check(&batch)?;
        let partition_key = key::to_sdk(&partition_key)?;
        if let Some(account) = &self.leases {
            account.check().await?;
        }
        match writes.as_slice() {
            // A batch has its ids in the body.
            [write] if !is_no_path(&write.id) => {
                let written = self.write_one(partition_key, write, batch.return_items).await?;
                Ok(written.map(|written| vec![written]))
            }
            writes => self.write_many(partition_key, writes, batch.return_items).await,
        }
    }

    /// Checks all writes and finds their partition key.
    fn check<'a>(&self, batch: &'a Batch) -> Result<(PartitionKey, Vec<Checked<'a>>)> {
        let count = batch.writes.len();
        if !(1..=Batch::MAX_WRITES).contains(&count) {
            let message = format!("a batch has 1 to {} writes, this one has {count}", Batch::MAX_WRITES);
            return Err(Error::new(ErrorKind::BadBatch, message));
        }
        let given = batch.partition_key.clone().map(PartitionKey::or_undefined);
        if let Some(key) = &given {
            self.definition().epk(key)?;
        }
        let mut key = given.clone();
        let mut writes = Vec::with_capacity(count);
        for (index, write) in batch.writes.iter().enumerate() {
            let at = |error: Error| if count > 1 { error.with_operation(index) } else { error };
            let (write, own) = self.check_one(write).map_err(at)?;
            if let Some(own) = own {
                match &key {
                    Some(key) if *key == own => {}
                    Some(_) if given.is_some() => {
                        let message = format!("item {} has another partition key than the one given", write.id);
                        return Err(at(Error::new(ErrorKind::WrongPartitionKey, message)));
                    }
                    Some(_) => {
                        let message = "the items of a batch have several partition keys: write one batch for each";
                        return Err(Error::new(ErrorKind::BadBatch, message));
                    }
                    None => key = Some(own),
                }
            }
            writes.push(write);
        }
        let missing = || Error::new(ErrorKind::WrongPartitionKey, "a delete needs the partition key of its item");
        Ok((key.ok_or_else(missing)?, writes))
    }

    fn check_one<'a>(&self, write: &'a Write) -> Result<(Checked<'a>, Option<PartitionKey>)> {
        let checked = |body: &'a Bytes| {
            let body::Checked { id, partition_key, json } = body::check(body, self.definition())?;
            Ok::<_, Error>((id, Some(partition_key.or_undefined()), json))
        };
        let condition = |etag: &Option<ETag>| etag.as_ref().map(if_match);
        Ok(match write {
            Write::Create { body } => {
                let (id, key, json) = checked(body)?;
                (Checked { id, action: Action::Create(json) }, key)
            }
            Write::Upsert { body, if_match } => {
                let (id, key, json) = checked(body)?;
                (Checked { id, action: Action::Upsert(json, condition(if_match)) }, key)
            }
            Write::Replace { body, if_match } => {
                let (id, key, json) = checked(body)?;
                (Checked { id, action: Action::Replace(json, condition(if_match)) }, key)
            }
            Write::Delete { id, if_match } => {
                (Checked { id: id.clone(), action: Action::Delete(condition(if_match)) }, None)
            }
        })
    }

    async fn write_one(
        &self,
        partition_key: azure_data_cosmos::PartitionKey,
        write: &Checked<'_>,
        return_item: bool,
    ) -> Result<Response<WriteResult>> {
        let (id, budget) = (write.id.as_str(), &self.budgets.items);
        let options = |condition: &Option<Precondition>| {
            let options = ItemWriteOptions::default().with_operation_options(budget.operation());
            Some(match condition {
                Some(condition) => options.with_precondition(condition.clone()),
                None => options,
            })
        };
        let client = self.sdk();
        let sent = async {
            match &write.action {
                Action::Create(json) => client.create_item(partition_key, id, json, options(&None)).await,
                Action::Upsert(json, when) => client.upsert_item(partition_key, id, json, options(when)).await,
                Action::Replace(json, when) => client.replace_item(partition_key, id, json, options(when)).await,
                Action::Delete(when) => client.delete_item(partition_key, id, options(when)).await,
            }
        };
        let response = self.call(Call::Write, &format!("write item {} in", write.id), budget, sent).await?;
        self.written(write, response, return_item)
    }

    fn written(&self, write: &Checked<'_>, response: ItemResponse, return_item: bool) -> Result<Response<WriteResult>> {
        let charge = self.charge_of(Call::Write, &response.diagnostics())?;
        let created = u16::from(response.status().status_code()) == 201;
        let lsn = Lsn::new(response.headers().lsn().unwrap_or_default());
        let etag = response.headers().etag().map(|etag| ETag::new(etag.to_string())).transpose();
        let shown = match write.action {
            Action::Delete(_) => None,
            _ => Some(response.into_body().single().map_err(|error| unreadable(write, error))?),
        };
        let result = self.result(write, shown, etag.map_err(performed)?, lsn, created, return_item);
        Ok(Response::new(result.map_err(performed)?, charge))
    }

    fn result(
        &self,
        write: &Checked<'_>,
        shown: Option<Bytes>,
        etag: Option<ETag>,
        lsn: Lsn,
        created: bool,
        return_item: bool,
    ) -> Result<WriteResult> {
        let timestamp = match &shown {
            Some(body) => Stored::of(body)?.timestamp(),
            None => self.options.time().wall(),
        };
        let item = shown.filter(|_| return_item).map(|body| body::item(body, lsn)).transpose()?;
        let etag = etag.filter(|_| !matches!(write.action, Action::Delete(_)));
        Ok(WriteResult { id: write.id.clone(), etag, lsn, timestamp, created, item })
    }

    async fn write_many(
        &self,
        partition_key: azure_data_cosmos::PartitionKey,
        writes: &[Checked<'_>],
        return_items: bool,
    ) -> Result<Response<Vec<WriteResult>>> {
        let budget = &self.budgets.items;
        let batch = writes.iter().try_fold(TransactionalBatch::new(partition_key), add);
        let batch = batch.map_err(|error| refused(ErrorKind::BadJson, "a batch", error))?;
        let options = BatchOptions::default().with_operation_options(budget.operation());
        let doing = format!("write a batch of {} in", writes.len());
        let client = self.sdk();
        let sent = client.execute_transactional_batch(batch, Some(options));
        let response = self.call(Call::Write, &doing, budget, sent).await?;
        let charge = self.charge_of(Call::Write, &response.diagnostics())?;
        let lsn = Lsn::new(response.headers().lsn().unwrap_or_default());
        let answers = response.into_model().map_err(|error| {
            Error::new(ErrorKind::Corrupt, self.what(&doing)).with_source(error).with_unknown_effect()
        })?;
        let answers = answers.results();
        if let Some(refusal) = refusal(answers, writes) {
            return Err(refusal.with_request_charge(charge));
        }
        let results = writes.iter().zip(answers).map(|(write, answer)| {
            let shown = answer.resource_body().map(|body| Bytes::copy_from_slice(body.get().as_bytes()));
            let etag = answer.etag().map(|etag| ETag::new(etag.to_owned())).transpose()?;
            self.result(write, shown, etag, lsn, answer.status_code() == 201, return_items)
        });
        let mut results = results.collect::<Result<Vec<_>>>().map_err(performed)?;
        share_time(&mut results, writes);
        if results.len() != writes.len() {
            return Err(performed(Error::new(
                ErrorKind::Corrupt,
                "the service answered for some writes of a batch only",
            )));
        }
        Ok(Response::new(results, charge))
    }
}

/// A batch happens at one time, which the service tells for what it stored and not for what it deleted.
fn share_time(results: &mut [WriteResult], writes: &[Checked<'_>]) {
    let is_delete = |write: &Checked<'_>| matches!(write.action, Action::Delete(_));
    let told =
        writes.iter().zip(results.iter()).find(|(write, _)| !is_delete(write)).map(|(_, result)| result.timestamp);
    let Some(time): Option<Timestamp> = told else { return };
    for (_, result) in writes.iter().zip(results.iter_mut()).filter(|(write, _)| is_delete(write)) {
        result.timestamp = time;
    }
}

fn add(batch: TransactionalBatch, write: &Checked<'_>) -> azure_data_cosmos::Result<TransactionalBatch> {
    let id = write.id.as_str().to_owned();
    Ok(match &write.action {
        Action::Create(json) => batch.create_item(json)?,
        Action::Upsert(json, when) => {
            let options = when.clone().map(|when| BatchUpsertOptions::default().with_precondition(when));
            batch.upsert_item(json, options)?
        }
        Action::Replace(json, when) => {
            let options = when.clone().map(|when| BatchReplaceOptions::default().with_precondition(when));
            batch.replace_item(id, json, options)?
        }
        Action::Delete(when) => {
            let options = when.clone().map(|when| BatchDeleteOptions::default().with_precondition(when));
            batch.delete_item(id, options)
        }
    })
}

/// The write that made a batch fail.
fn refusal(answers: &[TransactionalBatchOperationResult], writes: &[Checked<'_>]) -> Option<Error> {
    let is_cause =
        |answer: &TransactionalBatchOperationResult| !answer.is_success() && answer.status_code() != FAILED_DEPENDENCY;
    let failed =
        answers.iter().position(is_cause).or_else(|| answers.iter().position(|answer| !answer.is_success()))?;
    let (answer, id) = (answers.get(failed)?, &writes.get(failed)?.id);
    let kind = match answer.status_code() {
        400 => ErrorKind::InvalidArgument,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::ItemNotFound,
        409 => ErrorKind::AlreadyExists,
        412 => ErrorKind::PreconditionFailed,
        413 => ErrorKind::TooLarge,
        429 => ErrorKind::Throttled,
        _ => ErrorKind::Unavailable,
    };
    let message = format!("write item {id} in a batch: the service answered {}", answer.status_code());
    let error = Error::new(kind, message).with_operation(failed);
    Some(match answer.retry_after() {
        Some(wait) if kind == ErrorKind::Throttled => error.with_retry_after(wait),
        _ => error,
    })
}

fn if_match(etag: &ETag) -> Precondition {
    Precondition::if_match(Etag::from(etag.as_str().to_owned()))
}

/// The write happened, but its answer cannot be read.
fn performed(error: Error) -> Error {
    error.with_unknown_effect()
}

fn unreadable(write: &Checked<'_>, error: azure_data_cosmos::CosmosError) -> Error {
    performed(
        Error::new(ErrorKind::Corrupt, format!("read the answer to the write of {}", write.id)).with_source(error),
    )
}
