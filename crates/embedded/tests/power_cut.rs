//! The power fails at every moment of a run, and again while the store recovers.

mod crash;

use changefeed_core::{Effect, ErrorKind};
use changefeed_embedded::{Durability, Engine, vfs::memory::MemoryDisk};
use crash::{
    judge::judge,
    now,
    rng::Rng,
    script::{Script, VERSIONED},
};

/// More calls than any run makes.
const PLENTY: u64 = 1 << 40;

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

/// Opens what a crash left, which must always work, and compares it with what the script was told.
fn reopen(disk: &MemoryDisk, script: &mut Script, least: usize) -> Engine {
    let engine = script.builder().open_on(disk.clone()).unwrap();
    now(judge(&engine, &mut script.ledger, least, VERSIONED, script.clock.now()));
    engine
}

fn cut_at_every_call(durability: Durability) {
    let disk = MemoryDisk::unreliable();
    disk.power_off_after(PLENTY);
    drop(run(&disk, &mut Script::new(1, durability), STEPS).unwrap());
    let calls = PLENTY - disk.calls_left();
    for at in 0..calls {
        let disk = MemoryDisk::unreliable();
        disk.power_off_after(at);
        let mut script = Script::new(1, durability);
        drop(run(&disk, &mut script, STEPS));
        let least = script.ledger.safe;
        for keep in [Keep::Nothing, Keep::Everything, Keep::Some(50, at), Keep::Some(90, at), Keep::First(at % 40)] {
            eprintln!("power off after {at} of {calls} calls, then {keep:?}");
            let mut script = script.fork();
            let left = keep.after_power_cut(&disk);
            // Again while it recovers, early or late.
            left.power_off_after(at % 7);
            drop(script.builder().open_on(left.clone()));
            let left = Keep::Some(50, at).after_power_cut(&left);
            let engine = reopen(&left, &mut script, least);
            script.prepare(&engine).unwrap();
            for _ in 0..4 {
                script.step(&engine).unwrap();
            }
            now(engine.settle()).unwrap();
            now(engine.close()).unwrap();
            let least = script.ledger.commits.len();
            reopen(&Keep::Nothing.after_power_cut(&left), &mut script, least);
        }
    }
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
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut script = Script::new(seed, Durability::Durable);
        let mut disk = MemoryDisk::unreliable();
        for life in 0..6 {
            script.durability = if rng.percent(50) { Durability::Durable } else { Durability::Relaxed };
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
    assert_eq!(now(engine.catalog().create_database("more")).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(now(engine.tidy()).unwrap_err().kind(), ErrorKind::Closed);
    now(container.read_item("k", "before")).unwrap();
    drop((container, engine));
    let engine = script.builder().open_on(Keep::Nothing.after_power_cut(&disk)).unwrap();
    let container = now(engine.database("shop").container("plain").open()).unwrap();
    now(container.read_item("k", "before")).unwrap();
    assert_eq!(now(container.read_item("k", "doubt")).unwrap_err().kind(), ErrorKind::ItemNotFound);
    now(container.create(&item("after"))).unwrap();
}
