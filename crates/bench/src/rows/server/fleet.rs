//! Hosts in processes of their own over one server: what an idle one asks for, how long 100 leases take from one process
//! to two, and how long a killed one is missed.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use changefeed::{Context as Delegated, DelegateError, LeaseTiming, Notification, Processor, RawChanges};
use changefeed_embedded::Durability;
use changefeed_remote::{EMULATOR_KEY, Server};

use super::{Context, Experiment, Goal, Row, remote::Served};
use crate::{
    Result, load,
    measure::{Measurement, Round},
    store::Store,
};

pub(super) const IDLE: Experiment = Experiment {
    rows: &[Row { name: "remote_idle_requests", unit: "requests/min", baseline: "renewals", goal: None }],
    run: idle,
};

pub(super) const BALANCE: Experiment = Experiment {
    rows: &[
        Row { name: "remote_rebalance_100_leases_join", unit: "s", baseline: "acquire_interval", goal: None },
        Row {
            name: "remote_takeover_after_kill",
            unit: "s",
            baseline: "expiration_and_acquire",
            goal: Some(Goal::RatioAtMost(1.2)),
        },
    ],
    run: balance,
};

const LEASES: usize = 100;
const IDLE_LEASES: usize = 4;

/// What hosts of a server use unless told otherwise.
const TIMING: LeaseTiming = LeaseTiming::SERVER;

/// What has not happened within this time never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// A host in a process of its own, killed when dropped.
struct Host {
    child: Child,
    owned: Arc<AtomicI64>,
}

impl Host {
    fn start(endpoint: &str, instance: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("--host-child").arg(endpoint).arg("--instance").arg(instance);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the child has no stdout")?;
        let owned = Arc::new(AtomicI64::new(0));
        let counter = Arc::clone(&owned);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                counter.fetch_add(if line == "acquired" { 1 } else { -1 }, Ordering::Relaxed);
            }
        });
        Ok(Self { child, owned })
    }

    fn owns(&self, leases: usize) -> bool {
        usize::try_from(self.owned.load(Ordering::Relaxed)) == Ok(leases)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What the child process does: a host that says what it acquires and releases.
pub(crate) fn host_until_killed(endpoint: &str, instance: &str) -> Result<()> {
    load::runtime()?.block_on(async {
        let database = Server::connect(endpoint, EMULATOR_KEY)?.database("bench");
        let (items, leases) = (database.container("items").open().await?, database.container("leases").open().await?);
        let processor = Processor::builder("fleet", &items, &leases)
            .instance_name(instance)
            .on_notification(|notification| {
                let word = match notification {
                    Notification::LeaseAcquired(_) => "acquired",
                    Notification::LeaseReleased(..) => "released",
                    _ => return,
                };
                // Whoever listened is gone, and this process is about to be killed.
                let _ = writeln!(std::io::stdout(), "{word}");
            })
            .build(|_: RawChanges, _: Delegated| async { Ok::<(), DelegateError>(()) })?;
        let _running = processor.start().await?;
        std::future::pending().await
    })
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<Duration> {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{what} did not happen within {PATIENCE:?}").into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(begin.elapsed())
}

/// A server over a new store with two containers.
fn served(context: &Context, name: &str, ranges: usize) -> Result<(crate::place::Folder, Served)> {
    let folder = context.place.folder(name)?;
    let store = folder.join("store");
    load::runtime()?.block_on(async {
        let store = Store::open(&store, Durability::Durable, ranges).await?;
        store.leases().await?;
        Ok::<_, crate::Error>(store.engine.close().await?)
    })?;
    let served = Served::start(&store)?;
    Ok((folder, served))
}

fn idle(context: &Context) -> Result<Vec<Measurement>> {
    let (_folder, served) = served(context, "remote_idle", IDLE_LEASES)?;
    let relay = Relay::start(served.address()?)?;
    let host = Host::start(&relay.endpoint, "a")?;
    until("the first start", || host.owns(IDLE_LEASES))?;
    // Until it has found out that nothing happens.
    thread::sleep(TIMING.expiration);
    let window = context.scale.idle_host;
    let before = relay.requests();
    thread::sleep(window);
    let after = relay.requests();
    let per_minute = |count: u64| count as f64 * 60.0 / window.as_secs_f64();
    let calls: BTreeMap<_, _> =
        after.iter().map(|(call, count)| (call, count - before.get(call).unwrap_or(&0))).collect();
    let renewals = IDLE_LEASES as f64 * 60.0 / TIMING.renew.as_secs_f64();
    let round = Round { baseline: renewals, subject: per_minute(calls.values().sum()) };
    let each: Vec<String> = calls.iter().map(|(call, count)| format!("{call} {:.0}", per_minute(*count))).collect();
    let note = format!("one host with {IDLE_LEASES} leases; of these {}", each.join(", "));
    Ok(vec![Measurement::of("remote_idle_requests", &[round], |value| *value).note(note)])
}

fn balance(context: &Context) -> Result<Vec<Measurement>> {
    let (_folder, served) = served(context, "remote_balance", LEASES)?;
    let first = Host::start(&served.endpoint, "first")?;
    until("the first start", || first.owns(LEASES))?;
    let (mut join, mut takeover) = (Vec::new(), Vec::new());
    for round in 0..context.scale.slow_rounds {
        let begin = Instant::now();
        let second = Host::start(&served.endpoint, &format!("second-{round}"))?;
        until("an even share", || first.owns(LEASES / 2) && second.owns(LEASES / 2))?;
        join.push(Round { baseline: TIMING.acquire.as_secs_f64(), subject: begin.elapsed().as_secs_f64() });
        // By SIGKILL.
        drop(second);
        let took = until("the takeover", || first.owns(LEASES))?;
        let wanted = TIMING.expiration + TIMING.acquire;
        takeover.push(Round { baseline: wanted.as_secs_f64(), subject: took.as_secs_f64() });
    }
    let LeaseTiming { acquire, renew, expiration } = TIMING;
    Ok(vec![
        Measurement::of("remote_rebalance_100_leases_join", &join, |value| *value)
            .note("from the start of a second process to 50 and 50; the ratio is cycles"),
        Measurement::of("remote_takeover_after_kill", &takeover, |value| *value)
            .note(format!("50 of {LEASES} leases; acquire {acquire:?}, renew {renew:?}, expiration {expiration:?}")),
    ])
}

/// Passes bytes on to a server, and counts the calls among them.
struct Relay {
    endpoint: String,
    requests: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Relay {
    fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (endpoint, requests) = (format!("http://{}", listener.local_addr()?), Arc::default());
        let counter = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().map_while(std::result::Result::ok) {
                let counter = Arc::clone(&counter);
                let Ok(upstream) = TcpStream::connect(server) else { return };
                let (Ok(from), Ok(to)) = (upstream.try_clone(), client.try_clone()) else { return };
                thread::spawn(move || pass_on(client, upstream, |bytes| count(bytes, &counter)));
                thread::spawn(move || pass_on(from, to, |_| {}));
            }
        });
        Ok(Self { endpoint, requests })
    }

    fn requests(&self) -> BTreeMap<String, u64> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..read).unwrap_or_default();
        look(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // The other direction ends with it.
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}

/// Counts requests by the last part of their path. A client sends the head of a request at once.
fn count(bytes: &[u8], counter: &Mutex<BTreeMap<String, u64>>) {
    for line in String::from_utf8_lossy(bytes).lines() {
        let path = line.strip_prefix("POST ").and_then(|line| line.strip_suffix(" HTTP/1.1"));
        if let Some(call) = path.and_then(|path| path.rsplit('/').next()) {
            *counter.lock().unwrap_or_else(PoisonError::into_inner).entry(call.to_owned()).or_default() += 1;
        }
    }
}
