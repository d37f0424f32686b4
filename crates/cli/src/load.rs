//! `changefeed load`: a writer, to try things out.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use changefeed_core::{Container, Error, ErrorKind};
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, task::JoinSet};

use crate::{
    args::LoadArgs,
    clock,
    count::count_of,
    exit::{Exit, Result, block_on, interrupted, print, print_text, warn, with_causes},
    outage::{may_pass, pause},
    progress::Indicator,
    store::{Missing, NewContainer, Store},
    store_health::stopped,
};

/// How often a write that the store could not take is tried again before `load` gives up.
const ATTEMPTS: u32 = 10;

/// Writes until the end that the arguments ask for.
pub(crate) fn load(args: &LoadArgs) -> Result<Exit> {
    let ledger = args.ledger.as_deref().map(open_ledger).transpose()?;
    let store = Store::open(&args.store, if args.create { Missing::Created } else { Missing::Refused })?;
    block_on(async {
        let new = NewContainer {
            partition_key: Some(&args.partition_key),
            ranges: usize::from(args.ranges),
            retention: (args.retention > 0).then(|| Duration::from_secs(u64::from(args.retention) * 60)),
        };
        let container = store.container_or_new(&args.container, new).await?;
        // Hosts and looks from outside need the folder, too.
        let admin = store.offer_admin_endpoint();
        let loader = Arc::new(Loader {
            prefix: args.prefix.clone().unwrap_or_else(|| format!("{:08x}", fastrand::u32(..))),
            container,
            next: AtomicU64::new(0),
            written: AtomicU64::new(0),
            count: args.count.unwrap_or(u64::MAX),
            keys: args.keys,
            size: args.size,
            ledger: ledger.map(Mutex::new),
            progress: match args.count {
                Some(count) => Indicator::of(count, "items"),
                None => Indicator::counting("items"),
            },
            failing: parking_lot::Mutex::default(),
            warned: AtomicBool::new(false),
        });
        let begin = clock::instant();
        let mut writers = JoinSet::new();
        for _ in 0..args.concurrency {
            writers.spawn(Arc::clone(&loader).write(args.rate, begin));
        }
        let ended = tokio::select! {
            biased;
            error = stopped([&store]) => Err(error),
            ended = all(&mut writers) => ended.map(|()| Exit::Good),
            () = interrupted() => match loader.failing.lock().take() {
                Some(error) => Err(format!("interrupted while writes fail: {error}").into()),
                None => Ok(if args.count.is_some() { Exit::Interrupted } else { Exit::Good }),
            },
        };
        // Writes under way are given up; if they land, nobody was told that they did.
        writers.shutdown().await;
        let (written, seconds) = (loader.written.load(Ordering::Acquire), begin.elapsed().as_secs_f64());
        drop(loader);
        if let Some(admin) = admin {
            admin.close().await;
        }
        let closed = store.close().await;
        let exit = ended.map_err(|error| with_written(args, &*error, written))?;
        closed?;
        report(args, written, seconds)?;
        Ok(exit)
    })
}

/// The error of a load that was cut short, with what was done before and what to do next.
fn with_written(args: &LoadArgs, error: &(dyn std::error::Error + Send + Sync), written: u64) -> String {
    let items = count_of(written, "item");
    let listed = match &args.ledger {
        Some(file) => format!(", listed in {}", file.display()),
        None => String::new(),
    };
    format!(
        "{}; {items} acknowledged before{listed}: repair the cause and run `load` again for the rest",
        with_causes(error)
    )
}

fn report(args: &LoadArgs, written: u64, seconds: f64) -> Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = written as f64 / seconds.max(0.001);
    if args.json {
        let done = json!({ "written": written, "seconds": seconds, "container": args.container.to_string() });
        print(&format!("{done}\n"))?;
    } else {
        let items = count_of(written, "item");
        print_text(&format!("{items} written to {} in {seconds:.1} s, {rate:.0} a second\n", args.container))?;
    }
    Ok(())
}

async fn all(writers: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok(())
}

/// What the writers share.
struct Loader {
    prefix: String,
    container: Container,
    next: AtomicU64,
    written: AtomicU64,
    count: u64,
    keys: u64,
    size: usize,
    ledger: Option<Mutex<File>>,
    progress: Indicator,
    /// Why the last attempt of a write failed, until one succeeds.
    failing: parking_lot::Mutex<Option<String>>,
    /// Whether it was said that writes fail.
    warned: AtomicBool,
}

impl Loader {
    async fn write(self: Arc<Self>, rate: Option<f64>, begin: Instant) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::AcqRel);
            if number >= self.count {
                return Ok(());
            }
            if let Some(rate) = rate {
                #[expect(clippy::cast_precision_loss, reason = "a pace")]
                let due = number as f64 / rate;
                // Later than any time there is: never.
                let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
                clock::sleep(due.saturating_sub(begin.elapsed())).await;
            }
            self.write_one(number).await?;
        }
    }

    async fn write_one(&self, number: u64) -> Result<()> {
        let item = self.item(number);
        let mut attempt = 1;
        let written = loop {
            match self.container.upsert(&item).await {
                Ok(written) => break written,
                Err(error) if attempt < ATTEMPTS && may_pass(error.kind()) => {
                    self.note_failure(&error);
                    clock::sleep(pause(&error, attempt)).await;
                    attempt += 1;
                }
                Err(error) => return Err(error.into()),
            }
        };
        if let Some(ledger) = &self.ledger {
            let line = format!("{} {}\n", written.id, written.lsn);
            ledger.lock().await.write_all(line.as_bytes()).map_err(|error| format!("write the ledger: {error}"))?;
        }
        self.written.fetch_add(1, Ordering::AcqRel);
        self.failing.lock().take();
        self.progress.inc(1);
        Ok(())
    }

    /// Says once that a write failed and is repeated; a store that throttles is no failure.
    fn note_failure(&self, error: &Error) {
        let text = with_causes(error);
        if error.kind() != ErrorKind::Throttled && !self.warned.swap(true, Ordering::AcqRel) {
            warn(&format!("a write failed and is repeated: {text}"));
        }
        *self.failing.lock() = Some(text);
    }

    /// An item with the container's partition key, of about the size that was asked for.
    fn item(&self, number: u64) -> Value {
        let mut item = Map::new();
        item.insert("id".to_owned(), format!("{}-{number}", self.prefix).into());
        item.insert("number".to_owned(), number.into());
        let mut item = Value::Object(item);
        let key = number % self.keys;
        for path in self.container.identity().partition_key.paths() {
            set(&mut item, path, &format!("k{key}"));
        }
        let left = self.size.saturating_sub(item.to_string().len() + 11);
        if left > 0 {
            set(&mut item, "/padding", &"x".repeat(left));
        }
        item
    }
}

/// Sets the member at a path such as `/address/city`, unless it is there.
fn set(item: &mut Value, path: &str, text: &str) {
    let mut place = item;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let name = name.trim_matches('"');
        if !place.is_object() {
            *place = json!({});
        }
        let Some(members) = place.as_object_mut() else { return };
        place = members.entry(name).or_insert(Value::Null);
    }
    if place.is_null() {
        *place = text.into();
    }
}

fn open_ledger(file: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .map_err(|error| format!("open the ledger {}: {error}", file.display()).into())
}
