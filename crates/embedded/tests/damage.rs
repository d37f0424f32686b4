//! Files that were cut, flipped, removed, renamed or added behind the store's back: a clear error or all the data,
//! never a panic, never a silent loss.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use changefeed_core::{ErrorKind, ListItems, ReadChanges, StartFrom};
use changefeed_embedded::{
    Durability, Engine,
    vfs::{Vfs, memory::MemoryDisk},
};
use crash::{
    judge::judge,
    now,
    rng::Rng,
    script::{Script, VERSIONED},
};
use serde_json::json;

/// Files by name.
type Folder = BTreeMap<String, Vec<u8>>;

/// A store on disk, and what its writer was told.
struct Sample {
    disk: MemoryDisk,
    script: Script,
    /// Whether it was closed in good order; otherwise its last frame may be taken for the torn end of a crash.
    closed: bool,
    /// Where the last frame of the log begins: segment and offset.
    last_frame: (String, usize),
}

impl Sample {
    fn new(durability: Durability, steps: usize, filler: u64, closed: bool) -> Self {
        let disk = MemoryDisk::unreliable();
        let mut script = Script::new(3, durability);
        script.filler = filler;
        script.segment_bytes = if filler < 1000 { 64 * 1024 } else { script.segment_bytes };
        let engine = script.builder().open_on(disk.clone()).unwrap();
        script.prepare(&engine).unwrap();
        for _ in 0..steps {
            script.step(&engine).unwrap();
        }
        if !closed {
            disk.power_off_after(0);
        }
        drop(engine);
        disk.power_off_after(u64::MAX);
        let last_frame = last_frame(&disk);
        Self { disk, script, closed, last_frame }
    }

    /// A store that fits into the beginning of one segment.
    fn small(durability: Durability, closed: bool) -> Self {
        Self::new(durability, 12, 20, closed)
    }

    /// A store with several segments, some of them compacted.
    fn large(closed: bool) -> Self {
        let sample = Self::new(Durability::Durable, 150, 20_000, closed);
        let segments = sample.segments();
        assert!(segments.len() > 3 && segments.iter().any(|name| name[..8] != name[9..17]), "{segments:?}");
        sample
    }

    /// The names of all segments, in the order of the log.
    fn segments(&self) -> Vec<String> {
        self.disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log")).collect()
    }

    /// The bytes of a file up to its last byte that is not zero: the rest waits for commits.
    fn used(&self, name: &str) -> usize {
        let bytes = &read(&self.disk)[name];
        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    }

    /// Opens a damaged copy, and says whether that worked. If it did, no more than `lost` commits may be missing.
    fn survives(&self, what: &str, lost: usize, damage: impl FnOnce(&MemoryDisk)) -> bool {
        self.open_damaged(what, lost, damage).is_some()
    }

    /// Opens a damaged copy; if that worked, says how many problems the store reports.
    fn open_damaged(&self, what: &str, lost: usize, damage: impl FnOnce(&MemoryDisk)) -> Option<usize> {
        let copy = self.disk.power_cut(|| true);
        damage(&copy);
        let before = read(&copy);
        let mut script = self.script.fork();
        match script.builder().open_on(copy.clone()) {
            Ok(engine) => {
                eprintln!("opened after: {what}");
                let least = script.ledger.commits.len() - lost;
                if lost > 0 {
                    // The LSN of a commit that nobody can know of may be given out again.
                    script.ledger.seen.clear();
                }
                now(judge(&engine, &mut script.ledger, least, VERSIONED, script.clock.now()));
                Some(engine.health().problems.len())
            }
            Err(error) => {
                let is_clear = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::UnknownFormat);
                assert!(is_clear && error.message().len() > 20, "{what}: {error:?}");
                assert_eq!(before, read(&copy), "{what}: a store that cannot be opened is not to be changed");
                None
            }
        }
    }
}

/// Where the last frame of a log begins.
fn last_frame(disk: &MemoryDisk) -> (String, usize) {
    let (name, bytes) = read(disk).into_iter().rfind(|(name, _)| name.ends_with(".log")).unwrap();
    let at = bytes.windows(4).rposition(|window| window == b"CFfr").unwrap();
    (name, at)
}

/// All files of a disk.
fn read(disk: &MemoryDisk) -> Folder {
    let names = disk.list().unwrap().into_iter();
    let files = names.map(|name| {
        let file = disk.open(&name).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        (name, bytes)
    });
    files.collect()
}

fn add(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    disk.create(name).unwrap().write_at(0, bytes).unwrap();
}

/// Flips one bit, and says whether that went unnoticed.
fn flip(sample: &Sample, name: &str, at: usize, bit: u8) -> bool {
    let last = &sample.last_frame;
    let in_last = (name, at) >= (last.0.as_str(), last.1);
    let lost = usize::from(in_last && !sample.closed);
    let problems = sample.open_damaged(&format!("bit {bit} of byte {at} of {name} flipped"), lost, |disk| {
        assert!(disk.tamper(name, |bytes| bytes[at] ^= 1 << bit));
    });
    problems == Some(0)
}

#[test]
fn a_flipped_bit_anywhere_in_a_closed_store_is_noticed_or_harmless() {
    for durability in [Durability::Durable, Durability::Relaxed] {
        let sample = Sample::small(durability, true);
        let name = sample.segments().pop().unwrap();
        let used = sample.used(&name);
        let unnoticed = (0..used).filter(|at| flip(&sample, &name, *at, (at % 8) as u8)).count();
        assert!(unnoticed < used / 8, "only padding and the last frame may be flipped: {unnoticed} of {used}");
    }
}

#[test]
fn a_flipped_bit_in_a_crashed_store_is_noticed_or_in_its_last_frame() {
    let sample = Sample::small(Durability::Durable, false);
    let name = sample.segments().pop().unwrap();
    for at in 0..sample.used(&name) + 100 {
        flip(&sample, &name, at, (at % 7) as u8);
    }
}

#[test]
fn a_flipped_bit_in_a_large_store_is_noticed() {
    for closed in [true, false] {
        let sample = Sample::large(closed);
        let mut rng = Rng::new(5);
        for name in sample.segments() {
            let used = sample.used(&name) as u64;
            for _ in 0..25 {
                flip(&sample, &name, rng.below(used) as usize, rng.below(8) as u8);
            }
        }
    }
}

#[test]
fn damage_after_a_relaxed_crash_is_noticed_like_any_other() {
    let mut sample = Sample::small(Durability::Relaxed, false);
    sample.script.durability = Durability::Durable;
    let engine = sample.script.builder().open_on(sample.disk.clone()).unwrap();
    let relaxed = sample.used(&sample.segments().pop().unwrap());
    for _ in 0..6 {
        sample.script.step(&engine).unwrap();
    }
    sample.disk.power_off_after(0);
    drop(engine);
    sample.disk.power_off_after(u64::MAX);
    let (name, last) = last_frame(&sample.disk);
    for at in (64..last).filter(|at| *at > relaxed || at % 8 == 0) {
        sample.survives(&format!("byte {at} flipped"), 0, |disk| {
            disk.tamper(&name, |bytes| bytes[at] ^= 1);
        });
    }
}

#[test]
fn a_file_that_was_cut_is_noticed() {
    for closed in [true, false] {
        for sample in [Sample::small(Durability::Durable, closed), Sample::large(closed)] {
            for (name, bytes) in read(&sample.disk) {
                // Close to its end each byte counts; further off, and among zeros, a sample will do.
                let step = if bytes.len() > 200_000 { 2048 } else { 64 };
                let near = sample.used(&name).saturating_sub(40)..sample.used(&name);
                for length in (0..bytes.len()).step_by(step).chain(near) {
                    let opened = sample.survives(&format!("{name} cut to {length} bytes"), 0, |disk| {
                        disk.tamper(&name, |bytes| bytes.truncate(length));
                    });
                    assert!(!opened, "{name} cut to {length} of {} bytes was not noticed", bytes.len());
                }
            }
        }
    }
}

#[test]
fn a_file_with_a_frame_longer_than_a_segment_that_was_cut_is_noticed() {
    let sample = Sample::new(Durability::Durable, 6, 1_000_000, true);
    let longest = read(&sample.disk).into_values().map(|bytes| bytes.len()).max().unwrap();
    assert!(longest as u64 > sample.script.segment_bytes + 1000, "no frame is longer than a segment: {longest}");
    for (name, bytes) in read(&sample.disk) {
        let (step, used) = (1.max(bytes.len() / 16), sample.used(&name));
        for length in (0..bytes.len()).step_by(step).chain([used - 1, used.saturating_sub(33)]) {
            let opened = sample.survives(&format!("{name} cut to {length} bytes"), 0, |disk| {
                disk.tamper(&name, |bytes| bytes.truncate(length));
            });
            assert!(!opened, "{name} cut to {length} of {} bytes was not noticed", bytes.len());
        }
    }
}

#[test]
fn a_file_that_is_gone_is_missed() {
    for closed in [true, false] {
        for sample in [Sample::small(Durability::Durable, closed), Sample::large(closed)] {
            for name in sample.disk.list().unwrap() {
                let opened = sample.survives(&format!("{name} removed"), 0, |disk| disk.remove(&name).unwrap());
                // Without `STORE` it is a store with a new identity.
                assert_eq!(opened, name == "STORE", "nobody missed {name}");
            }
        }
    }
}

#[test]
fn a_store_without_its_identity_gets_a_new_one_and_keeps_its_data() {
    let sample = Sample::small(Durability::Durable, true);
    let id_of = |disk: &MemoryDisk| sample.script.builder().open_on(disk.clone()).unwrap().store_id().clone();
    let before = id_of(&sample.disk);
    assert_eq!(id_of(&sample.disk), before);
    let copy = sample.disk.power_cut(|| true);
    assert_eq!(id_of(&copy), before, "a copy is the same store");
    copy.remove("STORE").unwrap();
    let after = id_of(&copy);
    assert_ne!(after, before);
    assert_eq!(id_of(&copy), after, "and keeps it");
}

#[test]
fn a_damaged_identity_is_refused_with_the_way_out() {
    let sample = Sample::small(Durability::Durable, true);
    for content in [&b""[..], b"x", b"00000000000000000000000000000000\n", &[b'a'; 1000], b"\xff\xfe"] {
        let copy = sample.disk.power_cut(|| true);
        copy.tamper("STORE", |bytes| *bytes = content.to_vec());
        let files = read(&copy);
        let error = sample.script.builder().open_on(copy.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.message().contains("remove it to give this store a new identity"), "{error}");
        assert_eq!(read(&copy), files, "nothing was changed");
    }
}

#[test]
fn a_file_under_another_name_is_noticed_and_never_replaces_a_good_one() {
    let sample = Sample::large(true);
    let (names, files) = (sample.segments(), read(&sample.disk));
    let span = |name: &String| -> (u32, u32) {
        (u32::from_str_radix(&name[..8], 16).unwrap(), u32::from_str_radix(&name[9..17], 16).unwrap())
    };
    let last = names.last().map(span).unwrap().1;
    for name in &names {
        let (first, end) = span(name);
        let others = [(1, last), (1, last + 1), (first, end + 1), (last + 1, last + 1), (last, last + 1), (end, end)];
        for (a, b) in others.into_iter().filter(|other| *other != (first, end)) {
            let other = format!("{a:08x}-{b:08x}.log");
            if files.contains_key(&other) {
                continue;
            }
            let opened =
                sample.survives(&format!("{name} copied to {other}"), 0, |disk| add(disk, &other, &files[name]));
            assert!(!opened || first <= a && b <= end, "{other} was accepted");
            let opened =
                sample.survives(&format!("{name} renamed to {other}"), 0, |disk| disk.rename(name, &other).unwrap());
            assert!(!opened, "{name} was accepted as {other}");
        }
        for other in names.iter().filter(|other| *other != name) {
            let opened = sample.survives(&format!("{name} and {other} swapped"), 0, |disk| {
                add(disk, name, &files[other]);
                add(disk, other, &files[name]);
            });
            assert!(!opened, "{name} was accepted as {other}");
        }
    }
}

#[test]
fn a_file_that_could_be_one_of_the_store_is_refused_and_left_alone() {
    let sample = Sample::small(Durability::Durable, true);
    for name in
        ["notes.LOG", "notes.tmp", "spare-x.tmp", "FORMAT.bak", "store.bak", "00000002.log", "0000000A-0000000a.log"]
    {
        let opened = sample.survives(name, 0, |disk| add(disk, name, b"mine"));
        assert!(!opened, "{name} was accepted");
        let disk = MemoryDisk::unreliable();
        add(&disk, name, b"mine");
        let error = Engine::builder().open_on(disk.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownFormat);
        assert!(error.message().contains(name), "{error}");
        assert_eq!(read(&disk), Folder::from([(name.to_owned(), b"mine".to_vec())]));
    }
}

#[test]
fn what_people_and_their_tools_put_into_a_store_is_ignored_and_left_alone() {
    let sample = Sample::small(Durability::Durable, true);
    for name in
        [".DS_Store", "lost+found", "Thumbs.db", "desktop.ini", ".nfs0001.log", "notes.txt", "README", "stores.json"]
    {
        assert!(sample.survives(name, 0, |disk| add(disk, name, b"mine")), "{name} was refused");
    }
}

#[test]
fn a_new_store_ignores_system_files_and_refuses_a_folder_with_anything_precious() {
    for (name, fine) in [(".DS_Store", true), ("lost+found", true), ("Thumbs.db", true), ("thesis.txt", false)] {
        let disk = MemoryDisk::unreliable();
        add(&disk, name, b"mine");
        let opened = Engine::builder().open_on(disk.clone());
        assert_eq!(opened.is_ok(), fine, "{name}");
        assert_eq!(read(&disk).get(name).map(Vec::as_slice), Some(&b"mine"[..]));
    }
}

#[test]
fn left_overs_of_a_crash_are_removed() {
    let sample = Sample::small(Durability::Durable, true);
    let names = ["spare-0.tmp", "spare-17.tmp", "next.tmp", "compact.tmp", "format.tmp", "store.tmp"];
    assert!(sample.survives("left-overs", 0, |disk| names.iter().for_each(|name| add(disk, name, b"half"))));
}

#[test]
fn a_folder_of_another_version_is_refused() {
    let sample = Sample::small(Durability::Durable, true);
    let contents: [&[u8]; 8] = [
        b"",
        b"changefeed embedded 3\n",
        b"changefeed embedded 2",
        b"changefeed embedded 2\n\n",
        b"changefeed embedded 22\n",
        b"\xff\x00\xfe",
        b"CHANGEFEED EMBEDDED 2\n",
        &[b'x'; 1000],
    ];
    for content in contents {
        let copy = sample.disk.power_cut(|| true);
        copy.tamper("FORMAT", |bytes| *bytes = content.to_vec());
        let error = sample.script.builder().open_on(copy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownFormat, "{error:?}");
        assert!(error.message().contains("changefeed embedded 2"), "{error}");
    }
    let opened = sample.survives("a segment of version 3", 0, |disk| {
        disk.tamper(&sample.segments()[0], |bytes| {
            bytes[8] = 3;
            let crc = crc32fast::hash(&bytes[..28]);
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        });
    });
    assert!(!opened);
}

#[test]
fn a_record_that_is_damaged_while_the_store_is_open_is_never_served() {
    for cut in [false, true] {
        let disk = MemoryDisk::unreliable();
        let engine = Engine::builder().segment_bytes(64 * 1024).open_on(disk.clone()).unwrap();
        let container = now(engine.database("shop").container("orders").create()).unwrap();
        let filler = "x".repeat(300);
        now(container.create(&json!({"id": "1", "filler": filler}))).unwrap();
        let before = read(&disk)["00000001-00000001.log"].iter().rposition(|byte| *byte != 0).unwrap();
        now(container.create(&json!({"id": "2", "filler": filler}))).unwrap();
        let name = "00000001-00000001.log";
        disk.tamper(name, |bytes| if cut { bytes.truncate(before + 200) } else { bytes[before + 300] ^= 1 });
        now(container.read_item("1", "1")).unwrap();
        let range = now(container.feed_ranges()).unwrap().remove(0).range;
        let request = ReadChanges::new(range, StartFrom::Beginning);
        let kinds = [
            now(container.read_item("2", "2")).unwrap_err().kind(),
            now(container.read_changes(request)).unwrap_err().kind(),
            now(container.backend().list_items(ListItems::default())).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Corrupt; 3], "cut {cut}");
    }
}

#[test]
fn damage_met_by_compaction_stops_compaction_and_loses_nothing() {
    let mut sample = Sample::new(Durability::Durable, 40, 20_000, true);
    let engine = sample.script.builder().open_on(sample.disk.clone()).unwrap();
    let name = sample.segments()[0].clone();
    let good = read(&sample.disk)[&name].clone();
    sample.disk.tamper(&name, |bytes| bytes[200] ^= 4);
    let mut failed = false;
    for _ in 0..80 {
        match sample.script.step(&engine) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                assert!(!read(&sample.disk).contains_key("compact.tmp"), "half a segment was left behind");
                failed = true;
            }
        }
    }
    assert!(failed, "compaction never met the damage");
    drop(engine);
    sample.disk.tamper(&name, |bytes| *bytes = good);
    assert!(sample.survives("damage repaired", 0, |_| {}));
}

#[test]
fn a_real_folder_with_something_else_in_it_is_refused_and_left_alone() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("damage-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("thesis.tmp"), "ten years of work").unwrap();
    assert_eq!(Engine::open(&folder).unwrap_err().kind(), ErrorKind::UnknownFormat);
    assert_eq!(std::fs::read_to_string(folder.join("thesis.tmp")).unwrap(), "ten years of work");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_time_of_day_is_no_reason_to_lose_anything() {
    // Recovery purges by the clock of the moment: a clock that is wrong once must not matter afterwards.
    let sample = Sample::small(Durability::Durable, true);
    let wrong = changefeed_testkit::clock::TestClock::at(changefeed_core::Timestamp::from_millis(1));
    let copy = sample.disk.power_cut(|| true);
    drop(sample.script.builder().clock(Arc::new(wrong)).open_on(copy.clone()).unwrap());
    let mut script = sample.script.fork();
    let engine = script.builder().open_on(copy).unwrap();
    let least = script.ledger.commits.len();
    now(judge(&engine, &mut script.ledger, least, VERSIONED, script.clock.now()));
}

/// Damage in a version that a newer one has replaced does not refuse the store: it is reported and compacted away.
#[test]
fn damage_in_replaced_data_is_reported_and_compacted_away() {
    let disk = MemoryDisk::unreliable();
    let open = |disk: &MemoryDisk| Engine::builder().segment_bytes(64 * 1024).open_on(disk.clone());
    let engine = open(&disk).unwrap();
    let container = now(engine.database("shop").container("orders").create()).unwrap();
    let write = |id: &str, text: &str| {
        let filler = text.repeat(500);
        now(container.upsert(&json!({"id": id, "filler": filler}))).unwrap();
    };
    for (id, text) in [("1", "old"), ("2", "mid"), ("1", "new"), ("3", "end")] {
        write(id, text);
    }
    drop((container, engine));
    let name = "00000001-00000001.log";
    let place = |text: &str| {
        let bytes = &read(&disk)[name];
        bytes.windows(9).position(|window| window == text.repeat(3).as_bytes()).unwrap()
    };
    let damaged = |text: &str| {
        let (copy, at) = (disk.power_cut(|| true), place(text));
        copy.tamper(name, |bytes| bytes[at + 700] ^= 1);
        copy
    };
    for needed in ["mid", "new", "end"] {
        let error = open(&damaged(needed)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{needed}: {error:?}");
    }
    let copy = damaged("old");
    for round in 0..2 {
        let engine = open(&copy).unwrap();
        let problems = engine.health().problems;
        assert!(problems.len() == 1 && problems[0].contains(name), "round {round}: {problems:?}");
        assert_eq!(engine.verify().unwrap_err().kind(), ErrorKind::Corrupt, "it is still there");
        let container = now(engine.catalog().container("shop", "orders")).unwrap();
        assert_eq!(now(container.list("")).unwrap().len(), 3);
        assert!(String::from_utf8_lossy(&now(container.read_item("1", "1")).unwrap().body).contains("newnew"));
    }
    // Deletes what replaced it, and ends its segment.
    let engine = open(&copy).unwrap();
    let container = now(engine.catalog().container("shop", "orders")).unwrap();
    now(container.delete("1", "1")).unwrap();
    for n in 0..60 {
        now(container.upsert(&json!({"id": "4", "n": n, "filler": "x".repeat(2000)}))).unwrap();
    }
    now(engine.settle()).unwrap();
    assert_eq!(engine.health().problems, Vec::<String>::new());
    engine.verify().unwrap();
    drop((container, engine));
    let engine = open(&copy).unwrap();
    let container = now(engine.catalog().container("shop", "orders")).unwrap();
    let ids: Vec<String> = now(container.list("")).unwrap().iter().map(|item| item.id.to_string()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(!ids.contains(&"1".to_owned()), "the damaged version has not come back");
}

/// Damage that comes while the store is open, in a version that is replaced afterwards, is compacted away, so that the next
/// start does not depend on it; damage in what is needed stops compaction.
#[test]
fn damage_that_comes_later_is_compacted_away_once_the_record_is_replaced() {
    let disk = MemoryDisk::unreliable();
    let open = || Engine::builder().segment_bytes(64 * 1024).open_on(disk.clone());
    let engine = open().unwrap();
    let container = now(engine.database("shop").container("orders").create()).unwrap();
    let write = |id: &str, text: &str| {
        let filler = text.repeat(500);
        now(container.upsert(&json!({"id": id, "filler": filler}))).unwrap();
    };
    for (id, text) in [("1", "old"), ("2", "mid")] {
        write(id, text);
    }
    let name = "00000001-00000001.log";
    let at = {
        let bytes = &read(&disk)[name];
        bytes.windows(9).position(|window| window == b"oldoldold").unwrap()
    };
    disk.tamper(name, |bytes| bytes[at + 700] ^= 1);
    // Ends the segment, which is mostly dead then.
    for _ in 0..60 {
        write("3", "xyz");
    }
    assert_eq!(now(engine.settle()).unwrap_err().kind(), ErrorKind::Corrupt, "item 1 is needed and damaged");
    let newest = ["new", "far", "end"].map(|text| {
        write("1", text);
        now(container.read_item("1", "1")).unwrap().lsn
    });
    now(engine.settle()).unwrap();
    engine.verify().unwrap();
    assert_eq!(engine.health().problems, Vec::<String>::new());
    drop((container, engine));
    let engine = open().unwrap();
    let container = now(engine.catalog().container("shop", "orders")).unwrap();
    let item = now(container.read_item("1", "1")).unwrap();
    assert!(String::from_utf8_lossy(&item.body).contains("endend") && item.lsn == newest[2]);
    assert_eq!(now(container.list("")).unwrap().len(), 3);
    let next = now(container.upsert(&json!({"id": "4"}))).unwrap().lsn;
    assert!(next > newest[2], "{next} is not above {}", newest[2]);
}

/// Wherever a record is damaged, a store that opens has everything.
#[test]
fn no_damage_passes_for_replaced_data_that_is_not() {
    let disk = MemoryDisk::unreliable();
    let open = |disk: &MemoryDisk| Engine::builder().segment_bytes(64 * 1024).open_on(disk.clone());
    let engine = open(&disk).unwrap();
    let container = now(engine.database("shop").container("orders").partition_key("/pk").create()).unwrap();
    // Ids and LSNs that are one bit apart.
    for n in 0..3 {
        for id in ["0", "1", "2", "3"] {
            now(container.upsert(&json!({"id": id, "pk": "p", "n": n}))).unwrap();
        }
    }
    drop((container, engine));
    let name = "00000001-00000001.log";
    let used = read(&disk)[name].iter().rposition(|byte| *byte != 0).unwrap();
    let (mut opened, mut refused) = (0, 0);
    // One bit of eleven: all places in a byte come up.
    for bit in (64 * 8..used * 8).step_by(11) {
        let copy = disk.power_cut(|| true);
        copy.tamper(name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let Ok(engine) = open(&copy) else {
            refused += 1;
            continue;
        };
        opened += 1;
        let container = now(engine.catalog().container("shop", "orders")).unwrap();
        let items = now(container.list("")).unwrap();
        let numbers: Vec<_> = items
            .iter()
            .map(|item| serde_json::from_slice::<serde_json::Value>(&item.body).unwrap()["n"].clone())
            .collect();
        assert_eq!(numbers, [2, 2, 2, 2], "bit {} of byte {}", bit % 8, bit / 8);
        assert_eq!(items.iter().map(|item| item.lsn.get()).collect::<Vec<_>>(), [10, 11, 12, 13]);
    }
    assert!(opened > refused / 4 && refused > opened / 4, "{opened} opened, {refused} refused");
}
