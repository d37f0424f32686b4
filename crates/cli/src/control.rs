//! `seek`, `pause`, `resume`: operator commands, written into leases for their owners to see.

use changefeed::{Control, Estimator, LeaseState, LeaseToken, Moved, Position, Scope};

use crate::{
    args::{PauseArgs, SeekArgs},
    change_line::time,
    count::count_of,
    exit::{Exit, Result, print, print_text},
    inspect::on,
    processor_stores::ProcessorStores,
    table::Table,
    terminal,
};

/// `changefeed seek`.
pub(crate) fn seek(args: &SeekArgs) -> Result<Exit> {
    let moved = on(&args.processor, async |on| {
        let control = Control::new(&on.name, &on.monitored, &on.leases);
        let seek = control.seek(args.to.into(), scope(args.lease.as_deref())?);
        Ok(if args.dry_run { seek.dry_run().await? } else { seek.apply().await? })
    })?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&moved)?))?;
    } else {
        print_text(&seek_text(&moved, args.dry_run))?;
    }
    Ok(Exit::Good)
}

fn seek_text(moved: &[Moved], dry_run: bool) -> String {
    let mut table = Table::new(["lease", "owner", "from", "to"]);
    for Moved { lease, owner, from, to, .. } in moved {
        let owner = owner.clone().unwrap_or_else(|| "-".to_owned());
        table.row([lease.to_string(), owner, position(from), position(to)]);
    }
    let done = if dry_run {
        "would be moved; nothing was done"
    } else {
        "moved; calls that run now may finish, and store nothing"
    };
    format!("{}\n{} {done}\n", table.text(terminal::columns()), count_of_leases(moved.len()))
}

/// A position for people: stores say it as a quoted LSN, or as a text of their own.
pub(crate) fn position(position: &Position) -> String {
    match position {
        Position::Time(moment) => time(*moment),
        Position::Continuation(token) => match token.trim_matches('"').parse::<u64>() {
            Ok(lsn) => format!("after lsn {lsn}"),
            Err(_) => token.clone(),
        },
        other => other.to_string(),
    }
}

/// Whether work is to end or to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Paused,
    Resumed,
}

/// `changefeed pause` and `changefeed resume`.
pub(crate) fn pause(args: &PauseArgs, wanted: Wanted) -> Result<Exit> {
    let changed = on(&args.processor, async |on| {
        let control = Control::new(&on.name, &on.monitored, &on.leases);
        let scope = scope(args.lease.as_deref())?;
        match wanted {
            _ if args.dry_run => would_change(on, &scope, wanted).await,
            Wanted::Paused => Ok(control.pause(scope).await?),
            Wanted::Resumed => Ok(control.resume(scope).await?),
        }
    })?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&changed)?))?;
        return Ok(Exit::Good);
    }
    let verb = if wanted == Wanted::Paused { "paused" } else { "resumed" };
    let tokens: Vec<&str> = changed.iter().map(LeaseToken::as_str).collect();
    print_text(&match (tokens.as_slice(), args.dry_run) {
        ([], _) => format!("nothing to do: no lease that is meant can be {verb}\n"),
        (tokens, true) => format!("{} would be {verb}: {}\n", count_of_leases(tokens.len()), tokens.join(", ")),
        (tokens, false) => format!("{} {verb}: {}\n", count_of_leases(tokens.len()), tokens.join(", ")),
    })?;
    Ok(Exit::Good)
}

async fn would_change(on: &ProcessorStores, scope: &Scope, wanted: Wanted) -> Result<Vec<LeaseToken>> {
    let lag = Estimator::new(&on.name, &on.monitored, &on.leases).lag().await?;
    if let Scope::Lease(token) = scope
        && !lag.leases.iter().any(|lease| lease.lease == *token)
    {
        let known: Vec<&str> = lag.leases.iter().map(|lease| lease.lease.as_str()).collect();
        return Err(format!("there is no lease {token}: the leases are {}", known.join(", ")).into());
    }
    if let (Scope::All, Some(document)) = (scope, lag.broken.first()) {
        return Err(
            format!("nothing would be done: lease document {document}; see `changefeed explain {}`", on.name).into()
        );
    }
    let is_meant =
        |token: &LeaseToken| matches!(scope, Scope::All) || matches!(scope, Scope::Lease(one) if one == token);
    let is_paused = |state: LeaseState| state == LeaseState::Paused;
    let found = lag.leases.into_iter().filter(|lease| {
        is_meant(&lease.lease)
            && !matches!(lease.state, LeaseState::Missing | LeaseState::Broken)
            && is_paused(lease.state) != (wanted == Wanted::Paused)
    });
    Ok(found.map(|lease| lease.lease).collect())
}

pub(crate) fn scope(lease: Option<&str>) -> Result<Scope> {
    Ok(match lease {
        Some(token) => Scope::Lease(token.parse().map_err(|error| format!("--lease {token}: {error}"))?),
        None => Scope::All,
    })
}

pub(crate) fn count_of_leases(count: usize) -> String {
    count_of(count as u64, "lease")
}

#[cfg(test)]
mod tests {
    use changefeed_core::Timestamp;

    use super::*;

    #[test]
    fn positions_are_shown_as_people_read_them() {
        let time = Position::Time(Timestamp::from_millis(1_767_225_600_000));
        assert_eq!(position(&time), "2026-01-01T00:00:00.000Z");
        assert_eq!(position(&Position::Continuation("\"17\"".to_owned())), "after lsn 17");
        assert_eq!(position(&Position::Continuation("0/1A2B".to_owned())), "0/1A2B");
        assert_eq!(position(&Position::Start), "start");
    }
}
