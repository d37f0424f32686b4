//! The power fails at every moment of a run, and again while the store recovers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;

use changefeed_core::{DatabaseSpec, Effect, ErrorKind};
use changefeed_embedded::{
    Durability, Engine,
    vfs::{Vfs, memory::MemoryDisk},
};
use crash::{
    judge::{self, DATABASE, judge},
    now,
    rng::Rng,
    script::{PLAIN, Script, VERSIONED},
};

/// More calls than any run makes.
const PLENTY: u64 = 1 << 40;

/// How many random runs there are.
const SEEDS: u64 = 200;

/// Steps of the run that is cut at every call: enough for several segments, compactions and splits.
const STEPS: usize = 90;

/// Runs a script until the power fails or `steps` are done.
fn run(disk: &MemoryDisk, script: &mut Script, steps: usize) -> Option<Engine> {
    let engine = script.builder().open_on(disk.clone()).ok()?;
    script.prepare(&engine).ok()?;
    for _ in 0..steps {
        script.step(&engine).ok()?;
    }
    Some(engine)
}

/// What of the unsynced sectors and names survives.
#[derive(Clone, Copy, Debug)]
enum Keep {
    Nothing,
    Everything,
    /// This many in a hundred, chosen by the seed.
    Some(u64, u64),
    /// The first so many.
    First(u64),
}

impl Keep {
    fn after_power_cut(self, disk: &MemoryDisk) -> MemoryDisk {
        let mut rng = Rng::new(match self {
            Self::Some(_, seed) => seed,
            _ => 0,
        });
        let mut asked = 0;
        disk.power_cut(|| {
            asked += 1;
            match self {
                Self::Nothing => false,
                Self::Everything => true,
                Self::Some(percent, _) => rng.percent(percent),
                Self::First(count) => asked <= count,
            }
        })
    }
}

/// Ways to keep a part, to take turns.
const KEEPS: [fn(u64) -> Keep; 3] =
    [|seed| Keep::Some(50, seed), |seed| Keep::Some(90, seed), |at| Keep::First(at % 40)];

/// Opens what a crash left, which must always work, and compares it with what the script was told.
fn reopen(disk: &MemoryDisk, script: &mut Script, least: usize) -> Engine {
    let engine = script.builder().open_on(disk.clone()).unwrap();
    now(judge(&engine, &mut script.ledger, least, VERSIONED, script.clock.now()));
    engine
}

/// A seed whose run has compaction merge segments, and how many calls that change something it makes.
fn eventful_run(durability: Durability) -> (u64, u64) {
    let calls = |seed| {
        let disk = MemoryDisk::unreliable();
        disk.power_off_after(PLENTY);
        drop(run(&disk, &mut Script::new(seed, durability), STEPS).unwrap());
        let is_merged = |name: &String| name.ends_with(".log") && name[..8] != name[9..17];
        disk.list().unwrap().iter().any(is_merged).then(|| PLENTY - disk.calls_left())
    };
    (1..100).find_map(|seed| Some((seed, calls(seed)?))).expect("compaction never merges segments: write more")
}

fn cut_at_every_call(durability: Durability) {
    let (seed, calls) = eventful_run(durability);
    for at in 0..calls {
        let disk = MemoryDisk::unreliable();
        disk.power_off_after(at);
        let mut script = Script::new(seed, durability);
        drop(run(&disk, &mut script, STEPS));
        let least = script.ledger.safe;
        for (number, keep) in (0..).zip([Keep::Nothing, Keep::Everything, KEEPS[at as usize % KEEPS.len()](at)]) {
            eprintln!("power off after {at} of {calls} calls, then {keep:?}");
            let mut script = script.fork();
            let left = keep.after_power_cut(&disk);
            // Again while it recovers, early or late.
            left.power_off_after((at + number) % 7);
            drop(script.builder().open_on(left.clone()));
            let left = Keep::Some(50, at).after_power_cut(&left);
            let engine = reopen(&left, &mut script, least);
            if number == at % 3 {
                go_on(engine, &left, &mut script);
            }
        }
        eprintln!("killed after {at} of {calls} calls, power off later");
        killed_and_then_cut(&disk, script);
    }
}

/// What a process left in the page cache must be on disk before anything is built on it.
fn killed_and_then_cut(disk: &MemoryDisk, mut script: Script) {
    disk.power_off_after(u64::MAX);
    script.durability = Durability::Durable;
    let least = script.ledger.commits.len();
    let engine = reopen(disk, &mut script, least);
    script.prepare(&engine).unwrap();
    script.step_write(&engine).unwrap();
    disk.power_off_after(0);
    drop(engine);
    let least = script.ledger.commits.len();
    reopen(&Keep::Nothing.after_power_cut(disk), &mut script, least);
}

/// A store that was recovered is as good as any.
fn go_on(engine: Engine, disk: &MemoryDisk, script: &mut Script) {
    script.prepare(&engine).unwrap();
    for _ in 0..4 {
        script.step(&engine).unwrap();
    }
    now(engine.settle()).unwrap();
    now(engine.close()).unwrap();
    let least = script.ledger.commits.len();
    reopen(&Keep::Nothing.after_power_cut(disk), script, least);
}

#[test]
fn a_power_cut_after_any_call_loses_nothing_that_was_acknowledged() {
    cut_at_every_call(Durability::Durable);
}

#[test]
fn a_power_cut_in_relaxed_mode_loses_a_tail_only() {
    cut_at_every_call(Durability::Relaxed);
}

/// Crashes of both kinds, one after the other, in both modes.
#[test]
fn many_lives_of_a_store_with_power_cuts_and_kills() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut script = Script::new(seed, Durability::Durable);
        let mut disk = MemoryDisk::unreliable();
        for life in 0..4 {
            script.durability = either(&mut rng);
            disk.power_off_after(rng.below(120));
            let engine = run(&disk, &mut script, 60);
            let (safe, all) = (script.ledger.safe, script.ledger.commits.len());
            let in_good_order = engine.is_some_and(|engine| now(engine.close()).is_ok());
            let is_kill = rng.percent(40);
            eprintln!("seed {seed} life {life}: {all} commits, {safe} safe, kill {is_kill}, closed {in_good_order}");
            let least = if is_kill || in_good_order { all } else { safe };
            if is_kill {
                disk.power_off_after(u64::MAX);
            } else {
                disk = Keep::Some([0, 10, 50, 90, 100][rng.below(5) as usize], seed).after_power_cut(&disk);
            }
            reopen_killed(&disk, &mut script, least, &mut rng);
        }
    }
}

fn either(rng: &mut Rng) -> Durability {
    if rng.percent(50) { Durability::Durable } else { Durability::Relaxed }
}

/// Like [`reopen`], and ends without closing.
fn reopen_killed(disk: &MemoryDisk, script: &mut Script, least: usize, rng: &mut Rng) {
    let engine = reopen(disk, script, least);
    if rng.percent(50) {
        disk.power_off_after(0);
    }
    drop(engine);
    disk.power_off_after(u64::MAX);
}

#[test]
fn a_failed_sync_stops_the_store_and_leaves_the_write_in_doubt() {
    let disk = MemoryDisk::unreliable();
    let mut script = Script::new(7, Durability::Durable);
    let engine = run(&disk, &mut script, 0).unwrap();
    let container = now(engine.database("shop").container("plain").open()).unwrap();
    let item = |id: &str| serde_json::json!({"id": id, "key": "k", "number": 1});
    now(container.create(&item("before"))).unwrap();
    // The write goes through, its sync does not.
    disk.power_off_after(1);
    let error = now(container.create(&item("doubt"))).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Io, Effect::Unknown));
    disk.power_off_after(u64::MAX);
    for id in ["after", "doubt"] {
        let error = now(container.create(&item(id))).unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Closed, Effect::None), "{error:?}");
        assert!(error.message().contains("open it again"), "{error}");
    }
    assert_eq!(now(engine.catalog().create_database(DatabaseSpec::new("more"))).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(now(engine.expire()).unwrap_err().kind(), ErrorKind::Closed);
    now(container.read_item("k", "before")).unwrap();
    drop((container, engine));
    let engine = script.builder().open_on(Keep::Nothing.after_power_cut(&disk)).unwrap();
    let container = now(engine.database("shop").container("plain").open()).unwrap();
    now(container.read_item("k", "before")).unwrap();
    assert_eq!(now(container.read_item("k", "doubt")).unwrap_err().kind(), ErrorKind::ItemNotFound);
    now(container.create(&item("after"))).unwrap();
}

/// A disk that is full or fails for a moment, at any call: the store stops, or goes on as if nothing had happened. The
/// two modes share the calls.
#[test]
fn a_disk_that_fails_for_a_moment_stops_the_store_or_leaves_it_usable() {
    let mut without_room = 0;
    for (offset, durability) in [(0, Durability::Durable), (1, Durability::Relaxed)] {
        let (seed, calls) = eventful_run(durability);
        for at in (offset..calls).step_by(2) {
            let disk = MemoryDisk::unreliable();
            let mut script = Script::new(seed, durability);
            let engine = run(&disk, &mut script, 0).unwrap();
            disk.power_off_after(at);
            let Some(error) = (0..STEPS).find_map(|_| script.step(&engine).err()) else { continue };
            disk.power_off_after(u64::MAX);
            eprintln!("call {at} of {calls} in {durability:?} failed: {error:?}");
            let is_full = error.message().contains("make room for a new segment");
            without_room += u64::from(is_full);
            let next = script.step_write(&engine);
            match error.effect() {
                Effect::Unknown => assert_eq!(next.unwrap_err().kind(), ErrorKind::Closed),
                Effect::None if is_full => next.unwrap(),
                // Compaction fails before it has changed anything, or stops the store.
                Effect::None => next.unwrap_or_else(|error| assert_eq!(error.kind(), ErrorKind::Closed)),
            }
            disk.power_off_after(0);
            drop(engine);
            disk.power_off_after(u64::MAX);
            let least = script.ledger.commits.len();
            reopen(&disk, &mut script, least);
        }
    }
    assert!(without_room > 10, "too few runs met a full disk: {without_room}");
}

#[test]
fn compaction_that_fails_before_it_switches_files_is_tried_again_and_later_stops_the_store() {
    let (mut went_on, mut stopped) = (0, 0);
    for (writes, at) in (50..70).step_by(4).flat_map(|writes| (0..8).map(move |at| (writes, at))) {
        let disk = MemoryDisk::unreliable();
        let mut script = Script::new(4, Durability::Relaxed);
        let engine = run(&disk, &mut script, 0).unwrap();
        for _ in 0..writes {
            script.step_write(&engine).unwrap();
        }
        disk.power_off_after(at);
        let Err(error) = now(engine.settle()) else { continue };
        disk.power_off_after(u64::MAX);
        eprintln!("call {at} after {writes} writes failed: {error:?}");
        if error.message().ends_with("a compacted segment") {
            script.step_write(&engine).unwrap();
            now(engine.settle()).unwrap();
            went_on += 1;
        } else {
            // A second sync would say that all is well, though what the first was about is lost.
            assert_eq!(script.step_write(&engine).unwrap_err().kind(), ErrorKind::Closed);
            stopped += 1;
        }
    }
    assert!(went_on > 2 && stopped > 2, "{went_on} went on, {stopped} stopped");
}

#[test]
fn a_change_of_the_catalog_that_cannot_be_synced_is_not_acknowledged_in_relaxed_mode_either() {
    let disk = MemoryDisk::unreliable();
    let mut script = Script::new(5, Durability::Relaxed);
    let engine = run(&disk, &mut script, 0).unwrap();
    disk.power_off_after(1);
    let error = now(engine.catalog().create_database(DatabaseSpec::new("other"))).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Io, Effect::Unknown));
    disk.power_off_after(u64::MAX);
    assert_eq!(now(engine.catalog().create_database(DatabaseSpec::new("more"))).unwrap_err().kind(), ErrorKind::Closed);
}

/// Container numbers are 31 bits; each crash in relaxed mode once used up 28 bits of them.
#[test]
fn crashes_in_relaxed_mode_do_not_use_up_the_numbers_of_the_catalog() {
    let disk = MemoryDisk::unreliable();
    let mut script = Script::new(6, Durability::Relaxed);
    for crash in 0..20 {
        let engine = run(&disk, &mut script, 0).unwrap();
        now(engine.catalog().create_database(DatabaseSpec::new(format!("database {crash}")))).unwrap();
        disk.power_off_after(0);
        drop(engine);
        disk.power_off_after(u64::MAX);
    }
}

/// Only what may have been lost is skipped, and only once.
#[test]
fn a_crash_in_durable_mode_uses_up_no_lsns() {
    let disk = MemoryDisk::unreliable();
    let mut script = Script::new(8, Durability::Relaxed);
    let mut newest = Vec::new();
    for _ in 0..4 {
        let engine = run(&disk, &mut script, 0).unwrap();
        let container = now(engine.catalog().container(DATABASE, PLAIN)).unwrap();
        newest.push(now(judge::ends(&container)).into_iter().map(|(_, lsn)| lsn).max().unwrap());
        drop(container);
        disk.power_off_after(0);
        drop(engine);
        disk.power_off_after(u64::MAX);
        script.durability = Durability::Durable;
    }
    assert!(newest[0] < newest[1], "{newest:?}");
    assert_eq!(newest[1..], [newest[1]; 3]);
}
