//! `race-host`: a host of the race with Java's processor, started by `bench/race`. Not for use by hand.
//!
//! Lines on stdin drive it: `start key=value ...`, `go`, `stop`, `quit`. The Java host in `bench/java` understands the
//! same lines and does the same work for each change: it takes three members of the item and appends the batch to a
//! ledger, in one write.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    collections::BTreeMap,
    env,
    error::Error as StdError,
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, BufRead as _, Write as _},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use changefeed::{Changes, Context, DelegateError, LeaseTiming, Notification, Processor, Running};
use changefeed_core::{Container, StartFrom};
use changefeed_remote::{EMULATOR_KEY, Server};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

type Error = Box<dyn StdError + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// What the delegate takes of an item; `changefeed load` writes such items.
#[derive(Deserialize)]
struct Item {
    id: String,
    customer: String,
    number: u64,
}

/// A connection to the server, through one of the crates that can reach it.
enum Store {
    Remote(Server),
    #[cfg(feature = "cosmos")]
    Cosmos(changefeed_cosmos::Account),
}

impl Store {
    async fn connect(kind: &str, endpoint: &str) -> Result<Self> {
        match kind {
            "remote" => Ok(Self::Remote(Server::connect(endpoint, EMULATOR_KEY)?)),
            #[cfg(feature = "cosmos")]
            "cosmos" => {
                let key = changefeed_cosmos::Credential::Key(EMULATOR_KEY.to_owned());
                Ok(Self::Cosmos(changefeed_cosmos::Account::connect(endpoint, key).await?))
            }
            _ => Err(format!("{kind} is not a store that this program was built with").into()),
        }
    }

    /// Opens a container that is named as `database/container`.
    async fn container(&self, name: &str) -> Result<Container> {
        let (database, name) = name.split_once('/').ok_or_else(|| format!("{name} is not of the form db/name"))?;
        Ok(match self {
            Self::Remote(server) => server.database(database).container(name).open().await?,
            #[cfg(feature = "cosmos")]
            Self::Cosmos(account) => account.container(database, name).await?,
        })
    }
}

/// The words of a `start` line.
struct Given<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Given<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let pair = |word: &'a str| word.split_once('=').ok_or_else(|| format!("{word} is not of the form key=value"));
        Ok(Self(words.map(pair).collect::<std::result::Result<_, _>>()?))
    }

    fn text(&self, name: &str) -> Result<&'a str> {
        self.0.get(name).copied().ok_or_else(|| format!("{name} is missing").into())
    }

    fn number(&self, name: &str) -> Result<usize> {
        Ok(self.text(name)?.parse().map_err(|_| format!("{name} is not a number"))?)
    }

    fn millis(&self, name: &str) -> Result<Duration> {
        Ok(Duration::from_millis(u64::try_from(self.number(name)?)?))
    }
}

/// What the delegate has done, and where it writes it down.
struct Ledger {
    file: File,
    seen: usize,
    sum: u64,
}

impl Ledger {
    /// Appends a batch. When this returns the line is with the operating system: a process that is killed afterwards does
    /// not take it along.
    fn append(&mut self, line: &str, items: usize, numbers: u64) -> io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.seen += items;
        self.sum += numbers;
        writeln!(io::stdout().lock(), "seen {} {}", self.seen, self.sum)
    }
}

fn handle(changes: &Changes<Item>, ledger: &Mutex<Ledger>) -> std::result::Result<(), DelegateError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
    let mut line = String::with_capacity(32 + changes.len() * 16);
    write!(line, "{now}")?;
    let mut numbers = 0;
    for item in changes {
        if item.customer.is_empty() {
            return Err("an item without customer".into());
        }
        line.push(' ');
        line.push_str(&item.id);
        numbers += item.number;
    }
    line.push('\n');
    Ok(ledger.lock().unwrap_or_else(PoisonError::into_inner).append(&line, changes.len(), numbers)?)
}

fn show(notification: &Notification) {
    if let Notification::Error(report) = notification {
        eprintln!("error: {}", report.failure);
    }
}

/// Starts a processor; its delegate waits for the gate.
async fn start(feed: &Store, leases: &Store, instance: &str, given: &Given<'_>) -> Result<Lap> {
    let (feed, leases) =
        (feed.container(given.text("container")?).await?, leases.container(given.text("leases")?).await?);
    let file = OpenOptions::new().create(true).append(true).open(given.text("ledger")?)?;
    let ledger = Arc::new(Mutex::new(Ledger { file, seen: 0, sum: 0 }));
    let (gate, opened) = watch::channel(given.number("gate")? == 0);
    let timing = LeaseTiming {
        acquire: given.millis("acquire_ms")?,
        renew: given.millis("renew_ms")?,
        expiration: given.millis("expiration_ms")?,
    };
    let mut builder = Processor::builder(given.text("name")?, &feed, &leases)
        .instance_name(instance)
        .lease_timing(timing)
        .poll_interval(given.millis("poll_ms")?)
        .max_items(given.number("max_items")?)
        .on_notification(show);
    if given.text("from")? == "beginning" {
        builder = builder.start_from(StartFrom::Beginning);
    }
    if let most @ 1.. = given.number("max_leases")? {
        builder = builder.max_leases(most);
    }
    let processor = builder.build(move |changes: Changes<Item>, _: Context| {
        let (ledger, mut opened) = (Arc::clone(&ledger), opened.clone());
        async move {
            // The sender lives for as long as the processor; without it there is nothing to wait for.
            let _ = opened.wait_for(|open| *open).await;
            handle(&changes, &ledger)
        }
    })?;
    Ok(Lap { running: processor.start().await?, gate })
}

/// A processor that runs.
struct Lap {
    running: Running,
    gate: watch::Sender<bool>,
}

fn say(word: &str) -> Result<()> {
    Ok(writeln!(io::stdout().lock(), "{word}")?)
}

/// Lines of stdin, read by a thread of their own.
fn commands() -> mpsc::Receiver<String> {
    // One command is carried out at a time, so there is no need to have read more.
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn run() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [kind, endpoint, lease_endpoint, instance] = args.as_slice() else {
        return Err("usage: race-host remote|cosmos ENDPOINT LEASE_ENDPOINT INSTANCE; bench/race starts it".into());
    };
    let (feed, leases) = (Store::connect(kind, endpoint).await?, Store::connect(kind, lease_endpoint).await?);
    let mut commands = commands();
    let mut lap = None;
    say("ready")?;
    while let Some(line) = commands.recv().await {
        let mut words = line.split(' ');
        match words.next() {
            Some("start") => {
                lap = Some(start(&feed, &leases, instance, &Given::parse(words)?).await?);
                say("started")?;
            }
            Some("go") => {
                let lap: &Lap = lap.as_ref().ok_or("go before start")?;
                lap.gate.send_replace(true);
            }
            Some("stop") => {
                lap.take().ok_or("stop before start")?.running.stop().await?;
                say("stopped")?;
            }
            Some("quit") => break,
            _ => return Err(format!("unknown command {line}").into()),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::from);
    match runtime.and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
