//! `leases release`, `leases export`, `leases import`.

use std::fs;

use changefeed::{Control, ImportAction, ImportedLease, LeaseArchive, Position, ReleaseOutcome, ReleasedLease};
use serde_json::json;

use crate::{
    args::{ExportArgs, ImportArgs, ReleaseArgs},
    control::{count_of_leases, position, scope},
    exit::{EndRequests, Exit, Result, block_on, print, print_text, say},
    inspect::{on, waiting_on},
    processor_stores::{FoundStores, ProcessorStores},
    progress::Indicator,
    table::Table,
    terminal, whole_file,
};

/// `changefeed leases release`.
pub(crate) fn release(args: &ReleaseArgs) -> Result<Exit> {
    let outcome = waiting_on(&args.processor, "waiting for owners to finish their batch", async |on| {
        let control = Control::new(&on.name, &on.monitored, &on.leases);
        let release = control.release(scope(args.lease.as_deref())?).force(args.force).patience(args.wait);
        if args.dry_run {
            return Ok(Some((release.dry_run().await?, false)));
        }
        // A signal must not end it while leases are paused.
        let requests = EndRequests::listen()?;
        tokio::select! {
            biased;
            released = release.apply_unless(requests.reached(1)) => Ok(Some((released?, requests.any()))),
            () = requests.reached(2) => Ok(None),
        }
    })?;
    let Some((released, is_asked_to_end)) = outcome else {
        let name = &args.processor.name;
        say(&format!(
            "ended at once, as asked twice: leases may have been left paused: `changefeed resume {name}` lets them go on"
        ));
        return Ok(Exit::Interrupted);
    };
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&released)?))?;
    } else {
        print_text(&release_text(&released, args.dry_run))?;
    }
    let is_kept = released.iter().any(|one| one.outcome == ReleaseOutcome::Kept);
    if is_kept && is_asked_to_end {
        say("stopped before all owners had finished their batch: no lease is left paused");
        return Ok(Exit::Interrupted);
    }
    Ok(if is_kept { Exit::Unhealthy } else { Exit::Good })
}

fn release_text(released: &[ReleasedLease], dry_run: bool) -> String {
    let mut table = Table::new(["lease", "owner", "result"]);
    for ReleasedLease { lease, owner, outcome, .. } in released {
        let result = match outcome {
            ReleaseOutcome::AlreadyFree => "free already",
            ReleaseOutcome::OwnerDead => "owner is dead: freed",
            ReleaseOutcome::GivenUp => "given up after its batch",
            ReleaseOutcome::Taken => "taken from its owner",
            _ => "kept by its owner: try --force",
        };
        table.row([lease.to_string(), owner.clone().unwrap_or_else(|| "-".to_owned()), result.to_owned()]);
    }
    let end = if dry_run { "\nnothing was done\n" } else { "" };
    format!("{}{end}", table.text(terminal::columns()))
}

/// `changefeed leases export`.
pub(crate) fn export(args: &ExportArgs) -> Result<Exit> {
    let archive =
        on(&args.processor, async |on| Ok(Control::new(&on.name, &on.monitored, &on.leases).export().await?))?;
    let Some(file) = &args.to else {
        print(&archive.to_json())?;
        return Ok(Exit::Good);
    };
    whole_file::write(file, &archive.to_json()).map_err(|error| format!("write {}: {error}", file.display()))?;
    let (count, processor, file) = (archive.leases.len(), &archive.processor, file.display().to_string());
    if args.json {
        print(&format!("{}\n", json!({ "processor": processor, "leases": count, "to": file })))?;
    } else {
        print_text(&format!("{} of {processor} written to {file}\n", count_of_leases(count)))?;
    }
    Ok(Exit::Good)
}

/// `changefeed leases import`.
pub(crate) fn import(args: &ImportArgs) -> Result<Exit> {
    let shown = args.file.display();
    let text = fs::read(&args.file).map_err(|error| format!("read {shown}: {error}"))?;
    let archive = LeaseArchive::from_json(&text).map_err(|error| format!("{shown}: {error}"))?;
    let imported = block_on(async {
        let stores = match args.dry_run {
            true => ProcessorStores::open(&args.processor).await?,
            false => FoundStores::open(&args.processor).await?.or_create_leases(&args.processor).await?,
        };
        let waiting = Indicator::waiting("working on the leases");
        let control = Control::new(&stores.name, &stores.monitored, &stores.leases);
        let import = control.import(archive).accept_other_store(args.other_store).force(args.force);
        let imported = if args.dry_run { import.dry_run().await } else { import.apply().await };
        drop((import, control, waiting));
        stores.close().await?;
        imported.map_err(|error| remedy(&error))
    })?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&imported)?))?;
    } else {
        print_text(&import_text(&imported, args.dry_run))?;
    }
    Ok(Exit::Good)
}

/// The sentence with the option that allows what was refused.
fn remedy(error: &changefeed_core::Error) -> crate::exit::Error {
    match error.kind() {
        changefeed_core::ErrorKind::ForeignContinuation => format!("{error}, with --other-store").into(),
        changefeed_core::ErrorKind::Locked => format!("{error}, or pass --force").into(),
        _ => error.to_string().into(),
    }
}

fn import_text(imported: &[ImportedLease], dry_run: bool) -> String {
    let mut table = Table::new(["lease", "action", "from", "to"]);
    let shown = |found: &Option<Position>| found.as_ref().map_or_else(|| "-".to_owned(), position);
    for ImportedLease { lease, action, from, to, .. } in imported {
        let action = match action {
            ImportAction::Create => "create",
            ImportAction::Replace => "replace",
            ImportAction::Delete => "delete",
            _ => "change",
        };
        table.row([lease.to_string(), action.to_owned(), shown(from), shown(to)]);
    }
    let done = if dry_run { "would be imported; nothing was done" } else { "imported; start hosts to go on" };
    let count = imported.iter().filter(|one| one.action != ImportAction::Delete).count();
    format!("{}\n{} {done}\n", table.text(terminal::columns()), count_of_leases(count))
}
