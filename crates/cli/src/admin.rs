//! `ranges`, `split`, `merge`, `throttle`, `fault`, `verify`.

use std::{fmt::Write as _, future::Future};

use changefeed_core::{Epk, PhysicalRange, RangeId};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    args::{FaultArgs, MergeArgs, RangesArgs, SplitArgs, ThrottleArgs, VerifyArgs},
    exit::{Exit, Result, print},
    store::{Store, names},
};

/// A range as it is shown.
#[derive(Debug, Serialize, Deserialize)]
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

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
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
    let (database, container) = names(&args.container)?;
    let found: Vec<Range> = match Store::open(&args.store)? {
        Store::Folder(engine) => block_on(async {
            let container = engine.catalog().container(database, container).await?;
            let ranges = container.feed_ranges().await?;
            engine.close().await?;
            Ok(ranges.iter().map(Range::from).collect())
        })?,
        Store::Server(remote) => {
            let path = ["dbs", database, "colls", container, "pkranges"];
            let answer = block_on(remote.call(&Method::GET, &path, None))?;
            let ranges = answer.get("PartitionKeyRanges").cloned().unwrap_or_default();
            let ranges: Vec<Value> = serde_json::from_value(ranges)?;
            let text = |range: &Value, name: &str| range.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
            let parents = |range: &Value| {
                let parents = range.get("parents").and_then(Value::as_array).cloned().unwrap_or_default();
                parents.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let range = |range: &Value| Range {
                id: text(range, "id"),
                min: text(range, "minInclusive"),
                max: text(range, "maxExclusive"),
                parents: parents(range),
            };
            ranges.iter().map(range).collect()
        }
    };
    show(&found, args.json)
}

pub(crate) fn split(args: &SplitArgs) -> Result<Exit> {
    let (database, container) = names(&args.container)?;
    let at: Option<Epk> = args.at.as_deref().map(str::parse).transpose()?;
    let range: RangeId = args.range.parse()?;
    let children = match Store::open(&args.store)? {
        Store::Folder(engine) => block_on(async {
            let children = engine.catalog().split(database, container, &range, at).await?;
            engine.close().await?;
            Ok(children.iter().map(Range::from).collect())
        })?,
        Store::Server(remote) => {
            let mut body = json!({ "container": args.container, "range": range });
            if let Some(at) = at {
                body["at"] = at.to_string().into();
            }
            shown(block_on(remote.call(&Method::POST, &["_changefeed", "split"], Some(body)))?)?
        }
    };
    show(&children, args.json)
}

pub(crate) fn merge(args: &MergeArgs) -> Result<Exit> {
    let (database, container) = names(&args.container)?;
    let [a, b] = args.ranges.as_slice() else { return Err("--ranges takes two ids, such as --ranges 0,1".into()) };
    let ranges: [RangeId; 2] = [a.parse()?, b.parse()?];
    let merged = match Store::open(&args.store)? {
        Store::Folder(engine) => block_on(async {
            let merged = engine.catalog().merge(database, container, [&ranges[0], &ranges[1]]).await?;
            engine.close().await?;
            Ok(vec![Range::from(&merged)])
        })?,
        Store::Server(remote) => {
            let body = json!({ "container": args.container, "ranges": ranges });
            shown(block_on(remote.call(&Method::POST, &["_changefeed", "merge"], Some(body)))?)?
        }
    };
    show(&merged, args.json)
}

fn shown(answer: Value) -> Result<Vec<Range>> {
    Ok(serde_json::from_value(answer.get("ranges").cloned().unwrap_or_default())?)
}

pub(crate) fn throttle(args: &ThrottleArgs) -> Result<Exit> {
    if let Some(container) = &args.container {
        names(container)?;
    }
    let mut body = json!({ "seconds": args.seconds, "retryAfterMs": args.retry_after_ms });
    if let Some(container) = &args.container {
        body["container"] = container.as_str().into();
    }
    let remote = Store::server(&args.store)?;
    block_on(remote.call(&Method::POST, &["_changefeed", "throttle"], Some(body)))?;
    Ok(Exit::Good)
}

pub(crate) fn fault(args: &FaultArgs) -> Result<Exit> {
    let remote = Store::server(&args.store)?;
    let path = ["_changefeed", "faults"];
    if args.clear {
        block_on(remote.call(&Method::DELETE, &path, None))?;
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
    block_on(remote.call(&Method::POST, &path, Some(body)))?;
    Ok(Exit::Good)
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Exit> {
    let found = match Store::open(&args.store)? {
        Store::Folder(engine) => block_on(async {
            let found = changefeed_server::verify(&engine.catalog()).await?;
            engine.close().await?;
            Ok(serde_json::to_value(found)?)
        })?,
        Store::Server(remote) => {
            let answer = block_on(remote.call(&Method::POST, &["_changefeed", "verify"], None))?;
            answer.get("found").cloned().unwrap_or_default()
        }
    };
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
