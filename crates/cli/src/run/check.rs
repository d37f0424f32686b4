//! `run --check`: opens everything that a run opens, changes nothing, and says what would run.

use serde_json::json;

use super::{Chosen, copy, found::Found};
use crate::{
    args::{ProcessorArgs, RunArgs},
    count::count_of,
    exit::{Exit, Result, print, print_text},
    metrics::endpoint::Endpoint,
    redact::{redacted, redacted_webhook},
};

/// Says what would run, and changes nothing.
pub(super) async fn check(args: &RunArgs) -> Result<Exit> {
    let ProcessorArgs { name, container, leases, .. } = &args.processor;
    if let Some(address) = args.metrics.metrics {
        Endpoint::check(&args.metrics, address).await?;
    }
    let found = Found::open(args).await?;
    found.processor(args).await?.check().await?;
    let monitored = &found.stores.monitored;
    let ranges = monitored.feed_ranges().await?.len();
    let known = match &found.stores.leases {
        None => format!("{leases} would be created, and the processor begin at --from"),
        Some(found) if changefeed::processors(monitored, found).await?.contains(name) => {
            "it has run before and goes on where it was".to_owned()
        }
        Some(_) => "it has never run and begins at --from".to_owned(),
    };
    let delegate = match Chosen::of(&args.delegate)? {
        Chosen::Print => "prints each change".to_owned(),
        Chosen::Exec(command) => format!("runs {:?} for each batch", redacted(command)),
        Chosen::Webhook(url) => format!("sends each batch to {}", redacted_webhook(url)),
        Chosen::Copy(place) => {
            let is_missing = found.target.as_ref().is_some_and(|target| target.is_missing());
            format!("copies to {}{}", copy::shown(place), if is_missing { ", which would be created" } else { "" })
        }
    };
    let letters = args.options.dead_letters.as_ref().map(|name| match &found.dead_letters {
        Some(_) => name.to_string(),
        None => format!("{name}, which would be created"),
    });
    if args.delegate.json {
        let shown = json!({
            "processor": name, "container": container.to_string(), "ranges": ranges, "leases": leases.to_string(),
            "begins": known, "delegate": delegate, "dead_letters": letters,
        });
        print(&format!("{shown}\n"))?;
    } else {
        let ranges = count_of(ranges as u64, "range");
        let letters = letters.map(|letters| format!("; dead letters go to {letters}")).unwrap_or_default();
        let sentence =
            format!("processor {name} on {container}, {ranges}, leases in {leases}: {known}; {delegate}{letters}\n");
        print_text(&sentence)?;
    }
    found.close().await?;
    Ok(Exit::Good)
}
