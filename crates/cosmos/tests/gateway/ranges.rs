//! The feed ranges while some of them are throttled or being split.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed_core::{ContainerSpec, ErrorKind, PartitionKeyDefinition};
use changefeed_cosmos::Options;

use crate::{
    proxy::{Answer, Answering, Rules, refusal},
    stage::Stage,
};

/// More than the SDK repeats by itself.
const THROTTLED: usize = 4;

/// The times that each range was asked for its id.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<BTreeMap<String, usize>>>);

impl Asked {
    /// Has each question about a range answered by its number, from 1, and the range.
    fn answering(&self, answer: impl Fn(usize, &str) -> Option<Answer> + Send + Sync + 'static) -> Answering {
        let own = self.clone();
        Arc::new(move |asked| {
            if !asked.reads_changes() || asked.after() != Some("*") {
                return None;
            }
            let mut counts = own.0.lock().unwrap();
            let count = counts.entry(asked.range().to_owned()).or_default();
            *count += 1;
            answer(*count, asked.range())
        })
    }

    fn take(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

async fn stage(ranges: usize, answering: Answering) -> Stage {
    let stage = Stage::new(Rules { answering: Some(answering), ..Rules::default() }).await;
    let mut spec = ContainerSpec::new("wide", PartitionKeyDefinition::hash("/customer").unwrap());
    spec.ranges = ranges;
    stage.create_as(spec).await;
    stage
}

#[tokio::test]
async fn ranges_that_are_throttled_are_asked_again_and_the_others_are_not() {
    let asked = Asked::default();
    // Each third one is throttled.
    let is_throttled = |range: &str| range.parse::<u32>().unwrap() % 3 == 0;
    let answering = asked.answering(move |count, range| {
        (count <= THROTTLED && is_throttled(range)).then(|| refusal(429, 3200, "the request rate is large"))
    });
    let stage = stage(30, answering).await;
    let orders = stage.open("wide").await;
    asked.take();
    let ranges = orders.feed_ranges().await.unwrap();
    assert_eq!(ranges.len(), 30);
    let direct = stage.direct("wide").await.feed_ranges().await.unwrap();
    assert!(ranges.iter().zip(direct.iter()).all(|(own, other)| (&own.id, &own.range) == (&other.id, &other.range)));
    for (range, count) in asked.take() {
        assert_eq!(count, if is_throttled(&range) { THROTTLED + 1 } else { 1 }, "range {range}");
    }
}

#[tokio::test]
async fn a_range_that_is_being_split_is_asked_again_and_the_others_are_not() {
    let asked = Asked::default();
    // The SDK gives up after eleven.
    let answering = asked.answering(|count, range| {
        (count <= 13 && range == "7").then(|| refusal(410, 1007, "the range is being split"))
    });
    let stage = stage(30, answering).await;
    let orders = stage.open("wide").await;
    asked.take();
    assert_eq!(orders.feed_ranges().await.unwrap().len(), 30);
    for (range, count) in asked.take() {
        assert_eq!(count, if range == "7" { 14 } else { 1 }, "range {range}");
    }
}

#[tokio::test]
async fn the_only_range_is_asked_again_while_it_is_being_split() {
    let asked = Asked::default();
    let answering = asked.answering(|count, _| (count <= 13).then(|| refusal(410, 1007, "the range is being split")));
    let stage = stage(1, answering).await;
    assert_eq!(stage.open("wide").await.feed_ranges().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_range_that_stays_throttled_fails_the_read_with_its_reason() {
    let asked = Asked::default();
    let answering = asked.answering(|_, range| (range == "1").then(|| refusal(429, 3200, "the request rate is large")));
    let stage = stage(3, answering).await;
    let options = Options::new().feed_timeout(Duration::from_secs(1));
    let failed = stage.open_with("wide", options).await.feed_ranges().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Throttled, "{failed:?}");
    assert!(asked.take().into_iter().all(|(range, count)| (range == "1") == (count > 3)));
}
