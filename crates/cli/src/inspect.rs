//! `lag`, `leases`, `where`: what a processor is doing, from outside.

use std::{collections::BTreeMap, time::Duration};

use changefeed::{
    Estimator, Explain, Lag, LeaseLag, LeaseState, LeaseToken, Locate, Progress, lease::prefix::LeasePrefix,
};
use changefeed_core::{Container, ErrorKind, Item, ListItems, PartitionKey};
use serde_json::{Value, json};

use crate::{
    args::{LagArgs, LeasesArgs, LeasesCommand, ProcessorArgs, WhereArgs},
    change_line::time,
    count::count_of,
    dead_letters::{LetterCount, letters_of_item},
    exit::{Exit, Result, block_on, print, print_text, say},
    explain::sentence,
    leases,
    processor_stores::ProcessorStores,
    progress::Indicator,
    store_health::{StoreProblems, unless_stopped},
    table::Table,
    tail::partition_key,
    terminal,
};

/// How many items whose ids begin with that of the one that is looked for are read at most.
const MOST_SCANNED: usize = 100_000;

/// `changefeed lag`.
pub(crate) fn lag(args: &LagArgs) -> Result<Exit> {
    let (lag, letters, problems) = on(&args.processor, async |on| {
        let lag = Estimator::new(&on.name, &on.monitored, &on.leases).lag().await?;
        let problems = StoreProblems::of(&args.processor, on).await.sentences;
        Ok((lag, LetterCount::of(&args.letters, on, None).await?, problems))
    })?;
    if args.json {
        let Lag { changes, behind, leases, broken, .. } = &lag;
        let shown = json!({
            "total": changes, "behind_seconds": behind.as_secs_f64(), "leases": leases, "broken": broken,
            "dead_letters": letters, "store_problems": problems,
        });
        print(&format!("{shown}\n"))?;
    } else {
        let sentence = letters.as_ref().and_then(LetterCount::sentence);
        let letters = sentence.map(|sentence| format!("\n{sentence}\n")).unwrap_or_default();
        let problems: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        print_text(&format!("{problems}{}{letters}", lag_text(&args.processor.name, &lag)))?;
    }
    Ok(if lag.broken.is_empty() && problems.is_empty() { Exit::Good } else { Exit::Unhealthy })
}

fn lag_text(name: &str, lag: &Lag) -> String {
    let but = if lag.broken.is_empty() { "" } else { ", but for leases whose documents cannot be read" };
    let heading = match lag.changes {
        0 => format!("{name} has caught up{but}\n"),
        1 => format!("{name} is 1 change behind, for {}{but}\n", length(lag.behind)),
        changes => {
            format!("{name} is {changes} changes behind; the oldest has waited for {}{but}\n", length(lag.behind))
        }
    };
    format!("{heading}\n{}", list_text(name, lag))
}

/// The leases as a table, and below it the documents that cannot be read.
fn list_text(name: &str, lag: &Lag) -> String {
    let table = lease_table(&lag.leases).text(terminal::columns());
    let broken = lag
        .broken
        .iter()
        .map(|document| format!("\ncannot be read: lease document {document}; see `changefeed explain {name}`\n"));
    std::iter::once(table).chain(broken).collect()
}

fn lease_table(leases: &[LeaseLag]) -> Table {
    let mut table = Table::new(["lease", "state", "owner", "changes", "behind"]);
    for lease in leases {
        let about = if lease.estimated { "~" } else { "" };
        table.row([
            lease.lease.to_string(),
            state(lease.state).to_owned(),
            lease.owner.clone().unwrap_or_else(|| "-".to_owned()),
            if lease.state == LeaseState::Broken { "-".to_owned() } else { format!("{about}{}", lease.changes) },
            if lease.changes == 0 { "-".to_owned() } else { length(lease.behind) },
        ]);
    }
    table
}

/// `changefeed leases`.
pub(crate) fn leases(args: &LeasesArgs) -> Result<Exit> {
    match &args.command {
        LeasesCommand::List { processor, json } => list(processor, *json),
        LeasesCommand::Show { processor, lease, json } => show(processor, lease, *json),
        LeasesCommand::Release(args) => leases::release(args),
        LeasesCommand::Export(args) => leases::export(args),
        LeasesCommand::Import(args) => leases::import(args),
    }
}

fn list(processor: &ProcessorArgs, json: bool) -> Result<Exit> {
    let lag = on(processor, async |on| Ok(Estimator::new(&on.name, &on.monitored, &on.leases).lag().await?))?;
    if json {
        print(&format!("{}\n", serde_json::to_string(&lag.leases)?))?;
    } else {
        print_text(&list_text(&processor.name, &lag))?;
    }
    Ok(if lag.broken.is_empty() { Exit::Good } else { Exit::Unhealthy })
}

fn show(processor: &ProcessorArgs, token: &str, json: bool) -> Result<Exit> {
    let documents = on(processor, async |on| {
        let prefix = LeasePrefix::new(&on.name, on.monitored.identity())?;
        let items = on.leases.list(&prefix.leases()).await?;
        let with_token = |item: Item| Some((prefix.token_of(&item.id)?, item.body));
        Ok(items.into_iter().filter_map(with_token).collect::<BTreeMap<_, _>>())
    })?;
    let Some((_, body)) = documents.iter().find(|(found, _)| found.as_str() == token) else {
        let known: Vec<&str> = documents.keys().map(LeaseToken::as_str).collect();
        return Err(match known.as_slice() {
            [] => format!("processor {:?} has no leases: see `changefeed lag {0}`", processor.name).into(),
            known => format!("there is no lease {token}; there are: {}", known.join(", ")).into(),
        });
    };
    let document: Value = serde_json::from_slice(body)?;
    print(&if json { format!("{document}\n") } else { format!("{document:#}\n") })?;
    Ok(Exit::Good)
}

/// `changefeed where`.
pub(crate) fn where_is(args: &WhereArgs) -> Result<Exit> {
    let WhereArgs { processor, item, key, letters, json } = args;
    let typed = key.as_deref().map(partition_key).transpose()?.map(PartitionKey::or_undefined);
    let looked = on(processor, async |on| {
        let key = match &typed {
            Some(key) => match on.monitored.read_item(key.clone(), item).await {
                Err(error) if error.kind() == ErrorKind::ItemNotFound => {
                    return Ok(Err(format!("{error} with the partition key {key}: is --key right?")));
                }
                _ => key.clone(),
            },
            None => match find_by_id(&on.monitored, item).await? {
                Ok(key) => key,
                Err(problem) => return Ok(Err(problem)),
            },
        };
        let found = Locate::new(&on.name, &on.monitored, &on.leases).item(key.clone(), item).await?;
        let explained = Explain::new(&on.name, &on.monitored, &on.leases).leases().await?;
        let letters = letters_of_item(letters, on, item, &key).await?;
        let explanation = explained.into_iter().find(|explained| explained.lease == found.lease);
        Ok(Ok((found, explanation, letters)))
    })?;
    let (found, explanation, letters) = match looked {
        Ok(looked) => looked,
        Err(problem) => {
            if *json {
                print(&format!("{}\n", json!({ "item": item, "found": null, "problem": problem })))?;
            } else {
                say(&problem);
            }
            return Ok(Exit::Unhealthy);
        }
    };
    let is_searched = letters.is_some();
    let letters = letters.unwrap_or_default();
    let is_dead = letters.iter().any(|letter| letter.lsn == found.lsn.get());
    let exit = if is_dead && found.progress == Progress::Passed { Exit::Unhealthy } else { Exit::Good };
    if *json {
        let shown = json!({ "item": item, "found": found, "lease": explanation, "dead_letters": letters });
        print(&format!("{shown}\n"))?;
        return Ok(exit);
    }
    let mut text = format!("item {item}: newest version at lsn {}, written {}\n", found.lsn, time(found.timestamp));
    text.push_str(&match found.progress {
        Progress::Passed if is_dead => "not handled: it is a dead letter\n".to_owned(),
        Progress::Passed if is_searched => {
            "behind the checkpoint of its lease, and no dead letter: delivered, or passed over by the start or a seek of the \
             processor\n"
                .to_owned()
        }
        Progress::Passed => "behind the checkpoint of its lease: delivered, or passed over by the start or a seek of the \
                             processor, unless it became a dead letter, which --dead-letters DB/NAME tells\n"
            .to_owned(),
        Progress::Waiting { after: 0 } => {
            "waiting: it is after the checkpoint, the next of its partition key\n".to_owned()
        }
        Progress::Waiting { after } => {
            format!("waiting: it is after the checkpoint, and {after} changes of its partition key come first\n")
        }
        _ => "unknown: its lease has no checkpoint yet\n".to_owned(),
    });
    text.push_str(&explanation.as_ref().map(sentence).unwrap_or_default());
    for letter in &letters {
        let last = letter.errors.last().map_or("", String::as_str);
        text.push_str(&format!(
            "dead letter {}: lsn {}, {}, {last}\n",
            letter.id,
            letter.lsn,
            count_of(u64::from(letter.attempts), "attempt")
        ));
    }
    print_text(&text)?;
    Ok(exit)
}

/// The partition key of the only item with this id; otherwise why there is none. Reads at most so many items whose ids begin
/// with it.
async fn find_by_id(monitored: &Container, id: &str) -> Result<std::result::Result<PartitionKey, String>> {
    let mut request = ListItems { id_prefix: id.to_owned(), ..ListItems::default() };
    let (mut keys, mut scanned) = (Vec::new(), 0);
    let is_whole = loop {
        let page = monitored.backend().list_items(request.clone()).await?.into_value();
        scanned += page.items.len();
        for item in page.items.iter().filter(|item| item.id.as_str() == id) {
            keys.push(monitored.identity().partition_key.extract(&item.body)?);
        }
        match page.next {
            None => break true,
            Some(_) if scanned >= MOST_SCANNED => break false,
            next => request.after = next,
        }
    };
    let scanned = count_of(scanned as u64, "item");
    let name = &monitored.identity().container_name;
    Ok(match keys.as_slice() {
        [key] => Ok(key.clone()),
        [] if is_whole => Err(format!("no item {id} in {name}: scanned {scanned} whose ids begin with it")),
        [] => Err(format!("no item {id} among the first {scanned} of {name} whose ids begin with it: pass --key")),
        keys => {
            let keys: Vec<String> = keys.iter().map(|key| format!("--key '{key}'")).collect();
            Err(format!("{} partition keys of {name} have an item {id}: pass one of {}", keys.len(), keys.join(", ")))
        }
    })
}

/// Opens the processor's containers, looks, and closes them.
pub(crate) fn on<T>(args: &ProcessorArgs, look: impl AsyncFnOnce(&ProcessorStores) -> Result<T>) -> Result<T> {
    waiting_on(args, "working on the leases", look)
}

/// The same, saying what is waited for.
pub(crate) fn waiting_on<T>(
    args: &ProcessorArgs,
    what: &str,
    look: impl AsyncFnOnce(&ProcessorStores) -> Result<T>,
) -> Result<T> {
    block_on(async {
        let stores = ProcessorStores::open(args).await?;
        let waiting = Indicator::waiting(what);
        let found = unless_stopped(stores.stores(), look(&stores)).await?;
        drop(waiting);
        stores.close().await?;
        Ok(found)
    })
}

/// A state as one word.
pub(crate) fn state(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Owned => "owned",
        LeaseState::Free => "free",
        LeaseState::Paused => "paused",
        LeaseState::SplitPending => "split pending",
        LeaseState::Missing => "missing",
        LeaseState::Expired => "expired",
        LeaseState::Broken => "broken",
        _ => "unknown",
    }
}

/// A length of time in its two largest units.
pub(crate) fn length(time: Duration) -> String {
    let shown = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    let units: Vec<&str> = shown.split(' ').take(2).collect();
    units.join(" ")
}
