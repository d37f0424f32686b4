//! What the tools print as JSON: names in snake_case, moments in milliseconds since the epoch, spans in seconds.

use std::time::Duration;

use changefeed_core::{Bytes, Change, FeedRange, ItemId, Lsn, Operation, Timestamp};
use serde::Serialize;

use crate::{
    Cause, DeadLetterPage, DeadLetterSummary, Explanation, Lag, LeaseLag, LeaseState, LeaseToken, Moved, Position,
    PullPage, Redriven, Skipped,
};

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("json")
}

fn token() -> LeaseToken {
    "-FF".parse().expect("token")
}

#[test]
fn lag_and_explanations() {
    let lease = LeaseLag {
        lease: token(),
        owner: Some("a".to_owned()),
        changes: 3,
        estimated: false,
        behind: Duration::from_millis(1500),
        state: LeaseState::SplitPending,
        checkpoint: Some(Lsn::new(7)),
    };
    let lag = Lag { leases: vec![lease], changes: 3, behind: Duration::from_secs(2), broken: vec!["x".to_owned()] };
    let expected = concat!(
        r#"{"leases":[{"lease":"-FF","owner":"a","changes":3,"estimated":false,"behind_seconds":1.5,"#,
        r#""state":"split_pending","checkpoint":7}],"changes":3,"behind_seconds":2.0,"broken":["x"]}"#
    );
    assert_eq!(json(&lag), expected);
    let explanation = Explanation {
        lease: token(),
        owner: None,
        cause: Cause::Retrying,
        sentence: "so".to_owned(),
        dead_letter_after: Some(5),
    };
    let expected = r#"{"lease":"-FF","owner":null,"cause":"retrying","sentence":"so","dead_letter_after":5}"#;
    assert_eq!(json(&explanation), expected);
}

#[test]
fn seeks() {
    let time = Position::Time(Timestamp::from_millis(7));
    let moved = Moved { lease: token(), owner: None, from: Position::Start, to: time };
    assert_eq!(json(&moved), r#"{"lease":"-FF","owner":null,"from":"start","to":{"time":7}}"#);
    assert_eq!(json(&Position::Continuation("\"3\"".to_owned())), r#"{"continuation":"\"3\""}"#);
}

#[test]
fn dead_letters() {
    let skipped = Skipped { id: "l".to_owned(), item: "i".to_owned(), reason: "r".to_owned() };
    let redriven = Redriven { done: vec!["d".to_owned()], skipped: vec![skipped] };
    assert_eq!(json(&redriven), r#"{"done":["d"],"skipped":[{"id":"l","item":"i","reason":"r"}]}"#);
    assert_eq!(json(&DeadLetterPage::default()), r#"{"letters":[],"unrecognised":[],"next":null}"#);
    let summary = DeadLetterSummary { total: 1, oldest: Some(Timestamp::from_millis(5)), ..Default::default() };
    assert_eq!(json(&summary), r#"{"total":1,"by_processor":{},"by_error":{},"oldest":5,"newest":null}"#);
}

#[test]
fn pages() {
    let change = Change {
        id: ItemId::new("o1").expect("id"),
        rid: None,
        lsn: Lsn::new(9),
        timestamp: Timestamp::from_millis(5),
        operation: Operation::Write,
        current: Some(Bytes::from_static(br#"{"id": "o1"}"#)),
        previous: None,
        previous_lsn: None,
    };
    let page = PullPage { changes: vec![change], range: Some(FeedRange::full()), request_charge: 0.0 };
    let expected = concat!(
        r#"{"changes":[{"id":"o1","rid":null,"lsn":9,"timestamp":5,"operation":"write","current":{"id": "o1"},"#,
        r#""previous":null,"previous_lsn":null}],"range":"-FF","request_charge":0.0}"#
    );
    assert_eq!(json(&page), expected);
}
