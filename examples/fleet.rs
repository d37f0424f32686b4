//! One host of a fleet: hosts in as many processes and on as many machines as you start share the work of a processor
//! through a server.
//!
//! Run it with `cargo run --release -p changefeed --features remote --example fleet -- --endpoint http://localhost:8081
//! --instance a --ledger a.txt`. It appends `id LSN instance` to the ledger for each change, and ends in good order on
//! SIGTERM and Ctrl-C. With `--call-millis 3000` each delegate call takes three seconds, as real work may. The key is
//! that of emulators unless the variable `CHANGEFEED_KEY` holds another; for a server with a certificate of its own,
//! `CHANGEFEED_CA_FILE` names the file that holds it; it is read again when the certificate has changed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "an example shows what happens, in real time"
)]

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::Write as _,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{
    Context, Latest, Notification, Processor, ProcessorBuilder, RawChanges,
    core::{Container, ErrorKind, StartFrom},
    remote::{EMULATOR_KEY, Server},
};
use tokio::signal::unix::{SignalKind, signal};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "usage: fleet --endpoint URL --instance NAME --ledger FILE [--processor NAME] [--leases db/name] \
                     [--container db/name] [--call-millis N]";

/// The arguments of a host.
pub struct Args {
    endpoint: String,
    instance: String,
    ledger: String,
    processor: String,
    container: String,
    leases: String,
    call: Duration,
}

impl Args {
    /// Reads `--name value` pairs.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut given = BTreeMap::new();
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value; {USAGE}"))?;
            given.insert(name, value);
        }
        let mut take = |name: &str, default: Option<&str>| {
            let value = given.remove(name).or_else(|| default.map(str::to_owned));
            value.ok_or_else(|| format!("{name} is missing; {USAGE}"))
        };
        let args = Self {
            endpoint: take("--endpoint", None)?,
            instance: take("--instance", None)?,
            ledger: take("--ledger", None)?,
            processor: take("--processor", Some("fleet"))?,
            container: take("--container", Some("shop/orders"))?,
            leases: take("--leases", Some("shop/leases"))?,
            call: Duration::from_millis(take("--call-millis", Some("0"))?.parse()?),
        };
        match given.keys().next() {
            Some(unknown) => Err(format!("{unknown} is not known; {USAGE}").into()),
            None => Ok(args),
        }
    }
}

/// Opens a container, whatever its settings, or creates it with this partition key and so many ranges if there is none.
async fn container(server: &Server, name: &str, partition_key: &str, ranges: usize) -> Result<Container> {
    let (database, name) = name.split_once('/').ok_or_else(|| format!("{name} is not of the form db/name"))?;
    let container = || server.database(database).container(name).partition_key(partition_key).ranges(ranges);
    match container().open().await {
        Err(error) if matches!(error.kind(), ErrorKind::ContainerNotFound | ErrorKind::DatabaseNotFound) => {
            Ok(container().open_or_create().await?)
        }
        opened => Ok(opened?),
    }
}

fn server(endpoint: &str) -> Result<Server> {
    let key = env::var("CHANGEFEED_KEY").unwrap_or_else(|_| EMULATOR_KEY.to_owned());
    let server = Server::builder(endpoint, &key);
    Ok(match env::var("CHANGEFEED_CA_FILE") {
        Ok(file) => server.certificate_file(file).connect()?,
        Err(_) => server.connect()?,
    })
}

/// Appends one line for each change. When it returns the lines are with the operating system: a process that is killed
/// afterwards does not take them along.
fn note(ledger: &Mutex<File>, changes: &RawChanges, instance: &str) -> std::io::Result<()> {
    let mut lines = String::new();
    for change in changes.iter() {
        let _ = writeln!(lines, "{} {} {instance}", change.id, change.lsn);
    }
    let mut ledger = ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    ledger.write_all(lines.as_bytes())?;
    ledger.flush()
}

fn show(notification: &Notification) {
    match notification {
        Notification::LeaseAcquired(lease) => println!("acquired {lease}"),
        Notification::LeaseReleased(lease, _) => println!("released {lease}"),
        Notification::Error(report) => eprintln!("error: {}", report.failure),
        _ => {}
    }
}

/// Runs a host on a server until a signal asks it to stop.
pub async fn run(args: impl IntoIterator<Item = String>) -> Result<()> {
    let args = Args::parse(args)?;
    let server = server(&args.endpoint)?;
    let orders = container(&server, &args.container, "/customer", 4).await?;
    let leases = container(&server, &args.leases, "/id", 1).await?;
    host(Processor::builder(args.processor.as_str(), &orders, &leases), args).await
}

/// Runs a host of a processor until a signal asks it to stop.
pub async fn host(processor: ProcessorBuilder<Latest>, args: Args) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let ledger = Arc::new(Mutex::new(OpenOptions::new().create(true).append(true).open(&args.ledger)?));

    let (instance, call) = (Arc::<str>::from(args.instance.as_str()), args.call);
    let processor =
        processor.instance_name(args.instance).start_from(StartFrom::Beginning).on_notification(show).build(
            move |changes: RawChanges, _: Context| {
                let (ledger, instance) = (Arc::clone(&ledger), Arc::clone(&instance));
                async move {
                    if !call.is_zero() {
                        tokio::time::sleep(call).await;
                    }
                    Ok(note(&ledger, &changes, &instance)?)
                }
            },
        )?;
    let running = processor.start().await?;
    println!("started");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    running.stop().await?;
    println!("stopped");
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(env::args().skip(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
