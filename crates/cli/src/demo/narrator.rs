//! The narrator: turns what hosts tell into sentences, keeps the state that the scenario waits for, and shows both: as a
//! picture on a terminal, otherwise as lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use changefeed::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    host_event::HostEvent,
    ledger::SharedLedger,
    picture::{Picture, Shown, ShownHost},
    stage::ATTEMPTS,
    terminal::{Paint, Style, grouped, is_capable, line},
};

/// Between two drawings of the status on a terminal.
const REDRAW: Duration = Duration::from_millis(100);

/// Between two lines of status where nothing can be redrawn.
const REPEAT: Duration = Duration::from_secs(2);

/// Something to print.
#[derive(Debug)]
pub(crate) enum Event {
    /// A new chapter of the scenario begins.
    Chapter(String),
    /// A sentence of the scenario.
    Say(String),
    /// A host is about to start, as this process.
    Starting(&'static str, u32),
    /// A host was ended without warning.
    Died(&'static str),
    /// A host tells something.
    Host(&'static str, HostEvent),
    /// The end; replies when everything was printed.
    End(oneshot::Sender<()>),
}

/// Hosts and their leases, by the notifications so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Running hosts with their leases.
    pub(crate) hosts: BTreeMap<&'static str, BTreeSet<String>>,
    /// Leases of a dead host whose new owners still have to catch up.
    pub(crate) catching_up: BTreeSet<String>,
    /// Items in the dead-letter container.
    pub(crate) dead_letters: usize,
    /// Splits that a host has followed.
    pub(crate) splits: usize,
}

impl Scene {
    /// Whether all `ranges` have an owner.
    pub(crate) fn is_covered(&self, ranges: usize) -> bool {
        self.hosts.values().map(BTreeSet::len).sum::<usize>() == ranges
    }

    /// Whether all `ranges` have an owner, and no host has two more than another.
    pub(crate) fn is_balanced(&self, ranges: usize) -> bool {
        let counts = || self.hosts.values().map(BTreeSet::len);
        self.is_covered(ranges) && counts().max().unwrap_or(0) - counts().min().unwrap_or(0) <= 1
    }

    fn owner(&self, lease: &str) -> Option<&'static str> {
        self.hosts.iter().find(|(_, leases)| leases.contains(lease)).map(|(host, _)| *host)
    }
}

/// What the narrator knows of hosts and leases.
#[derive(Debug)]
pub(crate) struct Memory {
    paint: Paint,
    pub(crate) scene: Scene,
    /// Leases of hosts that died: whose, and when.
    orphans: BTreeMap<String, (&'static str, Duration)>,
    /// Leases on their way from one host to another: the giver often reports first.
    given: BTreeMap<String, &'static str>,
    dead: BTreeSet<&'static str>,
}

impl Memory {
    pub(crate) fn new(paint: Paint) -> Self {
        Self { paint, scene: Scene::default(), orphans: BTreeMap::new(), given: BTreeMap::new(), dead: BTreeSet::new() }
    }

    /// Applies an event; returns the sentence to print, if any.
    pub(crate) fn apply(&mut self, event: &Event, now: Duration) -> Option<String> {
        match event {
            Event::Chapter(_) | Event::End(_) => None,
            Event::Say(text) => Some(text.clone()),
            Event::Starting(host, _) => {
                self.scene.hosts.insert(host, BTreeSet::new());
                None
            }
            Event::Died(host) => {
                self.dead.insert(host);
                let leases = self.scene.hosts.remove(host).unwrap_or_default();
                let names: Vec<String> = leases.iter().cloned().collect();
                self.orphans.extend(leases.into_iter().map(|lease| (lease, (*host, now))));
                let (host, names) = (self.host(host), names.join(" and "));
                Some(format!("{host} died without warning, with range {names}: nobody reads there now"))
            }
            Event::Host(host, _) if self.dead.contains(host) => None,
            Event::Host(host, event) => self.told(host, event, now),
        }
    }

    fn told(&mut self, host: &'static str, event: &HostEvent, now: Duration) -> Option<String> {
        let name = self.host(host);
        match event {
            HostEvent::Acquired { lease } => Some(self.acquired(host, lease, now)),
            HostEvent::Released { lease, lost, handed_over } => {
                let ours = self.scene.hosts.entry(host).or_default().remove(lease);
                if *handed_over && ours {
                    self.given.insert(lease.clone(), host);
                }
                lost.as_ref().map(|loss| format!("{name} lost range {lease}: {loss}"))
            }
            HostEvent::Split { parent, children } => {
                self.scene.splits += 1;
                let children = children.join(" and ");
                Some(format!("{name} follows: ranges {children} go on exactly where range {parent} had got to"))
            }
            HostEvent::DeadLettered { lease, item } => {
                self.scene.dead_letters += 1;
                let item = self.paint.paint(Style::Red, item);
                Some(format!("{name} puts {item} into the dead-letter container; range {lease} goes on"))
            }
            HostEvent::CaughtUp { lease } if self.scene.catching_up.remove(lease) => {
                Some(format!("{name} has caught up on range {lease}"))
            }
            HostEvent::Refused { item, attempt, reason } => {
                let item = self.paint.paint(Style::Red, item);
                Some(format!("{name} cannot handle {item}, attempt {attempt} of {ATTEMPTS}: {reason}"))
            }
            HostEvent::Failed { message } => Some(format!("{name} reports: {message}")),
            HostEvent::Started
            | HostEvent::Handled { .. }
            | HostEvent::BatchDone { .. }
            | HostEvent::CaughtUp { .. } => None,
        }
    }

    fn acquired(&mut self, host: &'static str, lease: &str, now: Duration) -> String {
        let before = self.scene.owner(lease).filter(|before| *before != host);
        if let Some(before) = before {
            self.scene.hosts.entry(before).or_default().remove(lease);
        }
        let before = self.given.remove(lease).or(before);
        self.scene.hosts.entry(host).or_default().insert(lease.to_owned());
        let name = self.host(host);
        if let Some((late, died)) = self.orphans.remove(lease) {
            self.scene.catching_up.insert(lease.to_owned());
            let seconds = now.saturating_sub(died).as_secs_f64();
            return format!("{name} takes over range {lease}, {seconds:.1} s after {} died", self.host(late));
        }
        match before {
            Some(before) => format!("{name} gets range {lease} from {}", self.host(before)),
            None => format!("{name} takes range {lease}"),
        }
    }

    /// The host's name in its colour.
    pub(crate) fn host(&self, name: &str) -> String {
        let style = match name.bytes().next().unwrap_or_default() % 5 {
            0 => Style::Magenta,
            1 => Style::Yellow,
            2 => Style::Cyan,
            3 => Style::Green,
            _ => Style::Blue,
        };
        self.paint.paint(style, name)
    }
}

/// Shows events as they happen.
pub(crate) struct Narrator {
    memory: Memory,
    /// What is shown on a terminal; none where only lines can be written.
    picture: Option<(Picture, Shown)>,
    /// Each host's process and how much it handled.
    processes: BTreeMap<&'static str, (u32, u64)>,
    ledger: SharedLedger,
    runtime: Arc<dyn Runtime>,
    scene: watch::Sender<Scene>,
}

impl Narrator {
    /// A narrator on stderr, and the scene as it changes.
    pub(crate) fn new(ledger: SharedLedger, runtime: Arc<dyn Runtime>) -> (Self, watch::Receiver<Scene>) {
        let (scene, seen) = watch::channel(Scene::default());
        let picture = is_capable(&io::stderr()).then(Picture::below_cursor).flatten();
        let paint = if picture.is_some() { Paint::off() } else { Paint::on(&io::stderr()) };
        let picture = picture.map(|picture| (picture, Shown::default()));
        let memory = Memory::new(paint);
        (Self { memory, picture, processes: BTreeMap::new(), ledger, runtime, scene }, seen)
    }

    /// Shows events until the end.
    pub(crate) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Event>) {
        let every = if self.picture.is_some() { REDRAW } else { REPEAT };
        let mut redraw = self.runtime.sleep(every);
        loop {
            tokio::select! {
                biased;
                event = inbox.recv() => match event {
                    None => return,
                    Some(Event::End(shown)) => {
                        if self.picture.is_some() {
                            self.draw();
                        }
                        if let Some((picture, _)) = self.picture.take() {
                            picture.leave();
                        }
                        // The receiver may be gone.
                        let _ = shown.send(());
                        return;
                    }
                    Some(event) => self.show(&event),
                },
                () = &mut redraw => {
                    redraw = self.runtime.sleep(every);
                    self.draw();
                }
            }
        }
    }

    fn show(&mut self, event: &Event) {
        let now = self.runtime.monotonic();
        match event {
            Event::Chapter(title) => match &mut self.picture {
                Some((_, shown)) => shown.chapter.clone_from(title),
                None => line(&format!("\n{}", self.memory.paint.paint(Style::Bold, title))),
            },
            Event::Starting(host, process) => drop(self.processes.insert(host, (*process, 0))),
            Event::Host(host, HostEvent::Handled { .. }) => {
                if let Some((_, handled)) = self.processes.get_mut(host) {
                    *handled += 1;
                }
                // Too many to look at each.
                return;
            }
            _ => {}
        }
        let text = self.memory.apply(event, now);
        self.scene.send_replace(self.memory.scene.clone());
        let Some(text) = text else { return };
        match &mut self.picture {
            Some((_, shown)) => {
                shown.say(format!("{}  {text}", clock(now)));
                self.draw();
            }
            None => line(&format!("{}  {text}", self.memory.paint.paint(Style::Dim, &clock(now)))),
        }
    }

    fn draw(&mut self) {
        let clock = clock(self.runtime.monotonic());
        let totals = self.ledger.lock().totals();
        if let Some((picture, shown)) = &mut self.picture {
            (shown.clock, shown.totals) = (clock, totals);
            shown.hosts = shown_hosts(&self.memory, &self.processes);
            picture.draw(shown);
            return;
        }
        let number = |number: usize| grouped(number as u64);
        let hosts = self.memory.scene.hosts.iter();
        let living = hosts.map(|(host, leases)| format!("{} {}", self.memory.host(host), leases.len()));
        let dead = self.memory.dead.iter().map(|host| format!("{host} dead"));
        let hosts: Vec<_> = living.chain(dead).collect();
        let hosts = if hosts.is_empty() { String::new() } else { format!(" · ranges: {}", hosts.join(", ")) };
        line(&format!(
            "{clock}  {} written, {} delivered, {} to go{hosts}",
            number(totals.written),
            number(totals.delivered),
            number(totals.lost)
        ));
    }
}

fn shown_hosts(memory: &Memory, processes: &BTreeMap<&'static str, (u32, u64)>) -> Vec<ShownHost> {
    let shown = processes.iter().map(|(name, (process, handled))| ShownHost {
        name: (*name).to_owned(),
        process: *process,
        ranges: memory.scene.hosts.get(name).map(|leases| leases.iter().cloned().collect()).unwrap_or_default(),
        handled: *handled,
        is_dead: memory.dead.contains(name),
    });
    shown.collect()
}

fn clock(now: Duration) -> String {
    format!("{:5.1} s", now.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquired(host: &'static str, token: &str) -> Event {
        Event::Host(host, HostEvent::Acquired { lease: token.to_owned() })
    }

    #[test]
    fn a_takeover_is_reported_with_its_time_and_its_end() {
        let mut memory = Memory::new(Paint::off());
        let mut apply = |event: Event, second: u64| memory.apply(&event, Duration::from_secs(second));
        assert_eq!(apply(Event::Starting("ada", 1), 0), None);
        assert_eq!(apply(acquired("ada", "1"), 1).unwrap(), "ada takes range 1");
        assert_eq!(
            apply(Event::Died("ada"), 2).unwrap(),
            "ada died without warning, with range 1: nobody reads there now"
        );
        assert_eq!(apply(acquired("ada", "3"), 2), None, "notifications of a dead host are ignored");
        assert_eq!(apply(acquired("bob", "1"), 4).unwrap(), "bob takes over range 1, 2.0 s after ada died");
        let caught_up = || Event::Host("bob", HostEvent::CaughtUp { lease: "1".to_owned() });
        assert_eq!(apply(caught_up(), 5).unwrap(), "bob has caught up on range 1");
        assert_eq!(apply(caught_up(), 6), None, "only once");
    }

    #[test]
    fn a_hand_over_moves_the_range_whichever_side_reports_first() {
        let released =
            || Event::Host("bob", HostEvent::Released { lease: "1".to_owned(), lost: None, handed_over: true });
        for giver_first in [true, false] {
            let mut memory = Memory::new(Paint::off());
            memory.apply(&acquired("bob", "1"), Duration::ZERO);
            if giver_first {
                memory.apply(&released(), Duration::ZERO);
            }
            let text = memory.apply(&acquired("eve", "1"), Duration::ZERO);
            assert_eq!(text.unwrap(), "eve gets range 1 from bob");
            if !giver_first {
                memory.apply(&released(), Duration::ZERO);
            }
            assert_eq!(memory.scene.owner("1"), Some("eve"));
            assert!(memory.scene.is_balanced(1));
        }
    }

    #[test]
    fn balanced_means_all_ranges_owned_and_nobody_two_ahead() {
        let mut memory = Memory::new(Paint::off());
        for event in [Event::Starting("ada", 1), Event::Starting("bob", 2), acquired("ada", "0"), acquired("ada", "1")]
        {
            memory.apply(&event, Duration::ZERO);
        }
        assert!(memory.scene.is_covered(2) && !memory.scene.is_balanced(2));
        memory.apply(&acquired("bob", "2"), Duration::ZERO);
        assert!(memory.scene.is_balanced(3) && !memory.scene.is_balanced(4));
    }
}
