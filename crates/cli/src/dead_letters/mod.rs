//! `changefeed dead-letters`: what could not be delivered, and what becomes of it.

mod count;
mod groups;
mod of_processor;

use changefeed::{DeadLetterDocument, DeadLetters, Redrive, Redriven};
use changefeed_core::{ErrorKind, PartitionKey};
use serde_json::json;

use self::groups::{Groups, count_of_letters, last_error};
pub(crate) use self::{count::LetterCount, of_processor::letters_of_item};
use crate::{
    args::{ContainerName, DeadLettersArgs, DeadLettersCommand, LettersArgs, LettersPlaceArgs, Moment},
    exit::{Error, Exit, Printed, Result, block_on, print, print_text},
    progress::Indicator,
    store::{Missing, Store},
    store_health::unless_stopped,
    tail::partition_key,
};

/// How many dead letters are read at once.
const PAGE: usize = 100;

/// Does what the arguments say.
pub(crate) fn dead_letters(args: &DeadLettersArgs) -> Result<Exit> {
    match &args.command {
        DeadLettersCommand::List { letters, json } => {
            on_those(letters, async |_, found| list(letters, &found, *json).await)
        }
        DeadLettersCommand::Show { place, id, json } => on(place, async |_, found| {
            let letter = found.get(id).await.map_err(|error| match error.kind() {
                ErrorKind::ItemNotFound => format!("{error}: `changefeed dead-letters list` shows their ids").into(),
                _ => Error::from(error),
            })?;
            let text = if *json { serde_json::to_string(&letter)? } else { serde_json::to_string_pretty(&letter)? };
            print(&format!("{text}\n"))?;
            Ok(Exit::Good)
        }),
        DeadLettersCommand::Redrive { letters, container, rate, overwrite, dry_run, json } => {
            on_those(letters, async |store, found| {
                let chosen = Chosen { rate: *rate, overwrite: *overwrite, dry_run: *dry_run };
                let redriven = redrive(store, letters, &found, container, chosen).await?;
                shown(&redriven, *dry_run, *json)
            })
        }
        DeadLettersCommand::Purge { letters, before, yes, json } => {
            on_those(letters, async |_, found| purge(letters, &found, *before, *yes, *json).await)
        }
    }
}

/// Works on the dead letters of the processor that the arguments name, or of all.
fn on_those(args: &LettersArgs, work: impl AsyncFnOnce(&Store, DeadLetters) -> Result<Exit>) -> Result<Exit> {
    on(&args.place, async |store, letters| {
        let letters = match &args.processor {
            Some(name) => letters.processor(name),
            None => letters,
        };
        work(store, letters).await
    })
}

fn on(args: &LettersPlaceArgs, work: impl AsyncFnOnce(&Store, DeadLetters) -> Result<Exit>) -> Result<Exit> {
    let store = Store::open(&args.store, Missing::Refused)?;
    block_on(async {
        let container = store.container(&args.dead_letters).await?;
        let exit = unless_stopped([&store], work(&store, DeadLetters::new(&container))).await?;
        drop(container);
        store.close().await?;
        Ok(exit)
    })
}

/// All dead letters that are meant, handed over one by one: there may be many.
async fn each(
    wanted: &Wanted<'_>,
    letters: &DeadLetters,
    mut take: impl AsyncFnMut(DeadLetterDocument) -> Result<Printed>,
) -> Result<()> {
    let mut after = None;
    let progress = Indicator::counting("dead letters read");
    loop {
        let page = letters.page(after.as_deref(), PAGE).await?;
        progress.inc(page.letters.len() as u64);
        for letter in page.letters.into_iter().filter(|letter| wanted.fits(letter)) {
            if take(letter).await? == Printed::NobodyReads {
                return Ok(());
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// What the arguments say about which dead letters are meant.
#[derive(Debug)]
struct Wanted<'a> {
    item: Option<&'a str>,
    key: Option<PartitionKey>,
    error: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    fn new(args: &'a LettersArgs) -> Result<Self> {
        let key = args.key.as_deref().map(partition_key).transpose()?;
        Ok(Self { item: args.item.as_deref(), key, error: args.error.as_deref() })
    }

    fn is_all(&self) -> bool {
        self.item.is_none() && self.key.is_none() && self.error.is_none()
    }

    fn fits(&self, letter: &DeadLetterDocument) -> bool {
        self.item.is_none_or(|item| letter.item_id == item)
            && self.key.as_ref().is_none_or(|key| letter.item_key.as_ref() == Some(key))
            && self.error.is_none_or(|error| last_error(letter).contains(error))
    }
}

async fn list(args: &LettersArgs, letters: &DeadLetters, json: bool) -> Result<Exit> {
    let mut groups = Groups::default();
    each(&Wanted::new(args)?, letters, async |letter| {
        if json {
            return print(&format!("{}\n", serde_json::to_string(&letter)?));
        }
        groups.add(&letter);
        Ok(Printed::Whole)
    })
    .await?;
    if !json {
        print_text(&groups.text())?;
    }
    Ok(Exit::Good)
}

/// How to redrive.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    rate: Option<f64>,
    overwrite: bool,
    dry_run: bool,
}

async fn redrive(
    store: &Store,
    args: &LettersArgs,
    letters: &DeadLetters,
    container: &ContainerName,
    chosen: Chosen,
) -> Result<Redriven> {
    let monitored = store.container(container).await?;
    let progress = Indicator::counting("dead letters");
    let mut redrive = letters.redrive().on_progress(move |done, total| {
        progress.set_total(total as u64);
        progress.set(done as u64);
    });
    if let Some(rate) = chosen.rate {
        redrive = redrive.per_second(rate);
    }
    if chosen.overwrite {
        redrive = redrive.overwrite();
    }
    if chosen.dry_run {
        redrive = redrive.dry_run();
    }
    let wanted = Wanted::new(args)?;
    if !wanted.is_all() {
        let mut ids = Vec::new();
        each(&wanted, letters, async |letter| {
            ids.push(letter.id);
            Ok(Printed::Whole)
        })
        .await?;
        // A redrive that names none means all.
        if ids.is_empty() {
            return Ok(Redriven::default());
        }
        redrive = ids.into_iter().fold(redrive, Redrive::letter);
    }
    Ok(redrive.to_container(&monitored).await?)
}

fn shown(redriven: &Redriven, dry_run: bool, json: bool) -> Result<Exit> {
    if json {
        print(&format!("{}\n", serde_json::to_string(redriven)?))?;
    } else {
        let verb = if dry_run { "would be written again" } else { "written again" };
        let done = count_of_letters(redriven.done.len() as u64);
        let mut text = match (redriven.done.len(), redriven.skipped.len()) {
            (0, 0) => "no dead letter matches: nothing was done\n".to_owned(),
            (_, 0) => format!("{done} {verb}\n"),
            (_, skipped) => format!("{done} {verb}, {skipped} not, and kept:\n"),
        };
        for skipped in &redriven.skipped {
            text.push_str(&format!("  item {}: {}\n    {}\n", skipped.item, skipped.reason, skipped.id));
        }
        print_text(&text)?;
    }
    Ok(if redriven.skipped.is_empty() { Exit::Good } else { Exit::Unhealthy })
}

async fn purge(
    args: &LettersArgs,
    letters: &DeadLetters,
    before: Option<Moment>,
    yes: bool,
    json: bool,
) -> Result<Exit> {
    let limit = match before {
        Some(Moment::Time(time)) => time.as_millis(),
        Some(Moment::Beginning) => return Err("--before beginning means none: pass a time, or '7d ago'".into()),
        Some(Moment::Now) | None => u64::MAX,
    };
    let mut ids = Vec::new();
    each(&Wanted::new(args)?, letters, async |letter| {
        if letter.failed_at < limit {
            ids.push(letter.id);
        }
        Ok(Printed::Whole)
    })
    .await?;
    let mut outcome = Ok(());
    if yes {
        (ids, outcome) = delete(letters, ids).await;
    }
    if json {
        print(&format!("{}\n", json!({ "deleted": yes, "ids": ids })))?;
    } else if yes {
        print_text(&format!("{} deleted\n", count_of_letters(ids.len() as u64)))?;
    } else {
        let count = count_of_letters(ids.len() as u64);
        print_text(&format!("{count} would be deleted for good: pass --yes to do it\n"))?;
    }
    // What was deleted before an error is gone: it is told as well.
    outcome.map(|()| Exit::Good)
}

/// Deletes letters; the ids of those that were deleted, also if that ended with an error. One that is gone was deleted or
/// written again by somebody else.
async fn delete(letters: &DeadLetters, ids: Vec<String>) -> (Vec<String>, Result<()>) {
    let progress = Indicator::of(ids.len() as u64, "dead letters");
    let mut deleted = Vec::with_capacity(ids.len());
    for id in ids {
        match letters.delete(&id).await {
            Ok(()) => deleted.push(id),
            Err(error) if error.kind() == ErrorKind::ItemNotFound => {}
            Err(error) => return (deleted, Err(error.into())),
        }
        progress.inc(1);
    }
    (deleted, Ok(()))
}
