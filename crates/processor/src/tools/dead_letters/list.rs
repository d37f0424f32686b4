//! Looking at dead letters.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{Container, Error, ErrorKind, Item, ListItems, Result, Timestamp};
use serde::Serialize;

use crate::{
    dead_letter_document::DeadLetterDocument,
    runtime::{Runtime, TokioRuntime},
};

/// How many letters are read at once while all are gone through: each may be as large as an item.
const PAGE: usize = 100;

/// The dead letters in a container. Cheap to clone.
///
/// ```
/// use changefeed::{DeadLetters, core::{Container, Result}};
///
/// # async fn example(rejected: &Container, orders: &Container) -> Result<()> {
/// let letters = DeadLetters::new(rejected).processor("mailer");
/// for letter in letters.list().await? {
///     println!("{} failed {} times: {:?}", letter.item_id, letter.attempts, letter.errors);
/// }
/// // The bug is fixed: write the items again, ten a second.
/// let redriven = letters.redrive().per_second(10.0).to_container(orders).await?;
/// println!("{} sent, {} skipped", redriven.done.len(), redriven.skipped.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DeadLetters {
    container: Container,
    processor: Option<String>,
    runtime: Option<Arc<dyn Runtime>>,
}

/// Some dead letters.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct DeadLetterPage {
    /// The letters, in an order that stays the same from page to page.
    pub letters: Vec<DeadLetterDocument>,
    /// Items of the container that are not dead letters, by id.
    pub unrecognised: Vec<String>,
    /// Where to go on; none if this was the last page.
    pub next: Option<String>,
}

/// How many dead letters there are, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadLetterSummary {
    /// All of them.
    pub total: u64,
    /// By processor.
    pub by_processor: BTreeMap<String, u64>,
    /// By the outermost error.
    pub by_error: BTreeMap<String, u64>,
    /// When the first of them failed.
    pub oldest: Option<Timestamp>,
    /// When the last of them failed.
    pub newest: Option<Timestamp>,
}

impl DeadLetters {
    /// Selects the dead letters of all processors in `container`.
    pub fn new(container: &Container) -> Self {
        Self { container: container.clone(), processor: None, runtime: None }
    }

    /// Selects only those of this processor. Default: all.
    #[must_use]
    pub fn processor(mut self, name: impl Into<String>) -> Self {
        self.processor = Some(name.into());
        self
    }

    /// Sets where time comes from: for simulations. Default: tokio and the operating system.
    #[doc(hidden)]
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Returns some letters, after those of an earlier page. Filtering may leave a page short or empty: it is the last
    /// one only if it has no `next`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn page(&self, after: Option<&str>, max_items: usize) -> Result<DeadLetterPage> {
        let (items, next) = self.items(after, max_items).await?;
        let mut page = DeadLetterPage { next, ..DeadLetterPage::default() };
        for item in items {
            match item.parse::<DeadLetterDocument>() {
                Ok(letter) if self.wants(&letter) => page.letters.push(letter),
                Ok(_) => {}
                Err(_) => page.unrecognised.push(item.id.to_string()),
            }
        }
        Ok(page)
    }

    /// Returns all letters, read page by page into memory.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(&self) -> Result<Vec<DeadLetterDocument>> {
        let mut letters = Vec::new();
        let mut after = None;
        loop {
            let page = self.page(after.as_deref(), PAGE).await?;
            letters.extend(page.letters);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(letters),
            }
        }
    }

    /// Returns one letter.
    ///
    /// # Errors
    /// `ItemNotFound` if there is none with this id, and those of the store.
    pub async fn get(&self, id: &str) -> Result<DeadLetterDocument> {
        self.find(id).await.map(|(letter, _)| letter)
    }

    /// Throws one letter away.
    ///
    /// # Errors
    /// `ItemNotFound` if there is none with this id, and those of the store.
    pub async fn delete(&self, id: &str) -> Result<()> {
        let (_, item) = self.find(id).await?;
        self.delete_item(&item).await
    }

    /// Counts them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn summary(&self) -> Result<DeadLetterSummary> {
        let mut summary = DeadLetterSummary::default();
        let mut after = None;
        loop {
            let page = self.page(after.as_deref(), PAGE).await?;
            for letter in &page.letters {
                summary.add(letter);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(summary),
            }
        }
    }

    pub(super) fn container(&self) -> &Container {
        &self.container
    }

    pub(super) fn clock(&self) -> Arc<dyn Runtime> {
        self.runtime.clone().unwrap_or_else(TokioRuntime::new)
    }

    /// The ids of all letters, oldest change first: the order in which the delegate would have got them.
    pub(super) async fn in_order(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = self.page(after.as_deref(), PAGE).await?;
            // By time first: LSNs of different ranges cannot be compared.
            found.extend(page.letters.into_iter().map(|letter| (letter.changed_at, letter.lsn, letter.id)));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, _, id)| id).collect())
    }

    /// One letter and the item it is stored as.
    pub(super) async fn find(&self, id: &str) -> Result<(DeadLetterDocument, Item)> {
        let mut request = ListItems { id_prefix: id.to_owned(), ..ListItems::default() };
        loop {
            // By prefix, because the container may have any partition key.
            let page = self.container.backend().list_items(request.clone()).await?.into_value();
            if let Some(item) = page.items.into_iter().find(|item| item.id.as_str() == id) {
                let letter = item.parse::<DeadLetterDocument>()?;
                if self.wants(&letter) {
                    return Ok((letter, item));
                }
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Err(Error::new(ErrorKind::ItemNotFound, format!("there is no dead letter {id}"))),
            }
        }
    }

    pub(super) async fn delete_item(&self, item: &Item) -> Result<()> {
        let key = self.container.identity().partition_key.extract(&item.body)?;
        self.container.delete_if(key, &item.id, &item.etag).await
    }

    fn wants(&self, letter: &DeadLetterDocument) -> bool {
        self.processor.as_ref().is_none_or(|name| *name == letter.processor)
    }

    async fn items(&self, after: Option<&str>, max_items: usize) -> Result<(Vec<Item>, Option<String>)> {
        let id_prefix = self.processor.as_ref().map(|name| format!("{name}.")).unwrap_or_default();
        let after = after.map(str::to_owned);
        let request = ListItems { id_prefix, after, max_items, ..ListItems::default() };
        let page = self.container.backend().list_items(request).await?.into_value();
        Ok((page.items, page.next))
    }
}

impl DeadLetterSummary {
    fn add(&mut self, letter: &DeadLetterDocument) {
        let failed_at = Timestamp::from_millis(letter.failed_at);
        let error = letter.errors.first().cloned().unwrap_or_default();
        self.total += 1;
        *self.by_processor.entry(letter.processor.clone()).or_default() += 1;
        *self.by_error.entry(error).or_default() += 1;
        self.oldest = self.oldest.into_iter().chain([failed_at]).min();
        self.newest = self.newest.into_iter().chain([failed_at]).max();
    }
}
