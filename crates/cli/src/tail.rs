//! `changefeed tail`: the changes of a container, as they come.

use std::{
    fs,
    io::{self, ErrorKind as IoErrorKind, IsTerminal as _},
    path::Path,
    time::Duration,
};

use changefeed::{Bookmark, Pull, RawChanges};
use changefeed_core::{Change, Container, Mode, PartitionKey, StartFrom};
use changefeed_query::Condition;
use rustix::fs::{FileType, fstat};

use crate::{
    admin::no_range,
    args::TailArgs,
    change_line::{Form, lines},
    clock,
    exit::{Exit, Printed, Result, block_on, interrupted, print_off_thread},
    outage::Outage,
    progress::Indicator,
    store::{Missing, Store},
    store_health::stopped,
    whole_file,
};

/// How long to wait for a wake-up before looking again: stores that cannot tell need it.
const POLL: Duration = Duration::from_secs(1);

/// Prints changes until the end that the arguments ask for.
pub(crate) fn tail(args: &TailArgs) -> Result<Exit> {
    let condition = args.condition.as_deref().map(condition).transpose()?;
    if let Some(file) = &args.bookmark {
        // Before anything is printed that a next time could not tell from what is new.
        whole_file::check(file).map_err(|error| format!("write the bookmark {}: {error}", file.display()))?;
    }
    let store = Store::open(&args.store, Missing::Refused)?;
    block_on(async {
        let container = store.container(&args.container).await?;
        if args.all_versions {
            store.check_versions(&args.container).await?;
        }
        let mut pull = pull(args, &container).await?;
        // Those who write what is waited for need the folder, too.
        let admin = if args.once { None } else { store.offer_admin_endpoint() };
        let ended = tokio::select! {
            biased;
            error = stopped([&store]) => return Err(error),
            ended = follow(args, &container, &mut pull, condition.as_ref()) => ended?,
            () = interrupted() => Exit::Interrupted,
        };
        drop((pull, container));
        if let Some(admin) = admin {
            admin.close().await;
        }
        store.close().await?;
        Ok(ended)
    })
}

async fn follow(
    args: &TailArgs,
    container: &Container,
    pull: &mut Pull,
    condition: Option<&Condition>,
) -> Result<Exit> {
    let form = Form::on_stdout(args.json);
    let mut left = args.max.unwrap_or(u64::MAX);
    let mut outage = Outage::default();
    let mut saved = Saved::default();
    let progress = (args.once && is_seen_alone()).then(|| Indicator::counting("changes read"));
    while left > 0 {
        let page = match pull.next_page().await {
            Err(error) if !args.once && outage.may_end(&error) => {
                outage.wait(&error).await;
                continue;
            }
            read => read?,
        };
        outage.end();
        if page.is_empty() {
            saved.save(args.bookmark.as_deref(), pull)?;
            if args.once {
                break;
            }
            clock::at_most(POLL, pull.changed()).await;
            continue;
        }
        let mut changes = page.changes;
        if let Some(progress) = &progress {
            progress.inc(changes.len() as u64);
        }
        if let Some(condition) = condition {
            changes = matching(changes, condition)?;
        }
        let rest = usize::try_from(left).unwrap_or(usize::MAX);
        changes.truncate(rest);
        left -= changes.len() as u64;
        let text = lines(&RawChanges::from_container(changes, container), form, None)?;
        if print_off_thread(text).await? == Printed::NobodyReads {
            return Ok(Exit::Good);
        }
        saved.save(args.bookmark.as_deref(), pull)?;
    }
    Ok(Exit::Good)
}

/// Whether nothing else writes to the terminal that may be stderr, as a program behind a pipe may.
fn is_seen_alone() -> bool {
    let stdout = io::stdout();
    stdout.is_terminal() || fstat(&stdout).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_file())
}

/// The reader, where the bookmark or else the arguments say.
async fn pull(args: &TailArgs, container: &Container) -> Result<Pull> {
    let mode = if args.all_versions { Mode::AllVersions } else { Mode::LatestVersion };
    // A bookmark stands after a page: a page that is printed in part would have its rest passed over.
    let most = if args.max.is_some() && args.bookmark.is_some() { 1 } else { 1000 };
    if let Some(bookmark) = args.bookmark.as_deref().map(saved).transpose()?.flatten() {
        check_bookmark(args, container, &bookmark).await?;
        return Ok(Pull::resume(container, &bookmark)?.mode(mode).max_items(most));
    }
    let start = StartFrom::from(args.from);
    let pull = match (&args.key, &args.range) {
        (Some(key), _) => Pull::partition_key(container, partition_key(key)?, start)?,
        (None, Some(range)) => {
            let ranges = container.feed_ranges().await?;
            let Some(found) = ranges.iter().find(|found| found.id.to_string() == *range) else {
                return Err(no_range(range, &ranges).into());
            };
            Pull::range(container, found.range.clone(), start)
        }
        (None, None) => Pull::container(container, start),
    };
    Ok(pull.mode(mode).max_items(most))
}

/// Refuses a bookmark of other keys than those that the arguments name. A range that has been split since is no longer
/// there, and its bookmark goes on in its children.
async fn check_bookmark(args: &TailArgs, container: &Container, bookmark: &Bookmark) -> Result<()> {
    let (option, wanted) = match (&args.key, &args.range) {
        (Some(key), _) => {
            let range = container.identity().partition_key.key_range(&partition_key(key)?)?;
            (format!("--key {key}"), Some(range))
        }
        (None, Some(id)) => {
            let ranges = container.feed_ranges().await?;
            let found = ranges.into_iter().find(|found| found.id.to_string() == *id);
            (format!("--range {id}"), found.map(|found| found.range))
        }
        (None, None) => return Ok(()),
    };
    let (Some(wanted), Some(file)) = (wanted, &args.bookmark) else { return Ok(()) };
    if bookmark.range().as_ref() == Some(&wanted) {
        return Ok(());
    }
    let message = format!(
        "the bookmark {} was made for other keys than {option}: pass another file, or leave {option} out to go on with \
         the keys of the bookmark",
        file.display()
    );
    Err(message.into())
}

/// A partition key as it is typed: a JSON array of its values, or a text.
pub(crate) fn partition_key(text: &str) -> Result<PartitionKey> {
    if text.starts_with('[') {
        return Ok(text.parse().map_err(|error| format!("--key {text}: {error}"))?);
    }
    Ok(PartitionKey::from(text))
}

/// The condition of `--where`.
fn condition(text: &str) -> Result<Condition> {
    const BEFORE: &str = "FROM c WHERE ";
    Condition::parse(&format!("{BEFORE}{text}")).map_err(|mut error| {
        if error.line == 1 {
            error.column = error.column.saturating_sub(BEFORE.len() as u32).max(1);
        }
        format!("--where {text}: {error}: write a condition on c, such as 'c.total > 100'").into()
    })
}

/// The changes whose item, or where it was deleted the one before, fits.
fn matching(changes: Vec<Change>, condition: &Condition) -> Result<Vec<Change>> {
    let now = i64::try_from(clock::now().as_millis()).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for change in changes {
        let body = change.current.as_ref().or(change.previous.as_ref());
        let fits = match body {
            Some(body) => condition
                .holds(body, now, &|| false)
                .map_err(|error| format!("--where cannot be checked on item {}: {error}", change.id))?,
            None => false,
        };
        if fits {
            found.push(change);
        }
    }
    Ok(found)
}

fn saved(file: &Path) -> Result<Option<Bookmark>> {
    let shown = file.display();
    match fs::read_to_string(file) {
        Ok(text) => {
            let bookmark = text.trim().parse().map_err(|error| {
                format!("the bookmark {shown} cannot be read: {error}: delete the file to begin at --from")
            })?;
            Ok(Some(bookmark))
        }
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("read the bookmark {shown}: {error}").into()),
    }
}

/// The bookmark as it is in its file.
#[derive(Default)]
struct Saved(Option<String>);

impl Saved {
    /// Keeps the position, unless it is still the same: each write waits for the disk.
    fn save(&mut self, file: Option<&Path>, pull: &Pull) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        let text = format!("{}\n", pull.bookmark());
        if self.0.as_ref() != Some(&text) {
            whole_file::write(file, &text)
                .map_err(|error| format!("write the bookmark {}: {error}", file.display()))?;
            self.0 = Some(text);
        }
        Ok(())
    }
}
