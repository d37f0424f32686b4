//! Redriving: sending dead letters on their way again.

use std::{collections::BTreeSet, fmt, future::Future, sync::Arc, time::Duration};

use changefeed_core::{Batch, Change, Container, Error, ErrorKind, Item, ItemKey, Operation, Result, Write};
use serde::{Deserialize, Serialize};

use super::list::DeadLetters;
use crate::{dead_letter_document::DeadLetterDocument, delegate::DelegateError};

/// Dead letters about to be delivered again, oldest change first; from [`DeadLetters::redrive`].
///
/// ```
/// use changefeed::{DeadLetters, core::{Container, Result}};
///
/// # async fn example(rejected: &Container, orders: &Container) -> Result<()> {
/// let redrive = DeadLetters::new(rejected).processor("mailer").redrive().limit(100).per_second(10.0);
/// let plan = redrive.clone().dry_run().to_container(orders).await?;
/// println!("{} items would be written again", plan.done.len());
/// for skipped in redrive.to_container(orders).await?.skipped {
///     println!("item {} stays a dead letter: {}", skipped.item, skipped.reason);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `to_container` or `to_delegate`"]
pub struct Redrive {
    letters: DeadLetters,
    only: BTreeSet<String>,
    limit: usize,
    pause: Duration,
    dry_run: bool,
    overwrite: bool,
    on_progress: OnProgress,
}

/// Called with how many letters are done, and of how many.
#[derive(Clone)]
struct OnProgress(Arc<dyn Fn(usize, usize) + Send + Sync>);

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

/// What became of a redrive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redriven {
    /// Letters that went their way and were deleted, by id; in a dry run, those that would have.
    pub done: Vec<String>,
    /// Letters that stayed.
    pub skipped: Vec<Skipped>,
}

/// A letter that was not redriven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// The letter.
    pub id: String,
    /// The item's id.
    pub item: String,
    /// Why.
    pub reason: String,
}

impl DeadLetters {
    /// Begins to send letters on their way again.
    pub fn redrive(&self) -> Redrive {
        Redrive::new(self.clone())
    }
}

impl Redrive {
    fn new(letters: DeadLetters) -> Self {
        let (only, pause) = (BTreeSet::new(), Duration::ZERO);
        let on_progress = OnProgress(Arc::new(|_, _| {}));
        Self { letters, only, limit: usize::MAX, pause, dry_run: false, overwrite: false, on_progress }
    }

    /// Selects this letter, and others named so. Default: all.
    pub fn letter(mut self, id: impl Into<String>) -> Self {
        self.only.insert(id.into());
        self
    }

    /// Sets the maximum number of letters. Default: no limit.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the maximum number of letters per second; a value that is not a positive number means no limit. Default: no
    /// limit.
    pub fn per_second(mut self, rate: f64) -> Self {
        self.pause = Duration::try_from_secs_f64(1.0 / rate).unwrap_or_default();
        self
    }

    /// Reports only what would happen: nothing is written, and no delegate is called. Default: off.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Writes a letter's item even if the item has changed or was deleted since: the letter's version then becomes
    /// the newest. Default: such letters are kept.
    pub fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }

    /// Calls `report` before each letter and at the end, with how many letters were gone through and how many were chosen.
    /// Default: no report.
    pub fn on_progress(mut self, report: impl Fn(usize, usize) + Send + Sync + 'static) -> Self {
        self.on_progress = OnProgress(Arc::new(report));
        self
    }

    /// Writes the items back into the container they came from, so that they appear in its feed once more, for all
    /// processors. Letters of deletes cannot be written.
    ///
    /// # Errors
    /// Those of the dead-letter container; what is wrong with single items is part of the result.
    pub async fn to_container(self, monitored: &Container) -> Result<Redriven> {
        let mut result = Redriven::default();
        let chosen = self.chosen().await?;
        let total = chosen.len();
        for (index, id) in chosen.into_iter().enumerate() {
            self.begin(index, total).await;
            let Some((letter, item)) = self.find(&id).await? else { continue };
            match self.write_back(&letter, monitored).await {
                Ok(()) => {
                    self.finish(&item).await?;
                    result.done.push(id);
                }
                Err(error) => result.keep(&letter, error.to_string()),
            }
        }
        (self.on_progress.0)(total, total);
        Ok(result)
    }

    /// Gives the changes to a delegate, one by one. A letter whose change was handled is deleted; otherwise it stays,
    /// with one attempt more and the new error.
    ///
    /// # Errors
    /// Those of the dead-letter container; failures of the delegate are part of the result.
    pub async fn to_delegate<F, Fut>(self, mut delegate: F) -> Result<Redriven>
    where
        F: FnMut(Change) -> Fut,
        Fut: Future<Output = Result<(), DelegateError>>,
    {
        let mut result = Redriven::default();
        let chosen = self.chosen().await?;
        let total = chosen.len();
        for (index, id) in chosen.into_iter().enumerate() {
            self.begin(index, total).await;
            let Some((letter, item)) = self.find(&id).await? else { continue };
            let change = match letter.change() {
                Ok(change) => change,
                Err(error) => {
                    result.keep(&letter, error.to_string());
                    continue;
                }
            };
            if self.dry_run {
                result.done.push(id);
                continue;
            }
            match delegate(change).await {
                Ok(()) => {
                    self.finish(&item).await?;
                    result.done.push(id);
                }
                Err(error) => {
                    self.failed(&letter, &item, &error).await?;
                    result.keep(&letter, format!("{error:?}"));
                }
            }
        }
        (self.on_progress.0)(total, total);
        Ok(result)
    }

    async fn chosen(&self) -> Result<Vec<String>> {
        let mut ids = self.letters.in_order().await?;
        let known: BTreeSet<&String> = ids.iter().collect();
        if let Some(id) = self.only.iter().find(|id| !known.contains(id)) {
            return Err(Error::new(ErrorKind::ItemNotFound, format!("there is no dead letter {id}")));
        }
        ids.retain(|id| self.only.is_empty() || self.only.contains(id));
        ids.truncate(self.limit);
        Ok(ids)
    }

    /// Reports progress, and waits as the rate asks for.
    async fn begin(&self, index: usize, total: usize) {
        (self.on_progress.0)(index, total);
        if index > 0 && !self.pause.is_zero() && !self.dry_run {
            self.letters.clock().sleep(self.pause).await;
        }
    }

    /// Reads a dead letter. Ignores dead letters that were deleted meanwhile.
    async fn find(&self, id: &str) -> Result<Option<(DeadLetterDocument, Item)>> {
        match self.letters.find(id).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the item, but only over the version that the letter is about.
    async fn write_back(&self, letter: &DeadLetterDocument, monitored: &Container) -> Result<()> {
        let refuse = |kind, message: String| Err(Error::new(kind, message));
        let identity = monitored.identity();
        if !letter.container.is_empty() && letter.container != identity.container.to_string() {
            let (from, name) = (&letter.container, &identity.container_name);
            return refuse(ErrorKind::InvalidArgument, format!("it comes from container {from}, not from {name}"));
        }
        let change = letter.change()?;
        let (Some(body), Operation::Write | Operation::Create | Operation::Replace) =
            (change.current, change.operation)
        else {
            return refuse(
                ErrorKind::Unsupported,
                "a delete cannot be written back: redrive it to a delegate".to_owned(),
            );
        };
        let key = ItemKey::new(identity.partition_key.extract(&body)?, change.id);
        let if_match = match monitored.backend().read_item(&key).await {
            Ok(item) if is_newer(&item, letter) && !self.overwrite => {
                let message = "the item has changed since: overwrite it, or throw the letter away".to_owned();
                return refuse(ErrorKind::PreconditionFailed, message);
            }
            Ok(item) => Some(item.into_value().etag),
            Err(error) if error.kind() == ErrorKind::ItemNotFound && self.overwrite => None,
            Err(error) if error.kind() == ErrorKind::ItemNotFound => {
                let message = "the item was deleted since: overwrite it, or throw the letter away".to_owned();
                return refuse(ErrorKind::PreconditionFailed, message);
            }
            Err(error) => return Err(error),
        };
        if self.dry_run {
            return Ok(());
        }
        let write = Write::Upsert { body, if_match };
        monitored.backend().write(Batch::single(Some(key.partition_key), write)).await.map(drop)
    }

    async fn finish(&self, item: &Item) -> Result<()> {
        if self.dry_run {
            return Ok(());
        }
        match self.letters.delete_item(item).await {
            Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(()),
            // It was dead-lettered again meanwhile, or somebody else redrives it: it stays.
            Err(error) if error.kind() == ErrorKind::PreconditionFailed => Ok(()),
            other => other,
        }
    }

    async fn failed(&self, letter: &DeadLetterDocument, item: &Item, error: &DelegateError) -> Result<()> {
        let mut letter = letter.clone();
        letter.attempts = letter.attempts.saturating_add(1);
        letter.errors = error.chain().collect();
        letter.failed_at = self.letters.clock().wall().as_millis();
        let write = Write::Replace { body: letter.to_body()?, if_match: Some(item.etag.clone()) };
        match self.letters.container().backend().write(Batch::single(None, write)).await {
            Err(error) if [ErrorKind::ItemNotFound, ErrorKind::PreconditionFailed].contains(&error.kind()) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Redriven {
    fn keep(&mut self, letter: &DeadLetterDocument, reason: String) {
        self.skipped.push(Skipped { id: letter.id.clone(), item: letter.item_id.clone(), reason });
    }
}

/// Whether the item is at another version than the one that failed.
fn is_newer(item: &Item, letter: &DeadLetterDocument) -> bool {
    #[derive(Deserialize)]
    struct Stamp {
        _etag: Option<String>,
    }
    let stamp = letter.current.as_deref().and_then(|body| serde_json::from_str::<Stamp>(body.get()).ok());
    match stamp.and_then(|stamp| stamp._etag) {
        Some(etag) => etag != item.etag.as_str(),
        None => item.lsn.get() > letter.lsn,
    }
}
