//! `ranges`, `split`, `merge`, `throttle`, `fault`, `verify`.

use std::{error::Error as StdError, time::Duration};

use changefeed_core::{Epk, Error, ErrorKind, PhysicalRange, RangeId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{ContainerName, FaultArgs, MergeArgs, RangesArgs, SplitArgs, StoreArgs, ThrottleArgs, VerifyArgs},
    clock,
    count::count_of,
    exit::{Exit, Result, block_on, print, print_text, with_causes},
    progress::Indicator,
    redact::redacted,
    store::{Missing, Store, is_url},
    table::Table,
    terminal,
};

/// A table of ranges needs so many columns: its bounds have 32 characters and stay whole.
const LEAST_COLUMNS: usize = 80;

/// A range as it is shown.
#[derive(Debug, Serialize)]
struct Range {
    id: String,
    min: String,
    max: String,
    parents: Vec<String>,
}

impl From<&PhysicalRange> for Range {
    fn from(range: &PhysicalRange) -> Self {
        Self {
            id: range.id.to_string(),
            min: range.range.min_inclusive().to_string(),
            max: range.range.max_exclusive().to_string(),
            parents: range.parents.iter().map(RangeId::to_string).collect(),
        }
    }
}

fn show(ranges: &[Range], json: bool) -> Result<Exit> {
    if json {
        print(&format!("{}\n", serde_json::to_string(ranges)?))?;
        return Ok(Exit::Good);
    }
    if terminal::columns().is_some_and(|columns| columns < LEAST_COLUMNS) {
        return show_narrow(ranges);
    }
    let mut table = Table::new(["id", "from", "to", "parents"]);
    for Range { id, min, max, parents } in ranges {
        let parents = if parents.is_empty() { "-".to_owned() } else { parents.join(" ") };
        table.row([id.clone(), min.clone(), max.clone(), parents]);
    }
    print_text(&table.text(terminal::columns()))?;
    Ok(Exit::Good)
}

/// One line for each bound: two of them do not fit beside each other.
fn show_narrow(ranges: &[Range]) -> Result<Exit> {
    let mut text = String::new();
    for Range { id, min, max, parents } in ranges {
        let parents = if parents.is_empty() { String::new() } else { format!(", parents {}", parents.join(" ")) };
        let min = if min.is_empty() { "-" } else { min };
        text.push_str(&format!("range {id}{parents}\n  from {min}\n  to   {max}\n"));
    }
    print_text(&text)?;
    Ok(Exit::Good)
}

pub(crate) fn ranges(args: &RangesArgs) -> Result<Exit> {
    on_store(&args.store, args.json, async |store| {
        let container = store.container(&args.container).await?;
        let _waiting = Indicator::waiting("reading the ranges");
        Ok(container.feed_ranges().await?)
    })
}

pub(crate) fn split(args: &SplitArgs) -> Result<Exit> {
    let ContainerName { database, container } = &args.container;
    let at: Option<Epk> = args.at.as_deref().map(str::parse).transpose()?;
    let range: RangeId = args.range.parse()?;
    on_store(&args.store, args.json, async |store| {
        must_have(store, &args.container, &[&range]).await?;
        let _waiting = Indicator::waiting(format!("splitting range {range}"));
        Ok(store.catalog().split(database, container, &range, at).await?)
    })
}

pub(crate) fn merge(args: &MergeArgs) -> Result<Exit> {
    let ContainerName { database, container } = &args.container;
    let [a, b] = args.ranges.as_slice() else { return Err("--ranges takes two ids, such as --ranges 0,1".into()) };
    let ranges: [RangeId; 2] = [a.parse()?, b.parse()?];
    on_store(&args.store, args.json, async |store| {
        must_have(store, &args.container, &[&ranges[0], &ranges[1]]).await?;
        let _waiting = Indicator::waiting(format!("merging the ranges {a} and {b}"));
        Ok(vec![store.catalog().merge(database, container, [&ranges[0], &ranges[1]]).await?])
    })
}

/// Refuses ranges that are not there; the error names those that are.
async fn must_have(store: &Store, name: &ContainerName, wanted: &[&RangeId]) -> Result<()> {
    let ranges = store.container(name).await?.feed_ranges().await?;
    let is_there = |wanted: &RangeId| ranges.iter().any(|range| range.id == *wanted);
    match wanted.iter().find(|wanted| !is_there(wanted)) {
        Some(missing) => Err(no_range(&missing.to_string(), &ranges).into()),
        None => Ok(()),
    }
}

/// What is said of a range that is not there.
pub(crate) fn no_range(wanted: &str, ranges: &[PhysicalRange]) -> String {
    let ids: Vec<String> = ranges.iter().map(|range| range.id.to_string()).collect();
    format!("there is no range {wanted}; there are: {}", ids.join(", "))
}

/// Shows the ranges that `work` gives back.
fn on_store(
    args: &StoreArgs,
    json: bool,
    work: impl AsyncFnOnce(&Store) -> Result<Vec<PhysicalRange>>,
) -> Result<Exit> {
    let store = Store::open(args, Missing::Refused)?;
    let ranges = block_on(async {
        let ranges = work(&store).await?;
        store.close().await?;
        Ok(ranges)
    })?;
    show(&ranges.iter().map(Range::from).collect::<Vec<_>>(), json)
}

/// How long a server may take for a call that changes how it answers.
const QUICK: Duration = Duration::from_secs(30);

/// How long verification may take: it reads everything.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// How long a server that is at work may take to answer another request.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How often it is asked.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// Calls the server itself, for what only servers can do.
fn call(args: &StoreArgs, method: &str, name: &str, body: &Value) -> Result<()> {
    if !is_url(&args.store) {
        return Err("this needs a server: pass its URL, such as --store http://127.0.0.1:8081".into());
    }
    let store = Store::open(args, Missing::Refused)?;
    let _waiting = Indicator::waiting(format!("waiting for {}", redacted(&args.store)));
    block_on(async {
        store.server()?.admin_call(method, name, body.to_string().into_bytes(), QUICK).await?;
        store.close().await
    })
}

pub(crate) fn throttle(args: &ThrottleArgs) -> Result<Exit> {
    let mut body = json!({ "seconds": args.seconds, "retryAfterMs": args.retry_after_ms });
    if let Some(container) = &args.container {
        body["container"] = container.to_string().into();
    }
    call(&args.store, "POST", "throttle", &body)?;
    if args.json {
        print(&format!("{body}\n"))?;
        return Ok(Exit::Good);
    }
    let what = args.container.as_ref().map_or_else(|| "all containers".to_owned(), ToString::to_string);
    print_text(&match args.seconds {
        0.0 => format!("{what}: no longer throttled\n"),
        seconds => format!("{what}: requests for items get 429 for {seconds} s\n"),
    })?;
    Ok(Exit::Good)
}

pub(crate) fn fault(args: &FaultArgs) -> Result<Exit> {
    if args.clear {
        call(&args.store, "DELETE", "faults", &Value::Null)?;
        match args.json {
            true => print(&format!("{}\n", json!({ "cleared": true })))?,
            false => print("all faults and throttling ended\n")?,
        };
        return Ok(Exit::Good);
    }
    let mut body = json!({ "status": args.status, "count": args.count, "after": args.after });
    for (name, value) in [
        ("substatus", args.substatus.map(Value::from)),
        ("method", args.method.clone().map(Value::from)),
        ("pathContains", args.path_contains.clone().map(Value::from)),
    ] {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    call(&args.store, "POST", "faults", &body)?;
    if args.json {
        print(&format!("{body}\n"))?;
        return Ok(Exit::Good);
    }
    let status = args.status.unwrap_or_default();
    print_text(&match args.count {
        1 => format!("the next matching request gets {status}\n"),
        count => format!("the next {count} matching requests get {status}\n"),
    })?;
    Ok(Exit::Good)
}

/// Waits for an answer that may take hours, for as long as the server answers other requests.
async fn while_it_answers<T>(store: &Store, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let silent = async {
        loop {
            match clock::within(ANSWERS_WITHIN, store.catalog().list_databases()).await {
                None => return,
                Some(Err(error)) if error.kind() == ErrorKind::Timeout => return,
                Some(_) => clock::sleep(ASKED_EVERY).await,
            }
        }
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = silent => Err(format!(
            "the server has not answered within {} s: see whether its process runs, and start it again if it hangs",
            ANSWERS_WITHIN.as_secs()
        )
        .into()),
    }
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Exit> {
    match verified(args) {
        Ok(found) => show_verified(&found, args.json),
        Err(error) if is_damage(&*error) => show_damage(&with_causes(&*error), args.json),
        Err(error) => Err(error),
    }
}

/// What a store holds in which no damage was found.
fn verified(args: &VerifyArgs) -> Result<Value> {
    let store = Store::open(&args.store, Missing::Refused)?;
    block_on(async {
        let found = match store.engine() {
            Some(engine) => {
                let read = Indicator::of_bytes(engine.disk_bytes()?, "read");
                engine.verify_with(|bytes| read.set(bytes))?;
                drop(read);
                let _waiting = Indicator::waiting("comparing items with the feed");
                serde_json::to_value(changefeed_server::verify(store.catalog()).await?)?
            }
            None => {
                let server = store.server()?;
                let _waiting = Indicator::waiting("reading everything");
                let verified = async { Ok(server.admin_call("POST", "verify", Vec::new(), LONG).await?) };
                let answer = while_it_answers(&store, verified).await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                answer.get("found").cloned().unwrap_or_default()
            }
        };
        store.close().await?;
        Ok(found)
    })
}

/// Whether a store was read and is damaged. Any other error leaves open how it is.
fn is_damage(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Corrupt)
}

fn show_damage(damage: &str, json: bool) -> Result<Exit> {
    match json {
        true => print(&format!("{}\n", json!({ "damage": damage })))?,
        false => print_text(&format!(
            "damage: {damage}\nnext: `changefeed restore --from BACKUP --store FOLDER` makes a new store of a backup\n"
        ))?,
    };
    Ok(Exit::Unhealthy)
}

fn show_verified(found: &Value, json: bool) -> Result<Exit> {
    if json {
        print(&format!("{found}\n"))?;
    } else {
        let count = |thing: &str| {
            let count = found.get(format!("{thing}s")).and_then(Value::as_u64);
            count_of(count.unwrap_or(0), thing)
        };
        let counts = ["database", "container", "range", "item", "change"].map(count);
        print_text(&format!("all is well: {}\n", counts.join(", ")))?;
    }
    Ok(Exit::Good)
}
