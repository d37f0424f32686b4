//! Pages and their continuations.

use changefeed_core::{Change, Continuation, Lsn, Mode, StartFrom};

use super::{
    Fixture,
    reader::{Reader, briefs, ids, versions},
    stage::{Stage, many_keys},
};
use crate::fixtures::{create, delete, item, replace};

/// Page sizes that end before, at and after every edge.
const PAGE_SIZES: [usize; 6] = [1, 2, 3, 7, 20, 1000];

/// Single writes, rewrites, deletes and batches.
async fn busy(stage: &Stage<'_>) {
    for n in 0..30 {
        stage.put(&format!("key-{}", n % 5), &format!("x{}", n % 10), n).await;
    }
    for (n, key) in many_keys(3).iter().enumerate() {
        let writes = (0..4).map(|m| create(&item(key, &format!("b{n}-{m}"), m))).collect();
        stage.batch(key, writes).await;
        stage.put("key-4", &format!("after-{n}"), 1).await;
    }
    let mixed = vec![replace(&item("key-0", "b0-1", 50)), delete("b0-2"), create(&item("key-0", "b0-9", 51))];
    stage.batch("key-0", mixed).await;
    stage.remove("key-4", "after-1").await;
}

/// A reader of everything, in either mode: from before the first write.
async fn whole(stage: &Stage<'_>, mode: Mode) -> Reader {
    let mut reader = stage.reader(StartFrom::Now).mode(mode);
    assert!(reader.page().await.changes.is_empty(), "the container is empty");
    reader
}

pub(super) async fn every_page_size_gives_the_same_sequence(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    same_sequence(&stage, Mode::LatestVersion).await;
}

pub(super) async fn every_page_size_gives_the_same_sequence_of_all_versions(fixture: &dyn Fixture) {
    let stage = super::all_versions::stage(fixture).await;
    same_sequence(&stage, Mode::AllVersions).await;
}

async fn same_sequence(stage: &Stage<'_>, mode: Mode) {
    let start = whole(stage, mode).await;
    busy(stage).await;
    let by_key = |changes: &[Change]| start.briefs_by_key(changes);
    let expected = by_key(&start.clone().drain().await);
    assert!(!expected.is_empty());
    for max_items in PAGE_SIZES {
        let seen = by_key(&start.clone().max_items(max_items).drain().await);
        assert_eq!(seen, expected, "with {max_items} a page");
    }
}

/// A change, a transaction of five changes, and a change, all under one key.
async fn five_together(stage: &Stage<'_>) -> Lsn {
    stage.put("a", "before", 1).await;
    let writes = (0..5).map(|n| create(&item("a", &format!("x{n}"), n))).collect();
    let lsn = stage.batch("a", writes).await[0].lsn;
    stage.put("a", "after", 1).await;
    lsn
}

pub(super) async fn a_page_cuts_a_transaction_only_if_that_alone_exceeds_the_page_bound(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let start = whole(&stage, Mode::LatestVersion).await;
    let lsn = five_together(&stage).await;
    cut_only_if_too_long(start, lsn).await;
}

pub(super) async fn a_page_cuts_a_transaction_of_all_versions_only_if_that_alone_exceeds_the_page_bound(
    fixture: &dyn Fixture,
) {
    let stage = super::all_versions::stage(fixture).await;
    let start = whole(&stage, Mode::AllVersions).await;
    let lsn = five_together(&stage).await;
    cut_only_if_too_long(start, lsn).await;
}

async fn cut_only_if_too_long(start: Reader, lsn: Lsn) {
    for max_items in 1..=8 {
        let mut reader = start.clone().max_items(max_items);
        let mut parts = Vec::new();
        loop {
            let page = reader.page().await;
            let part: Vec<_> = page.changes.iter().filter(|change| change.lsn == lsn).collect();
            parts.extend(Some(part.len()).filter(|count| *count > 0));
            if page.changes.is_empty() {
                break;
            }
        }
        assert_eq!(parts.iter().sum::<usize>(), 5, "all of the transaction, with {max_items} a page");
        assert!(parts.len() == 1 || max_items < 5, "5 changes fit into {max_items}, but were cut into {parts:?}");
        assert!(parts.len() == 1 || parts.iter().all(|part| *part <= max_items), "{parts:?}");
    }
}

pub(super) async fn the_pages_of_a_cut_transaction_share_its_lsn(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let lsn = five_together(&stage).await;
    for max_items in 1..=6 {
        let changes = stage.reader(StartFrom::Beginning).max_items(max_items).drain().await;
        assert_eq!(ids(&changes), ["before", "x0", "x1", "x2", "x3", "x4", "after"]);
        assert!(changes[1..6].iter().all(|change| change.lsn == lsn), "with {max_items} a page: {changes:?}");
        assert!(changes[0].lsn < lsn && changes[6].lsn > lsn, "and nothing else has it: {changes:?}");
    }
}

pub(super) async fn a_continuation_inside_a_transaction_resumes_exactly_there(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    five_together(&stage).await;
    let start = stage.reader(StartFrom::Beginning);
    for max_items in 1..=4 {
        let mut reader = start.clone().max_items(max_items);
        let mut seen = Vec::new();
        loop {
            let page = reader.page().await;
            if page.changes.is_empty() {
                break;
            }
            seen.extend(ids(&page.changes).into_iter().map(str::to_owned));
            let stored = Continuation::from_token(page.continuation.token());
            for next in [1, 2, 1000] {
                let rest = reader.starting_at(stored.clone()).max_items(next).drain().await;
                let all = [seen.clone(), ids(&rest).into_iter().map(str::to_owned).collect()].concat();
                assert_eq!(all, ["before", "x0", "x1", "x2", "x3", "x4", "after"], "after {} changes", seen.len());
            }
        }
    }
}

pub(super) async fn a_continuation_inside_a_transaction_survives_rewrites_and_deletes(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    five_together(&stage).await;
    let mut reader = stage.reader(StartFrom::Beginning).max_items(3);
    let mut seen = Vec::new();
    // Up to the page that begins the transaction, of which a store may or may not give all.
    while !seen.iter().any(|id| id == "x0") {
        seen.extend(ids(&reader.page().await.changes).into_iter().map(str::to_owned));
    }
    stage.put("a", "x0", 8).await;
    stage.put("a", "x3", 9).await;
    stage.remove("a", "x4").await;
    let rest = reader.drain().await;
    let missing = ["x1", "x2", "after"].into_iter().filter(|id| !seen.iter().any(|seen| seen == id));
    let expected: Vec<_> = missing.chain(["x0", "x3"]).collect();
    assert_eq!(ids(&rest), expected, "after {seen:?}: what is left of the transaction, then what was rewritten");
}

pub(super) async fn the_continuation_resumes_exactly_after_its_page(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    busy(&stage).await;
    resume_everywhere(stage.reader(StartFrom::Beginning)).await;
}

pub(super) async fn the_continuation_resumes_exactly_after_its_page_of_all_versions(fixture: &dyn Fixture) {
    let stage = super::all_versions::stage(fixture).await;
    let start = whole(&stage, Mode::AllVersions).await;
    busy(&stage).await;
    resume_everywhere(start).await;
}

async fn resume_everywhere(start: Reader) {
    // Changes of different keys may come in any order, and in another one with other page sizes.
    let by_key = |changes: &[Change]| start.briefs_by_key(changes);
    let expected = by_key(&start.clone().drain().await);
    for max_items in [1, 2, 7] {
        let mut reader = start.clone().max_items(max_items);
        let mut seen = Vec::new();
        loop {
            let page = reader.page().await;
            if page.changes.is_empty() {
                break;
            }
            seen.extend(page.changes);
            // As a lease does it: only the text is kept.
            let stored = Continuation::from_token(page.continuation.token());
            let rest = reader.clone().max_items(1000).drain().await;
            assert_eq!(by_key(&[seen.clone(), rest].concat()), expected, "resumed after {} changes", seen.len());
            let again = reader.starting_at(stored).drain().await;
            assert_eq!(by_key(&[seen.clone(), again].concat()), expected, "resumed from the stored text");
        }
        assert_eq!(by_key(&seen), expected);
    }
}

pub(super) async fn the_same_continuation_gives_the_same_page(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    busy(&stage).await;
    let mut reader = stage.reader(StartFrom::Beginning).max_items(3);
    for _ in 0..4 {
        let (one, two) = (reader.clone().page().await, reader.page().await);
        assert_eq!(briefs(&one.changes), briefs(&two.changes));
        assert_eq!(one.continuation, two.continuation);
    }
}

pub(super) async fn an_empty_page_means_that_there_is_nothing_new(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let mut reader = stage.reader(StartFrom::Beginning).max_items(1);
    for n in 0..5 {
        assert!(reader.page().await.changes.is_empty(), "nothing was written");
        assert!(reader.page().await.changes.is_empty(), "and still nothing");
        stage.put("a", &format!("x{n}"), n).await;
        stage.put("b", &format!("y{n}"), n).await;
        stage.remove("b", &format!("y{n}")).await;
        assert_eq!(versions(&reader.page().await.changes), [format!("x{n}={n}")], "there is something new");
    }
}

pub(super) async fn an_empty_page_advances_the_continuation(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let key = stage.range_of_key("quiet");
    stage.put("quiet", "x", 1).await;
    let mut reader = stage.reader_of(&key, StartFrom::Beginning);
    assert_eq!(ids(&reader.page().await.changes), ["x"]);
    let mut last = reader.continuation();
    for n in 0..3 {
        stage.put("loud", "y", n).await;
        assert!(reader.page().await.changes.is_empty(), "nothing of this key");
        assert_ne!(reader.continuation(), last, "the position moves past the writes of others");
        last = reader.continuation();
    }
    stage.put("quiet", "x", 2).await;
    assert_eq!(versions(&reader.page().await.changes), ["x=2"]);
}

pub(super) async fn an_empty_page_advances_to_the_newest_lsn(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    let key = stage.range_of_key("quiet");
    let mut readers = [stage.reader_of(&key, StartFrom::Beginning), stage.reader_of(&key, StartFrom::Now)];
    for n in 0..3 {
        stage.put("loud", "y", n).await;
        for reader in &mut readers {
            let page = reader.page().await;
            assert!(page.changes.is_empty());
            assert_eq!(page.continuation.to_lsn(&stage.rid()).expect("a quoted LSN"), page.newest_lsn);
        }
    }
}

pub(super) async fn the_continuation_of_a_page_lies_between_its_last_change_and_the_newest(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    busy(&stage).await;
    let mut reader = stage.reader(StartFrom::Beginning).max_items(2);
    let mut before = Lsn::ZERO;
    loop {
        let page = reader.page().await;
        let position = page.continuation.to_lsn(&stage.rid()).expect("a quoted LSN");
        assert!(position >= before && position <= page.newest_lsn);
        let Some(last) = page.changes.last() else { break };
        assert!(position >= last.lsn);
        before = position;
    }
}

pub(super) async fn an_item_rewritten_behind_the_reader_comes_again(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for n in 0..6 {
        stage.put("a", &format!("x{n}"), 1).await;
    }
    let mut reader = stage.reader(StartFrom::Beginning).max_items(2);
    assert_eq!(ids(&reader.page().await.changes), ["x0", "x1"]);
    stage.put("a", "x0", 2).await;
    stage.put("a", "x3", 2).await;
    stage.remove("a", "x2").await;
    stage.put("a", "new", 2).await;
    let rest = versions(&reader.drain().await);
    assert_eq!(rest, ["x4=1", "x5=1", "x0=2", "x3=2", "new=2"], "moved ahead, never twice, never lost");
}

pub(super) async fn the_item_that_a_continuation_points_at_may_vanish(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    for n in 0..4 {
        stage.put("a", &format!("x{n}"), 1).await;
    }
    let mut reader = stage.reader(StartFrom::Beginning).max_items(2);
    assert_eq!(ids(&reader.page().await.changes), ["x0", "x1"]);
    stage.remove("a", "x1").await;
    assert_eq!(ids(&reader.clone().drain().await), ["x2", "x3"]);
    stage.remove("a", "x3").await;
    stage.remove("a", "x2").await;
    assert!(reader.page().await.changes.is_empty());
}

pub(super) async fn remaining_is_the_number_of_changes_of_later_pages(fixture: &dyn Fixture) {
    let stage = Stage::new(fixture).await;
    busy(&stage).await;
    count_down(stage.reader(StartFrom::Beginning)).await;
    count_down(stage.reader_of(&stage.range_of_key("key-0"), StartFrom::Beginning)).await;
    count_down(stage.reader(StartFrom::Now)).await;
}

pub(super) async fn remaining_is_the_number_of_versions_of_later_pages(fixture: &dyn Fixture) {
    let stage = super::all_versions::stage(fixture).await;
    let start = whole(&stage, Mode::AllVersions).await;
    busy(&stage).await;
    count_down(start.in_range(&stage.range_of_key("key-4"))).await;
    count_down(start).await;
}

async fn count_down(start: Reader) {
    let total = start.clone().drain().await.len();
    for max_items in [1, 4, 1000] {
        let mut reader = start.clone().max_items(max_items).count_remaining();
        let mut read = 0;
        loop {
            let page = reader.page().await;
            read += page.changes.len();
            // A store that cannot tell says nothing; one that says something is right.
            let left = (total - read) as u64;
            assert_eq!(page.remaining.unwrap_or(left), left, "after {read} of {total} changes");
            if page.changes.is_empty() {
                break;
            }
        }
    }
}
