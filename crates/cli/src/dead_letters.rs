//! `changefeed dead-letters`: what could not be delivered, and what becomes of it.

use std::{collections::BTreeMap, time::Duration};

use changefeed::{DeadLetterDocument, DeadLetters, Redriven};
use changefeed_core::Timestamp;
use serde_json::json;

use crate::{
    args::{ContainerName, DeadLettersArgs, DeadLettersCommand, LettersArgs, Moment},
    change_line::time,
    clock,
    exit::{Exit, Printed, Result, block_on, print},
    store::{Missing, Store},
};

/// How many dead letters are read at once.
const PAGE: usize = 100;

/// How many of a group are listed for people.
const LISTED: usize = 10;

/// Does what the arguments say.
pub(crate) fn dead_letters(args: &DeadLettersArgs) -> Result<Exit> {
    match &args.command {
        DeadLettersCommand::List { letters, json } => on(letters, async |_, found| list(letters, &found, *json).await),
        DeadLettersCommand::Show { letters, id } => on(letters, async |_, found| {
            let letter = found.get(id).await?;
            print(&format!("{}\n", serde_json::to_string_pretty(&letter)?))?;
            Ok(Exit::Good)
        }),
        DeadLettersCommand::Redrive { letters, container, rate, overwrite, dry_run, json } => {
            on(letters, async |store, found| {
                let chosen = Chosen { rate: *rate, overwrite: *overwrite, dry_run: *dry_run };
                let redriven = redrive(store, letters, &found, container, chosen).await?;
                shown(&redriven, *dry_run, *json)
            })
        }
        DeadLettersCommand::Purge { letters, before, yes, json } => {
            on(letters, async |_, found| purge(letters, &found, *before, *yes, *json).await)
        }
    }
}

fn on(args: &LettersArgs, work: impl AsyncFnOnce(&Store, DeadLetters) -> Result<Exit>) -> Result<Exit> {
    let store = Store::open(&args.store, Missing::Refused)?;
    block_on(async {
        let container = store.container(&args.dead_letters).await?;
        let mut letters = DeadLetters::new(&container);
        if let Some(name) = &args.processor {
            letters = letters.processor(name);
        }
        let exit = work(&store, letters).await?;
        drop(container);
        store.close().await?;
        Ok(exit)
    })
}

/// All dead letters that are meant, handed over one by one: there may be many.
async fn each(
    args: &LettersArgs,
    letters: &DeadLetters,
    mut take: impl AsyncFnMut(DeadLetterDocument) -> Result<Printed>,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = letters.page(after.as_deref(), PAGE).await?;
        for letter in page.letters.into_iter().filter(|letter| is_meant(args, letter)) {
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

fn is_meant(args: &LettersArgs, letter: &DeadLetterDocument) -> bool {
    let fits = |wanted: &Option<String>, fits: &dyn Fn(&str) -> bool| wanted.as_deref().is_none_or(fits);
    fits(&args.item, &|item| letter.item_id == item) && fits(&args.error, &|error| last_error(letter).contains(error))
}

fn last_error(letter: &DeadLetterDocument) -> &str {
    letter.errors.last().map_or("no error was recorded", String::as_str)
}

async fn list(args: &LettersArgs, letters: &DeadLetters, json: bool) -> Result<Exit> {
    let mut groups: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
    let mut total = 0_u64;
    each(args, letters, async |letter| {
        total += 1;
        if json {
            return print(&format!("{}\n", serde_json::to_string(&letter)?));
        }
        let (count, lines) = groups.entry(last_error(&letter).to_owned()).or_default();
        *count += 1;
        if lines.len() < LISTED {
            lines.push(lines_of(&letter));
        }
        Ok(Printed::Whole)
    })
    .await?;
    if json {
        return Ok(Exit::Good);
    }
    let mut text = match total {
        0 => "no dead letters\n".to_owned(),
        1 => "1 dead letter\n".to_owned(),
        total => format!("{}, grouped by their last error\n", count_of_letters(total)),
    };
    for (error, (count, lines)) in groups {
        text.push_str(&format!("\n{count} x {error}\n{}", lines.concat()));
        if count > lines.len() as u64 {
            text.push_str(&format!("  and {} more: see them all with --json\n", count - lines.len() as u64));
        }
    }
    print(&text)?;
    Ok(Exit::Good)
}

/// A dead letter for people: what it is about, and its id below, which is long.
fn lines_of(letter: &DeadLetterDocument) -> String {
    let DeadLetterDocument { id, item_id, lsn, lease, attempts, failed_at, .. } = letter;
    let attempts = if *attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    let failed = time(Timestamp::from_millis(*failed_at));
    format!("  item {item_id}: lsn {lsn}, lease {lease}, {attempts}, {failed}\n    {id}\n")
}

fn count_of_letters(count: u64) -> String {
    if count == 1 { "1 dead letter".to_owned() } else { format!("{count} dead letters") }
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
    let with_options = |mut redrive: changefeed::Redrive| {
        if let Some(rate) = chosen.rate {
            redrive = redrive.per_second(rate);
        }
        if chosen.overwrite {
            redrive = redrive.overwrite();
        }
        if chosen.dry_run { redrive.dry_run() } else { redrive }
    };
    if args.error.is_none() && args.item.is_none() {
        return Ok(with_options(letters.redrive()).to_container(&monitored).await?);
    }
    let mut ids = Vec::new();
    each(args, letters, async |letter| {
        ids.push(letter.id);
        Ok(Printed::Whole)
    })
    .await?;
    let mut all = Redriven::default();
    for id in ids {
        let one = with_options(letters.redrive().letter(id)).to_container(&monitored).await?;
        all.done.extend(one.done);
        all.skipped.extend(one.skipped);
        if let Some(rate) = chosen.rate {
            clock::sleep(Duration::from_secs_f64(1.0 / rate)).await;
        }
    }
    Ok(all)
}

fn shown(redriven: &Redriven, dry_run: bool, json: bool) -> Result<Exit> {
    if json {
        print(&format!("{}\n", serde_json::to_string(redriven)?))?;
    } else {
        let verb = if dry_run { "would be written again" } else { "written again" };
        let done = count_of_letters(redriven.done.len() as u64);
        let mut text = format!("{done} {verb}, {} left\n", redriven.skipped.len());
        for skipped in &redriven.skipped {
            text.push_str(&format!("  item {}: {}\n    {}\n", skipped.item, skipped.reason, skipped.id));
        }
        print(&text)?;
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
    each(args, letters, async |letter| {
        if letter.failed_at < limit {
            ids.push(letter.id);
        }
        Ok(Printed::Whole)
    })
    .await?;
    if yes {
        for id in &ids {
            letters.delete(id).await?;
        }
    }
    if json {
        print(&format!("{}\n", json!({ "deleted": yes, "ids": ids })))?;
    } else if yes {
        print(&format!("{} deleted\n", count_of_letters(ids.len() as u64)))?;
    } else {
        let count = count_of_letters(ids.len() as u64);
        print(&format!("{count} would be deleted for good: pass --yes to do it\n"))?;
    }
    Ok(Exit::Good)
}
