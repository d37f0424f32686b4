//! Everything that happens to fleets, at random, for as long as it is asked for: `scripts/soak MINUTES [SEED]`. As a test
//! a short form of it.

use std::time::{Duration, Instant};

use changefeed::{
    core::{ListItems, PhysicalRange},
    remote::Server as Client,
};
use fastrand::Rng;
use serde_json::Value;

use crate::{
    block_on, connect, create_orders,
    host::Host,
    ledger::{Ledger, Writer},
    process::{Folder, Server},
    proxy::{Fault, Proxy},
    serve,
};

/// Set for a long run.
const MINUTES: &str = "CHANGEFEED_SOAK_MINUTES";

/// Set to repeat a run; the order of behaviours is the same then, what processes do meanwhile is not.
const SEED: &str = "CHANGEFEED_SOAK_SEED";

/// The short form.
const SHORT: Duration = Duration::from_secs(40);

/// About 50 orders a second: the machine does other things as well.
const PACE: Duration = Duration::from_millis(20);

/// Longer than anything takes until leases have found their owners.
const LONG: Duration = Duration::from_secs(300);

const MOST_HOSTS: usize = 4;
const RANGES: std::ops::RangeInclusive<usize> = 3..=8;

/// How long the calls of a host take: at once, shorter and longer than an acquire interval.
const CALLS: [Duration; 4] = [Duration::ZERO, Duration::ZERO, Duration::from_millis(500), Duration::from_secs(3)];

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Join,
    Leave,
    RollingRestart,
    Split,
    Merge,
    Quiet,
    KillHost,
    /// Stopped, and let go on after so many seconds: before or after its leases have expired.
    Freeze(u64),
    KillServer,
    /// Stopped in good order, and started again after so many seconds.
    RestartServer(u64),
    Cut(u64),
    Faults,
}

impl Step {
    fn random(random: &mut Rng) -> Self {
        match random.u8(..12) {
            0 => Self::Join,
            1 => Self::Leave,
            2 => Self::RollingRestart,
            3 => Self::Split,
            4 => Self::Merge,
            5 => Self::Quiet,
            6 => Self::KillHost,
            7 => Self::Freeze(random.u64(1..=16)),
            8 => Self::KillServer,
            9 => Self::RestartServer(random.u64(..=16)),
            10 => Self::Cut(random.u64(1..=16)),
            _ => Self::Faults,
        }
    }

    /// Whether nothing may come twice: all hosts live, and whoever moves or is away is waited for.
    fn is_planned(self) -> bool {
        match self {
            Self::Join | Self::Leave | Self::RollingRestart | Self::Split | Self::Merge | Self::Quiet => true,
            Self::RestartServer(_) => true,
            Self::KillHost | Self::Freeze(_) | Self::KillServer | Self::Cut(_) | Self::Faults => false,
        }
    }
}

/// The processes, and what they did.
struct Fleet {
    random: Rng,
    store: String,
    address: String,
    /// None while it is restarted.
    server: Option<Server>,
    /// Between the server and half of the hosts.
    network: Proxy,
    hosts: Vec<Host>,
    started: usize,
    writer: Writer,
    ledger: Ledger,
}

impl Fleet {
    fn start(folder: &Folder, seed: u64) -> Self {
        let store = folder.join("store");
        let server = serve(&store, "127.0.0.1:0");
        let endpoint = server.endpoint();
        create_orders(&endpoint, 4);
        let mut fleet = Self {
            random: Rng::with_seed(seed),
            store,
            address: server.address().to_string(),
            network: Proxy::start(server.address()),
            hosts: Vec::new(),
            started: 0,
            writer: Writer::with_pace(endpoint, PACE),
            ledger: Ledger::new(&folder.join("ledger")),
            server: Some(server),
        };
        fleet.join();
        fleet.join();
        fleet
    }

    fn client(&self) -> Client {
        connect(&format!("http://{}", self.address))
    }

    fn ranges(&self) -> Vec<PhysicalRange> {
        block_on(async {
            let orders = self.client().database("shop").container("orders").open().await.unwrap();
            let mut ranges = orders.feed_ranges().await.unwrap();
            ranges.sort_by(|a, b| a.range.min_inclusive().cmp(b.range.min_inclusive()));
            ranges
        })
    }

    fn join(&mut self) {
        let direct = format!("http://{}", self.address);
        let endpoint = if self.random.bool() { direct } else { self.network.endpoint() };
        self.started += 1;
        let (name, call) = (format!("h{}", self.started), CALLS[self.random.usize(..CALLS.len())]);
        self.hosts.push(Host::with_calls(&endpoint, &name, self.ledger.path(), call));
    }

    fn any_host(&mut self) -> usize {
        self.random.usize(..self.hosts.len())
    }

    /// Does it; false if it cannot be done now.
    fn perform(&mut self, step: Step) -> bool {
        match step {
            Step::Join if self.hosts.len() < MOST_HOSTS => self.join(),
            Step::Leave if self.hosts.len() > 1 => {
                let host = self.any_host();
                self.hosts.remove(host).stop();
            }
            Step::RollingRestart => {
                for _ in 0..self.hosts.len() {
                    self.hosts.remove(0).stop();
                    self.join();
                }
            }
            Step::Split if self.ranges().len() < *RANGES.end() => {
                let ranges = self.ranges();
                let range = &ranges[self.random.usize(..ranges.len())].id;
                block_on(self.client().catalog().split("shop", "orders", range, None)).unwrap();
            }
            Step::Merge if self.ranges().len() > *RANGES.start() => {
                let ranges = self.ranges();
                let left = self.random.usize(..ranges.len() - 1);
                let both = [&ranges[left].id, &ranges[left + 1].id];
                block_on(self.client().catalog().merge("shop", "orders", both)).unwrap();
            }
            Step::Quiet => pass(Duration::from_secs(3)),
            Step::KillHost if self.hosts.len() > 1 => {
                let host = self.any_host();
                self.hosts.remove(host).kill();
            }
            Step::Freeze(seconds) => {
                let host = self.any_host();
                self.hosts[host].signal("STOP");
                pass(Duration::from_secs(seconds));
                self.hosts[host].signal("CONT");
            }
            Step::KillServer => {
                self.server.take().expect("it runs").kill();
                pass(Duration::from_millis(self.random.u64(..5000)));
                self.server = Some(serve(&self.store, &self.address));
            }
            Step::RestartServer(seconds) => {
                let server = self.server.take().expect("it runs");
                server.signal("TERM");
                assert!(server.ended().0.success(), "the server ends in good order");
                pass(Duration::from_secs(seconds));
                self.server = Some(serve(&self.store, &self.address));
            }
            Step::Cut(seconds) => {
                self.network.cut();
                pass(Duration::from_secs(seconds));
                self.network.mend();
            }
            Step::Faults => {
                for call in ["write", "read_changes", "list_items", "read_item", "watch", "feed_ranges"] {
                    let stall = Fault::Stalled(Duration::from_secs(3));
                    let faults = [Fault::Refused(429), Fault::Refused(503), Fault::DroppedBefore, Fault::DroppedAfter];
                    for fault in faults.into_iter().chain([Fault::Half, stall]) {
                        self.network.inject(call, fault, self.random.usize(..3));
                    }
                }
                self.writer.writes(100);
                self.network.clear();
            }
            _ => return false,
        }
        true
    }

    /// Waits until every lease has one owner and everything written by now was delivered.
    #[expect(clippy::disallowed_methods, reason = "other processes do it, in their own time")]
    fn settle(&mut self) {
        let begin = Instant::now();
        while !settled(&self.hosts, &owners(&self.client())) {
            if begin.elapsed() > LONG {
                let hosts: Vec<_> = self.hosts.iter().map(Host::log).collect();
                panic!("leases belong to {:?}, but hosts say {hosts:#?}", owners(&self.client()));
            }
            pass(Duration::from_millis(200));
        }
        self.writer.writes(20);
        self.ledger.catches_up(&self.writer);
        // A call that was under way for a lease that its host has lost ends by now.
        pass(CALLS[CALLS.len() - 1]);
    }
}

/// The owner of each lease, as stored. A range that was merged may have several leases.
pub(crate) fn owners(client: &Client) -> Vec<Option<String>> {
    block_on(async {
        let leases = client.database("shop").container("leases").open().await.unwrap();
        let page = leases.backend().list_items(ListItems::default()).await.unwrap().into_value();
        assert!(page.next.is_none(), "one page of leases");
        let documents = page.items.iter().map(|item| serde_json::from_slice::<Value>(&item.body).unwrap());
        let leases = documents.filter(|document| document.get("LeaseToken").is_some());
        leases.map(|lease| lease.get("Owner").and_then(Value::as_str).map(str::to_owned)).collect()
    })
}

/// Whether each lease has an owner, and each host says that it owns what is stored in its name.
pub(crate) fn settled(hosts: &[Host], owners: &[Option<String>]) -> bool {
    let owned = |host: &Host| owners.iter().flatten().filter(|owner| *owner == host.name()).count();
    hosts.iter().all(|host| owned(host) == host.leases()) && hosts.iter().map(owned).sum::<usize>() == owners.len()
}

#[expect(clippy::disallowed_methods, reason = "what happens meanwhile has no sign")]
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is asked for as a time")]
fn a_fleet_loses_nothing_whatever_happens_to_it_in_whatever_order() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let (minutes, seed) = (number(MINUTES), number(SEED).unwrap_or(1));
    let time = minutes.map_or(SHORT, |minutes| Duration::from_secs(60 * minutes));
    let (begin, folder) = (Instant::now(), Folder::new());
    let mut fleet = Fleet::start(&folder, seed);
    fleet.settle();
    let mut steps = 0;
    while begin.elapsed() < time {
        let step = Step::random(&mut fleet.random);
        let before = fleet.ledger.duplicates();
        if !fleet.perform(step) {
            continue;
        }
        fleet.settle();
        let twice = fleet.ledger.duplicates() - before;
        steps += 1;
        eprintln!(
            "seed {seed}, {:>5} s, step {steps}: {step:?}; {} hosts, {} orders, {twice} delivered again",
            begin.elapsed().as_secs(),
            fleet.hosts.len(),
            fleet.writer.count()
        );
        assert!(twice == 0 || !step.is_planned(), "seed {seed}, step {steps}: {step:?} causes duplicates");
    }
    fleet.writer.stop();
    fleet.ledger.catches_up(&fleet.writer);
    fleet.hosts.drain(..).for_each(Host::stop);
    let (orders, lines, twice) = (fleet.writer.count(), fleet.ledger.len(), fleet.ledger.duplicates());
    eprintln!("seed {seed}: {steps} steps, {orders} orders, {lines} deliveries, {twice} of them again, none lost");
}
