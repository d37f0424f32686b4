//! `ranges`, `split`, `merge`, `throttle`, `fault`, `verify`.

use std::{fmt::Write as _, time::Duration};

use changefeed_core::{Epk, PhysicalRange, RangeId};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{ContainerName, FaultArgs, MergeArgs, RangesArgs, SplitArgs, StoreArgs, ThrottleArgs, VerifyArgs},
    exit::{Exit, Result, block_on, print},
    store::{Missing, Store, is_url},
};

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
    let mut text = String::new();
    let widest = ranges.iter().map(|range| range.min.len().max(range.max.len())).max().unwrap_or(0).max(4);
    writeln!(text, "{:<6}{:<widest$}  {:<widest$}  parents", "id", "from", "to")?;
    for Range { id, min, max, parents } in ranges {
        writeln!(text, "{id:<6}{min:<widest$}  {max:<widest$}  {}", parents.join(" "))?;
    }
    print(&text)?;
    Ok(Exit::Good)
}

pub(crate) fn ranges(args: &RangesArgs) -> Result<Exit> {
    on_store(&args.store, args.json, async |store| Ok(store.container(&args.container).await?.feed_ranges().await?))
}

pub(crate) fn split(args: &SplitArgs) -> Result<Exit> {
    let ContainerName { database, container } = &args.container;
    let at: Option<Epk> = args.at.as_deref().map(str::parse).transpose()?;
    let range: RangeId = args.range.parse()?;
    on_store(&args.store, args.json, async |store| Ok(store.catalog().split(database, container, &range, at).await?))
}

pub(crate) fn merge(args: &MergeArgs) -> Result<Exit> {
    let ContainerName { database, container } = &args.container;
    let [a, b] = args.ranges.as_slice() else { return Err("--ranges takes two ids, such as --ranges 0,1".into()) };
    let ranges: [RangeId; 2] = [a.parse()?, b.parse()?];
    on_store(&args.store, args.json, async |store| {
        Ok(vec![store.catalog().merge(database, container, [&ranges[0], &ranges[1]]).await?])
    })
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

/// Calls the server itself, for what only servers can do.
fn call(args: &StoreArgs, method: &str, name: &str, body: &Value) -> Result<()> {
    if !is_url(&args.store) {
        return Err("this needs a server: pass its URL, such as --store http://127.0.0.1:8081".into());
    }
    let store = Store::open(args, Missing::Refused)?;
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
    let what = args.container.as_ref().map_or_else(|| "all containers".to_owned(), ToString::to_string);
    print(&match args.seconds {
        0.0 => format!("{what}: no longer throttled\n"),
        seconds => format!("{what}: requests for items get 429 for {seconds} s\n"),
    })?;
    Ok(Exit::Good)
}

pub(crate) fn fault(args: &FaultArgs) -> Result<Exit> {
    if args.clear {
        call(&args.store, "DELETE", "faults", &Value::Null)?;
        print("all faults and throttling ended\n")?;
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
    let (count, status) = (args.count, args.status.unwrap_or_default());
    print(&format!("the next {count} matching requests get {status}\n"))?;
    Ok(Exit::Good)
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Exit> {
    let store = Store::open(&args.store, Missing::Refused)?;
    let waiting = ProgressBar::new_spinner().with_message("reading everything");
    waiting.enable_steady_tick(Duration::from_millis(120));
    let found = block_on(async {
        let found = match store.engine() {
            Some(engine) => {
                engine.verify()?;
                serde_json::to_value(changefeed_server::verify(store.catalog()).await?)?
            }
            None => {
                let answer = store.server()?.admin_call("POST", "verify", Vec::new(), LONG).await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                answer.get("found").cloned().unwrap_or_default()
            }
        };
        store.close().await?;
        Ok(found)
    });
    waiting.finish_and_clear();
    let found = found?;
    if args.json {
        print(&format!("{found}\n"))?;
    } else {
        let count = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
        print(&format!(
            "all is well: {} databases, {} containers, {} ranges, {} items, {} changes\n",
            count("databases"),
            count("containers"),
            count("ranges"),
            count("items"),
            count("changes")
        ))?;
    }
    Ok(Exit::Good)
}
