//! Tables of results and the steps that follow.
#![expect(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]

use std::time::Duration;

use super::*;
use crate::delegate::{BatchResult, DelegateError, ItemResult, Returned};

const NOW: Duration = Duration::from_secs(1000);

fn delivery(count: usize, attempts: Option<u32>) -> Delivery {
    let policy = Policy { attempts, ..Policy::default() };
    Delivery::new(policy, count, 0, OutageDetector::new(3, None))
}

fn done() -> Result<Returned, DelegateError> {
    Ok(Returned { result: BatchResult::Done, unparsed: None })
}

fn each(results: Vec<ItemResult>) -> Result<Returned, DelegateError> {
    Ok(Returned { result: BatchResult::Each(results), unparsed: None })
}

/// Runs a delivery whose calls fail if they have a poison item. Returns the calls, and the dead letters.
fn run(mut delivery: Delivery, poison: &[usize]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let (mut calls, mut letters) = (Vec::new(), Vec::new());
    for _ in 0..10_000 {
        match delivery.next(None) {
            Step::Call(call) => {
                let items: Vec<usize> = call.items.iter().collect();
                let fails = items.iter().any(|item| poison.contains(item));
                calls.push(items);
                delivery.finished(if fails { Err(DelegateError::new("poison")) } else { done() }, NOW);
            }
            Step::DeadLetter(letter) => {
                letters.push(letter.item);
                delivery.dead_lettered();
            }
            Step::Pause(_) => {}
            Step::Mark(_) => panic!("not isolated"),
            Step::Done => return (calls, letters),
        }
    }
    panic!("never done: {} calls", calls.len());
}

#[test]
fn bisecting_finds_the_poison_items_and_delivers_the_others_once() {
    for poison in [vec![], vec![0], vec![7], vec![99], vec![13, 64], vec![4, 5, 6]] {
        let (calls, letters) = run(delivery(100, Some(3)), &poison);
        assert_eq!(letters, poison);
        let fine: Vec<usize> =
            calls.iter().filter(|call| call.iter().all(|item| !poison.contains(item))).flatten().copied().collect();
        let mut sorted = fine.clone();
        sorted.sort_unstable();
        let expected: Vec<usize> = (0..100).filter(|item| !poison.contains(item)).collect();
        assert_eq!(sorted, expected, "each once: {poison:?}");
        assert_eq!(fine, sorted, "in order: {poison:?}");
    }
}

#[test]
fn a_batch_of_poison_alone_is_an_outage_and_never_ends_in_dead_letters() {
    let mut delivery = delivery(20, Some(2));
    let (mut outages, mut pauses) = (0, Vec::new());
    while outages < 5 {
        match delivery.next(None) {
            Step::Call(_) => {
                let report = delivery.finished(Err(DelegateError::new("down")), NOW);
                outages += usize::from(report.outage.is_some());
            }
            Step::Pause(pause) => pauses.push(pause.failures),
            step => panic!("{step:?}"),
        }
    }
    assert!(pauses.iter().any(|failures| *failures >= 8), "pauses grow: {pauses:?}");
}

#[test]
fn items_that_ask_for_a_retry_come_back_together() {
    let retry = ItemResult::Retry { after: Duration::from_secs(7) };
    let mut page = delivery(5, None);
    assert!(matches!(page.next(None), Step::Call(_)));
    page.finished(each(vec![retry.clone(), ItemResult::Done, retry.clone(), ItemResult::Skip, retry]), NOW);
    assert_eq!(page.next(None), Step::Pause(Pause { failures: 1, at_least: Duration::from_secs(7) }));
    let Step::Call(call) = page.next(None) else { panic!("a call") };
    assert_eq!((call.items.iter().collect::<Vec<_>>(), call.attempt, call.last), (vec![0, 2, 4], 2, true));
    page.finished(done(), NOW);
    assert_eq!(page.next(None), Step::Done);
}

#[test]
fn a_retry_that_is_asked_for_too_often_is_a_failed_item() {
    let mut page = delivery(2, Some(3));
    let mut calls = Vec::new();
    loop {
        match page.next(None) {
            Step::Call(call) => {
                let result =
                    |item| if item == 1 { ItemResult::Retry { after: Duration::ZERO } } else { ItemResult::Done };
                let items: Vec<usize> = call.items.iter().collect();
                page.finished(each(items.iter().map(|item| result(*item)).collect()), NOW);
                calls.push(items);
            }
            Step::Pause(_) => {}
            Step::DeadLetter(letter) => {
                assert_eq!((letter.item, letter.attempts), (1, 3));
                page.dead_lettered();
            }
            Step::Done => break,
            Step::Mark(_) => panic!("not isolated"),
        }
    }
    assert_eq!(calls, [vec![0, 1], vec![1], vec![1]]);
}

#[test]
fn an_item_that_does_not_parse_is_not_retried_and_what_follows_is_delivered() {
    let unparsed = |item: usize| DelegateError::new("odd").permanent().at(item);
    let mut page = delivery(7, Some(5));
    assert!(matches!(page.next(None), Step::Call(_)));
    page.finished(Ok(Returned { result: BatchResult::Done, unparsed: Some(unparsed(3)) }), NOW);
    let Step::Call(call) = page.next(None) else { panic!("a call") };
    assert_eq!(call.items.ranges(), [4..7], "item 3 is held");
    page.finished(done(), NOW);
    assert!(matches!(page.next(None), Step::DeadLetter(FailedItem { item: 3, .. })));
    page.dead_lettered();
    assert_eq!(page.next(None), Step::Done);
}

#[test]
fn without_a_dead_letter_container_an_item_that_does_not_parse_is_retried() {
    let mut page = delivery(7, None);
    assert!(matches!(page.next(None), Step::Call(_)));
    page.finished(
        Ok(Returned { result: BatchResult::Done, unparsed: Some(DelegateError::new("odd").permanent().at(3)) }),
        NOW,
    );
    assert!(matches!(page.next(None), Step::Pause(_)));
    let Step::Call(call) = page.next(None) else { panic!("a call") };
    assert_eq!((call.items.ranges(), call.attempt), ([3..7].as_slice(), 2));
}

#[test]
fn the_search_of_an_earlier_owner_goes_on_at_its_batch() {
    let names: Vec<String> = (0..8).map(|item| format!("{item}:x")).collect();
    let search = Search { first: Some("4:x".into()), window: 2, ..Search::default() };
    let mut page = delivery(8, Some(3)).resume_search(&search, &names);
    let mut calls = Vec::new();
    while let Step::Call(call) = page.next(None) {
        calls.push((call.items.ranges().to_vec(), call.attempt));
        page.finished(done(), NOW);
    }
    assert_eq!(calls, [(vec![0..4], 1), (vec![4..6], 3), (vec![6..8], 1)]);
    let elsewhere = Search { first: Some("9:x".into()), window: 2, ..Search::default() };
    let mut page = delivery(8, Some(3)).resume_search(&elsewhere, &names);
    assert!(matches!(page.next(None), Step::Call(call) if call.items.len() == 8));
}

#[test]
fn in_isolation_each_batch_is_named_before_it_is_delivered() {
    let isolation = CrashIsolation::resume(None, 5, Policy { attempts: Some(5), ..Policy::default() }, 64).unwrap();
    let names: Vec<String> = (0..5).map(|item| format!("{item}:x")).collect();
    let mut page = delivery(5, Some(5)).isolate(&isolation, names);
    let mut marks = Vec::new();
    loop {
        match page.next(Some(&isolation)) {
            Step::Mark(search) => marks.push((search.first.unwrap(), search.window)),
            Step::Call(call) => {
                assert_eq!(marks.last().unwrap().0, format!("{}:x", call.items.first().unwrap()));
                page.finished(done(), NOW);
            }
            Step::Done => break,
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(marks, [("0:x".to_owned(), 2), ("2:x".to_owned(), 2), ("4:x".to_owned(), 1)]);
}
