//! Where a reader begins: beginning, now, a time, a continuation; in every scope.

use std::time::Duration;

use changefeed_core::{FeedRange, StartFrom, Timestamp};

use super::{
    Fixture,
    reader::{Reader, versions},
    stage::{Stage, many_keys},
};

/// Long enough for stores whose timestamps are whole seconds.
const A_WHILE: Duration = Duration::from_secs(10);

/// Three generations of items, well apart in time; returns the moments at which the second and the third began.
async fn three_generations(stage: &Stage<'_>, keys: &[String]) -> [Timestamp; 2] {
    let mut moments = Vec::new();
    for n in 0..3 {
        for (index, key) in keys.iter().enumerate() {
            let written = stage.put(key, &format!("{key}.{n}"), n).await;
            if index == 0 {
                moments.push(written.timestamp);
            }
        }
        stage.fixture.advance(A_WHILE).await;
    }
    [moments[1], moments[2]]
}

/// A way to read a part of a container.
struct Scope {
    name: &'static str,
    reader: Reader,
    keys: Vec<String>,
}

/// Each physical range by id and by keys, a part of one, and a single key.
async fn scopes(stage: &Stage<'_>, keys: &[String]) -> Vec<Scope> {
    let within = |range: &FeedRange| -> Vec<String> {
        keys.iter().filter(|key| range.contains(&stage.epk(key))).cloned().collect()
    };
    let mut scopes = Vec::new();
    for physical in stage.ranges().await {
        let reader = |range: &FeedRange| stage.reader_of(range, StartFrom::Now);
        let whole = within(&physical.range);
        let by_id = reader(&FeedRange::full()).physical(&physical.id);
        scopes.push(Scope { name: "physical range by id", reader: by_id, keys: whole.clone() });
        scopes.push(Scope { name: "physical range by keys", reader: reader(&physical.range), keys: whole.clone() });
        let middle = stage.epk(&whole[whole.len() / 2]);
        let part = FeedRange::new(physical.range.min_inclusive().clone(), middle).expect("a part of the range");
        scopes.push(Scope { name: "part of a range", reader: reader(&part), keys: within(&part) });
        let narrowed = reader(&part).physical(&physical.id);
        scopes.push(Scope { name: "part of a range by id", reader: narrowed, keys: within(&part) });
        let one = stage.range_of_key(whole[0].as_str());
        scopes.push(Scope { name: "one key", reader: reader(&one), keys: vec![whole[0].clone()] });
    }
    scopes
}

/// The versions that generations `from..=to` left under `keys`.
fn generations(keys: &[String], from: u64, to: u64) -> Vec<String> {
    (from..=to).flat_map(|n| keys.iter().map(move |key| format!("{key}.{n}={n}"))).collect()
}

pub(super) async fn every_start_works_in_every_scope(fixture: &dyn Fixture) {
    let stage = Stage::with(fixture, |spec| spec.ranges = 2).await;
    let keys = many_keys(12);
    let mut early = Vec::new();
    for scope in scopes(&stage, &keys).await {
        let mut reader = scope.reader.starting_at(StartFrom::Beginning);
        reader.page().await;
        early.push(reader.continuation());
    }
    let [second, third] = three_generations(&stage, &keys).await;
    for (scope, continuation) in scopes(&stage, &keys).await.into_iter().zip(early) {
        let starts = [
            (StartFrom::Beginning, 0),
            (StartFrom::Time(Timestamp::from_secs(1)), 0),
            (StartFrom::Time(second), 1),
            (StartFrom::Time(third), 2),
            (StartFrom::Time(third.saturating_add(Duration::from_secs(5))), 3),
            (StartFrom::Now, 3),
            (StartFrom::Continuation(continuation), 0),
        ];
        for (start, generation) in starts {
            for max_items in [1, 4, 1000] {
                let mut reader = scope.reader.starting_at(start.clone()).max_items(max_items);
                let changes = reader.drain().await;
                let mut expected = generations(&scope.keys, generation, 2);
                expected.sort_by_key(|version| stage.epk(version.split('.').next().unwrap_or_default()));
                assert_eq!(versions(&reader.by_key(&changes)), expected, "{} from {start:?}", scope.name);
            }
        }
    }
}

pub(super) async fn the_beginning_is_the_oldest_change(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    assert!(stage.reader(StartFrom::Beginning).page().await.changes.is_empty(), "of an empty container: nothing");
    for n in 0..5 {
        stage.put("a", &format!("x{n}"), n).await;
    }
    let seen = versions(&stage.reader(StartFrom::Beginning).max_items(2).page().await.changes);
    assert_eq!(seen, ["x0=0", "x1=1"]);
}

pub(super) async fn now_is_after_the_newest_change(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut from_the_start = stage.reader(StartFrom::Now);
    assert!(from_the_start.page().await.changes.is_empty());
    stage.put("a", "x", 1).await;
    let mut later = stage.reader(StartFrom::Now);
    assert!(later.page().await.changes.is_empty());
    assert!(stage.reader(StartFrom::Now).page().await.changes.is_empty(), "now moves on while nobody reads");
    stage.put("a", "y", 2).await;
    assert_eq!(versions(&from_the_start.drain().await), ["x=1", "y=2"]);
    assert_eq!(versions(&later.drain().await), ["y=2"]);
}

pub(super) async fn a_time_includes_what_was_written_at_it(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "before", 1).await;
    fixture.advance(A_WHILE).await;
    let at = stage.put("a", "at", 2).await.timestamp;
    fixture.advance(A_WHILE).await;
    stage.put("a", "after", 3).await;
    assert_eq!(versions(&stage.reader(StartFrom::Time(at)).drain().await), ["at=2", "after=3"]);
}

pub(super) async fn a_time_in_the_future_shows_nothing_yet(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let now = stage.put("a", "x", 1).await.timestamp;
    let future = StartFrom::Time(now.saturating_add(A_WHILE * 2));
    assert!(stage.reader(future.clone()).page().await.changes.is_empty());
    fixture.advance(A_WHILE * 3).await;
    stage.put("a", "y", 2).await;
    assert_eq!(versions(&stage.reader(future).drain().await), ["y=2"]);
}

pub(super) async fn a_rewritten_item_is_found_at_the_time_of_its_newest_version(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    stage.put("a", "x", 1).await;
    stage.put("a", "y", 1).await;
    fixture.advance(A_WHILE).await;
    let moment = stage.put("a", "x", 2).await.timestamp;
    assert_eq!(versions(&stage.reader(StartFrom::Time(moment)).drain().await), ["x=2"]);
}

pub(super) async fn not_before_skips_older_changes_wherever_the_read_begins(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let keys = vec!["a".to_owned()];
    let mut reader = stage.reader(StartFrom::Beginning);
    reader.page().await;
    let early = reader.continuation();
    let [second, third] = three_generations(&stage, &keys).await;
    let starts = [
        (StartFrom::Beginning, second, 1),
        (StartFrom::Beginning, third, 2),
        (StartFrom::Continuation(early.clone()), second, 1),
        (StartFrom::Continuation(early), third.saturating_add(A_WHILE), 3),
        (StartFrom::Time(second), third, 2),
        (StartFrom::Time(third), second, 2),
        (StartFrom::Now, second, 3),
    ];
    for (start, moment, generation) in starts {
        for max_items in [1, 1000] {
            let mut reader = stage.reader(start.clone()).not_before(moment).max_items(max_items);
            let seen = versions(&reader.drain().await);
            assert_eq!(seen, generations(&keys, generation, 2), "{start:?}, not before {moment:?}");
        }
    }
}
