//! `changefeed demo`: a server and hosts as processes of their own, one of them killed, a rebalance, a split and a poison
//! item in one terminal.

mod child;
mod folder;
pub(crate) mod host;
mod host_event;
mod ledger;
mod narrator;
mod picture;
mod scenario;
mod stage;
mod terminal;
mod writer;

use std::{io, path::Path, sync::Arc, time::Duration};

use changefeed::runtime::TokioRuntime;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use self::{
    folder::Folder,
    ledger::{SharedLedger, Totals},
    narrator::{Event, Narrator},
    scenario::Scenario,
    stage::{ATTEMPTS, Stage},
    terminal::{Paint, Style, grouped},
};
use crate::{
    args::DemoArgs,
    exit::{EndRequests, Exit, Result, print},
    terminal::{columns, wrapped},
};

/// The lines of the ledger are up to so long.
const LEDGER_COLUMNS: usize = 80;

const INTRODUCTION: &str = "Orders come in, hosts handle them, things go wrong, and nothing is lost.";

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Outcome {
    #[serde(flatten)]
    totals: Totals,
    seconds: f64,
    #[serde(skip)]
    interrupted: bool,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit> {
    let folder = Folder::choose(args.keep.as_deref())?;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = tokio.block_on(perform(args, &folder));
    // What a second Ctrl-C has left running must not wait for anything.
    tokio.shutdown_background();
    let Some(outcome) = outcome? else { return Ok(Exit::Interrupted) };
    let text = if args.json {
        serde_json::to_string(&outcome)? + "\n"
    } else {
        page(&outcome, folder.is_kept().then(|| folder.path()), Paint::on(&io::stdout()), columns())
    };
    print(&text)?;
    Ok(match outcome {
        Outcome { interrupted: true, .. } => Exit::Interrupted,
        Outcome { totals: Totals { lost: 0, .. }, .. } => Exit::Good,
        _ => Exit::Unhealthy,
    })
}

/// Runs the scenario; none if it was cut off by a second Ctrl-C.
async fn perform(args: &DemoArgs, folder: &Folder) -> Result<Option<Outcome>> {
    // Signals count from the first moment: the folder is removed, and no process is left behind.
    let requests = EndRequests::listen()?;
    let runtime = TokioRuntime::new();
    // Unbounded: hosts must never wait for the terminal, and what they tell is little.
    let (events, inbox) = mpsc::unbounded_channel();
    let ledger = SharedLedger::default();
    let (narrator, scene) = Narrator::new(ledger.clone(), Arc::clone(&runtime));
    drop(runtime.spawn("narrator", Box::pin(narrator.run(inbox))));
    drop(events.send(Event::Chapter(INTRODUCTION.to_owned())));
    let place = if folder.is_kept() { "a store" } else { "a temporary store" };
    drop(
        events.send(Event::Say(format!(
            "{place} in {}; every write is on disk before it counts",
            folder.path().display()
        ))),
    );

    let mut stage = Stage::open(folder, args.seed, Arc::clone(&runtime), ledger.clone(), events.clone()).await?;
    let length = Duration::from_secs(u64::from(args.seconds));
    let mut scenario = Scenario::new(Arc::clone(&runtime), events.clone(), scene, length);
    let interrupted = tokio::select! {
        ran = scenario.run(&mut stage) => ran.map(|()| false)?,
        () = requests.reached(1) => true,
    };
    if interrupted {
        drop(events.send(Event::Say("asked to end: the demo ends here; ask again to exit immediately".to_owned())));
    }
    tokio::select! {
        finished = scenario.finish(&mut stage) => finished?,
        () = requests.reached(2) => return Ok(None),
    }
    stage.close().await?;
    let (shown, all_shown) = oneshot::channel();
    drop(events.send(Event::End(shown)));
    drop(all_shown.await);
    let seconds = (runtime.monotonic().as_secs_f64() * 10.0).round() / 10.0;
    Ok(Some(Outcome { totals: ledger.lock().totals(), seconds, interrupted }))
}

/// The ledger for people.
fn page(outcome: &Outcome, kept: Option<&Path>, paint: Paint, columns: Option<usize>) -> String {
    let Totals { written, delivered, duplicates, dead_letters, lost } = outcome.totals;
    let (lost_style, lost_says) = match lost {
        0 => (Style::Green, "every change is accounted for"),
        _ => (Style::Red, "this must not happen: please report it, with the output above"),
    };
    let dead_says = format!("set aside after {ATTEMPTS} attempts, with their error");
    let rows = [
        ("written", written as u64, Style::Bold, "changes acknowledged by the store"),
        ("delivered", delivered as u64, Style::Bold, "handled by a host"),
        ("duplicates", duplicates, Style::Bold, "handled again after the crash: at least once"),
        ("dead letters", dead_letters as u64, Style::Bold, dead_says.as_str()),
        ("lost", lost as u64, lost_style, lost_says),
    ];
    let mut text = format!("\n{}\n", paint.paint(Style::Bold, &format!("Ledger after {:.1} s", outcome.seconds)));
    for (name, count, style, says) in rows {
        let count = paint.paint(style, &format!("{:>9}", grouped(count)));
        if columns.is_some_and(|columns| columns < LEDGER_COLUMNS) {
            // What does not fit beside the number stands below it, broken between words.
            let says = wrapped(&format!("    {says}"), columns);
            text.push_str(&format!("  {name:<13}{count}\n{}\n", paint.paint(Style::Dim, &says)));
        } else {
            text.push_str(&format!("  {name:<13}{count}   {}\n", paint.paint(Style::Dim, says)));
        }
    }
    if let Some(folder) = kept {
        text.push_str(&format!("\nThe store stays in {}.\n", folder.display()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_fits_forty_columns_and_breaks_no_word() {
        let totals = Totals { written: 2000, delivered: 1999, duplicates: 7, dead_letters: 1, lost: 0 };
        let outcome = Outcome { totals, seconds: 21.5, interrupted: false };
        let wide = page(&outcome, None, Paint::off(), None);
        assert_eq!(wide, page(&outcome, None, Paint::off(), Some(80)));
        let narrow = page(&outcome, None, Paint::off(), Some(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&narrow), words(&wide));
    }
}
