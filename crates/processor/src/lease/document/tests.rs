//! Every kind and state of a document against its golden file, and what is refused.

use std::{sync::Arc, time::Duration};

use changefeed_core::{ContainerIdentity, Error, ErrorKind, FeedRange, Mode, PartitionKeyDefinition, Timestamp};

use super::*;
use crate::lease::prefix::{LeasePrefix, LeaseToken};

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/lease/", $name, ".json")).trim_end()
    };
}

const NO_TIME: Duration = Duration::ZERO;

/// 2026-01-02T03:04:05.678Z.
const NOW: Timestamp = Timestamp::from_millis(1_767_323_045_678);

fn prefix() -> LeasePrefix {
    let monitored = ContainerIdentity {
        store: changefeed_core::StoreId::from_bits(1),
        account_host: "acct.documents.azure.com".into(),
        database_name: "shop".into(),
        container_name: "orders".into(),
        database: "kEgGAA==".parse().unwrap(),
        container: "kEgGAMy0JpU=".parse().unwrap(),
        partition_key: PartitionKeyDefinition::id(),
    };
    LeasePrefix::new("orders", &monitored).unwrap()
}

fn range(text: &str) -> FeedRange {
    text.parse().unwrap()
}

fn created() -> LeaseDocument {
    let token: LeaseToken = "0".parse().unwrap();
    let (id, first) = (prefix().lease_id(&token), range("-05C1DFFFFFFFFC"));
    LeaseDocument::new(id, None, LeaseVersion::Range, token, first, Mode::LatestVersion)
}

fn owned() -> LeaseDocument {
    let mut lease = created();
    lease.owner = Some("host-1".into());
    lease.set_epoch(1);
    lease.set_session(Some("9f86d081884c7d65"));
    lease.touch(NOW);
    lease
}

fn checkpointed() -> LeaseDocument {
    let mut lease = owned();
    lease.continuation = Some("\"7052\"".into());
    lease
}

fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap()
}

fn parsed(body: &str) -> LeaseDocument {
    LeaseDocument::parse(body.as_bytes()).unwrap()
}

fn refusal(body: &str) -> DocumentError {
    LeaseDocument::parse(body.as_bytes()).unwrap_err()
}

fn retrying() -> Status {
    Status::Retrying { attempts: 3, of: Some(5), error: "no route to host".into() }
}

/// A lease with one member replaced or added.
fn with(name: &str, value: &str) -> String {
    let mut lease: serde_json::Map<_, _> = serde_json::from_str(golden!("created")).unwrap();
    lease.insert(name.into(), serde_json::from_str(value).unwrap());
    serde_json::to_string(&lease).unwrap()
}

#[test]
fn every_kind_of_lease_is_written_as_its_golden_file_says() {
    let hand_over = {
        let mut lease = checkpointed();
        lease.set_hand_over(Some("host-2"));
        lease
    };
    let searching = {
        let mut lease = checkpointed();
        lease.set_epoch(4);
        lease.set_attempts(&Attempts { continuation: lease.continuation.clone(), count: 3 });
        let search = Search { first: Some("7053:order-17".into()), window: 1, crashes: 1, ..Search::default() };
        lease.set_search(Some(&search));
        lease.set_status(Some(&retrying()));
        lease.set_promise("host-1", Duration::from_secs(60));
        lease.set_generation(2);
        lease.set_paused(true);
        lease
    };
    let tombstone = {
        let mut lease = checkpointed();
        lease.owner = None;
        lease.set_epoch(2);
        lease.set_session(None);
        lease.set_gone(true);
        lease
    };
    let second = range("05C1DFFFFFFFFC-FF");
    let token = LeaseToken::from(&second);
    let feed_range = checkpointed().child(prefix().lease_id(&token), LeaseVersion::FeedRange, token, second);
    let mut partition_key = created();
    partition_key.partition_key = Some(partition_key.id.clone());
    let mut all_versions = created();
    all_versions.mode = Some(Mode::AllVersions);
    for (lease, golden) in [
        (created(), golden!("created")),
        (owned(), golden!("owned")),
        (checkpointed(), golden!("checkpointed")),
        (hand_over, golden!("hand-over")),
        (searching, golden!("searching")),
        (tombstone, golden!("tombstone")),
        (feed_range, golden!("feed-range")),
        (partition_key, golden!("partition-key")),
        (all_versions, golden!("all-versions")),
    ] {
        assert_eq!(text(lease.to_json()), golden);
        assert_eq!(parsed(golden), lease);
    }
}

#[test]
fn a_lease_that_was_read_is_written_back_byte_for_byte() {
    for golden in [
        golden!("created"),
        golden!("owned"),
        golden!("checkpointed"),
        golden!("hand-over"),
        golden!("searching"),
        golden!("tombstone"),
        golden!("feed-range"),
        golden!("partition-key"),
        golden!("all-versions"),
        golden!("sdk-v2-origin"),
        golden!("unknown-members"),
    ] {
        assert_eq!(text(parsed(golden).to_json()), golden);
        assert_eq!(parsed(golden).warnings(), Vec::<String>::new());
    }
}

#[test]
fn the_lock_and_the_marker_are_written_as_their_golden_files_say() {
    let positions = StartPositions::new(vec![
        (range("1F-FF"), StartPosition::Continuation("\"7052\"".into())),
        (range("-05C1DFFFFFFFFC"), StartPosition::Beginning),
        (range("05C1DFFFFFFFFC-1F"), StartPosition::Time(NOW)),
    ]);
    let [info, lock] = [prefix().info_id(), prefix().lock_id()];
    let none = StartPositions::default();
    for (info, golden) in [
        (InfoDocument::new(&info, None, &positions), golden!("info")),
        (InfoDocument::new(&info, None, &none), golden!("info-net")),
        (InfoDocument::new(&info, Some(info.clone()), &none), golden!("info-net-partition-key")),
    ] {
        assert_eq!(text(info.to_json()), golden);
        assert_eq!(InfoDocument::parse(golden.as_bytes()).unwrap(), info);
    }
    let ours = LockDocument::new(&lock, None, "9f86d081884c7d65").held_by("host-1", NOW);
    assert_eq!(text(ours.to_json()), golden!("lock"));
    assert_eq!((ours.nonce(), ours.owner()), (Some("9f86d081884c7d65"), Some("host-1")));
    for golden in [golden!("lock"), golden!("lock-net"), golden!("lock-net-partition-key")] {
        assert_eq!(text(LockDocument::parse(golden.as_bytes()).unwrap().to_json()), golden);
    }
    assert_eq!(LockDocument::parse(golden!("lock-net").as_bytes()).unwrap().nonce(), None);
    let stored = golden!("lock-net").replace('}', r#","_etag":"\"1\"","_ts":3}"#);
    assert_eq!(text(LockDocument::parse(stored.as_bytes()).unwrap().to_json()), stored);
}

#[test]
fn a_marker_gives_the_anchors_of_any_range_in_key_order() {
    let positions = InfoDocument::parse(golden!("info").as_bytes()).unwrap().start_positions();
    let (time, position) = (StartPosition::Time(NOW), StartPosition::Continuation("\"7052\"".into()));
    assert_eq!(positions.of(&range("-05")), [StartPosition::Beginning]);
    assert_eq!(positions.of(&range("1F-20")), std::slice::from_ref(&position));
    assert_eq!(positions.of(&FeedRange::full()), [StartPosition::Beginning, time.clone(), position.clone()]);
    assert_eq!(positions.pieces(&range("10-20")), [(range("10-1F"), time), (range("1F-20"), position)]);
    let partial = StartPositions::new(vec![(range("10-20"), StartPosition::Beginning)]);
    assert_eq!(partial.of(&range("20-30")), []);
    assert_eq!(partial.pieces(&range("-FF")), [(range("10-20"), StartPosition::Beginning)]);
}

#[test]
fn neighbours_that_began_alike_share_an_entry() {
    let split =
        |start: StartPosition| StartPositions::new(vec![(range("10-FF"), start.clone()), (range("-10"), start)]);
    assert_eq!(
        split(StartPosition::Beginning),
        StartPositions::new(vec![(FeedRange::full(), StartPosition::Beginning)])
    );
    let apart =
        StartPositions::new(vec![(range("-10"), StartPosition::Beginning), (range("20-FF"), StartPosition::Beginning)]);
    assert_eq!(apart.pieces(&FeedRange::full()).len(), 2);
}

#[test]
fn start_positions_that_cannot_be_read_are_refused_rather_than_guessed() {
    for positions in ["", "[", "{}", r#"[{"range":"FF"}]"#, r#"[{"range":"FF-","start":"beginning"}]"#, "[{}]"] {
        let body = serde_json::json!({"id": "x.info", "properties": {"cf.anchors": positions}}).to_string();
        let error = InfoDocument::parse(body.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "properties.cf.anchors is not a list of positions: repair or delete the document",
            "{positions}"
        );
    }
}

#[test]
fn info_of_dot_net_hosts_keeps_its_creation_when_it_is_changed() {
    let read = |text: &str| InfoDocument::parse(text.as_bytes()).unwrap();
    let mut info = read(golden!("info-net"));
    assert_eq!(info.dot_net_creation(NOW), Some(NOW));
    info.note_dot_net_creation(NOW);
    info.set_store("acct.documents.azure.com");
    let mut stored = read(std::str::from_utf8(&info.to_json()).unwrap());
    let later = Timestamp::from_millis(NOW.as_millis() + 1);
    stored.note_dot_net_creation(later);
    assert_eq!(stored.dot_net_creation(later), Some(NOW));
    let mut ours = read(golden!("info"));
    ours.note_dot_net_creation(NOW);
    assert_eq!((ours.dot_net_creation(NOW), ours), (None, read(golden!("info"))));
}

#[test]
fn old_documents_are_understood() {
    let v2 = r#"{"id":"x..0","PartitionId":"0","Owner":"","ContinuationToken":"","_etag":"\"1\"","_ts":5}"#;
    let lease = parsed(v2);
    assert_eq!((lease.version, lease.token.as_str()), (LeaseVersion::Range, "0"));
    assert_eq!((&lease.owner, &lease.continuation, lease.range(), lease.mode), (&None, &None, None, None));
    assert_eq!(
        text(lease.to_json()),
        r#"{"id":"x..0","version":0,"_etag":"\"1\"","LeaseToken":"0","PartitionId":"0","Owner":null,"ContinuationToken":null,"properties":{},"timestamp":null,"_ts":5}"#
    );
    let before_2021 =
        r#"{"id":"x..0","LeaseToken":"0","Owner":" ","properties":null,"FeedRange":null,"timestamp":null}"#;
    assert_eq!((parsed(before_2021).owner, parsed(before_2021).feed_range), (None, None));
    let flags = with("FeedRange", r#"{"Range":{"min":"","max":"ff","isMinInclusive":true,"isMaxInclusive":false}}"#);
    assert_eq!(parsed(&flags).feed_range, Some(FeedRange::full()));
    assert_eq!(parsed(&with("Mode", r#""full-fidelity feed""#)).mode, Some(Mode::AllVersions));
}

#[test]
fn a_feed_range_lease_without_a_range_has_that_of_its_token() {
    let body = r#"{"id":"x..-1F","version":1,"LeaseToken":"-1F","properties":{}}"#;
    assert_eq!((parsed(body).feed_range.clone(), parsed(body).range()), (None, Some(range("-1F"))));
    let error = refusal(r#"{"id":"x..7","version":1,"LeaseToken":"7","properties":{}}"#);
    assert_eq!(error.to_string(), "FeedRange is missing, and LeaseToken is not min-max: repair or delete the document");
}

#[test]
fn leases_of_java_hosts_are_refused() {
    for (body, dialect) in [
        (golden!("java-ranges"), JavaDialect::PhysicalRanges),
        (golden!("java-feed-ranges"), JavaDialect::FeedRanges),
        // A .NET lease after a Java host has written it.
        (r#"{"id":"x..0","_etag":null,"LeaseToken":"0","Owner":"h","version":1}"#, JavaDialect::FeedRanges),
    ] {
        let error = refusal(body);
        assert_eq!(error, DocumentError::JavaDialect(dialect));
        assert!(error.is_java() && error.to_string().ends_with("give this processor a name of its own"));
        assert_eq!(Error::from(error).kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_version_that_net_would_misread_is_refused() {
    for number in [2, -1, i64::MAX] {
        let error = refusal(&with("version", &number.to_string()));
        assert_eq!(error, DocumentError::UnknownVersion(number));
        assert_eq!(Error::from(error).kind(), ErrorKind::UnknownFormat);
    }
    assert_eq!(parsed(&with("version", "null")).version, LeaseVersion::Range);
}

#[test]
fn a_bad_member_is_named() {
    for (name, value) in [
        ("id", "7"),
        ("id", "null"),
        ("partitionKey", "[]"),
        ("version", "\"0\""),
        ("version", "0.5"),
        ("_etag", "1"),
        ("LeaseToken", "0"),
        ("LeaseToken", "null"),
        ("LeaseToken", "\"\""),
        ("LeaseToken", "\"a/b\""),
        ("PartitionId", "0"),
        ("FeedRange", r#"{"PKRangeId":"0"}"#),
        ("FeedRange", r#"{"Range":{"min":"20","max":"10"}}"#),
        ("Owner", "{}"),
        ("ContinuationToken", "7052"),
        ("properties", "[]"),
        ("timestamp", "0"),
        ("_ts", "\"0\""),
        ("Mode", "\"Sometimes\""),
    ] {
        let error = refusal(&with(name, value));
        assert!(matches!(&error, DocumentError::BadField { field, .. } if field == name), "{name} {value}: {error}");
        assert_eq!(Error::from(error).kind(), ErrorKind::Corrupt);
    }
    for value in ["1", "null", "{}", "true"] {
        let error = refusal(&with("properties", &format!(r#"{{"a":"b","count":{value}}}"#)));
        assert_eq!(error.to_string(), "properties.count is not a string: repair or delete the document");
    }
    assert_eq!(refusal(r#"{"id":"a","id":"b"}"#), DocumentError::bad_field("id", "appears twice"));
}

#[test]
fn a_body_that_is_no_object_is_refused_and_no_body_panics() {
    for body in ["", "null", "[]", "7", "\"x\"", "{", "{\"id\":\"a\"} x"] {
        assert!(matches!(refusal(body), DocumentError::NotJson { .. }), "{body}");
    }
    let whole = golden!("unknown-members");
    for end in 0..whole.len() {
        assert!(LeaseDocument::parse(&whole.as_bytes()[..end]).is_err());
    }
    for at in 0..whole.len() {
        for byte in [b'"', b'{', b'}', b'0', 0, 0xFF] {
            let mut body = whole.as_bytes().to_vec();
            body[at] = byte;
            if let Ok(lease) = LeaseDocument::parse(&body) {
                assert_eq!(LeaseDocument::parse(&lease.to_json()).unwrap(), lease);
            }
        }
    }
}

#[test]
fn our_state_comes_back_and_leaves_no_trace_when_cleared() {
    let lease = parsed(golden!("searching"));
    assert_eq!((lease.epoch(), lease.generation(), lease.session()), (4, 2, Some("9f86d081884c7d65")));
    assert_eq!(lease.attempts(), Attempts { continuation: Some("\"7052\"".into()), count: 3 });
    assert_eq!(lease.search().unwrap().first.as_deref(), Some("7053:order-17"));
    assert_eq!(lease.status(), Some(retrying()));
    assert_eq!((lease.owner_kind(), lease.expires_after(NO_TIME)), (Some(OwnerKind::Current), Duration::from_secs(60)));
    assert!(lease.is_paused() && !lease.is_gone());
    assert_eq!(parsed(golden!("hand-over")).hand_over(), Some(HandOver { to: "host-2".into() }));
    assert!(parsed(golden!("tombstone")).is_gone());
    let mut again = parsed(golden!("tombstone"));
    again.set_gone(false);
    assert!(text(again.to_json()).contains(r#""LeaseToken":"0","PartitionId":"0""#), "a lease again");

    let mut lease = lease;
    lease.set_epoch(0);
    lease.set_generation(0);
    lease.set_session(None);
    lease.set_attempts(&Attempts::default());
    lease.set_search(None);
    lease.set_status(None);
    lease.set_promised_by(None);
    lease.set_paused(false);
    assert!(lease.properties.iter().eq([(&"cf.version".to_owned(), &"2".to_owned())]));
}

#[test]
fn a_count_of_attempts_ends_with_its_checkpoint() {
    let mut lease = checkpointed();
    lease.set_attempts(&Attempts { continuation: lease.continuation.clone(), count: 3 });
    lease.continuation = Some("\"7060\"".into());
    assert_eq!(lease.attempts(), Attempts { continuation: Some("\"7060\"".into()), count: 0 });
    lease.continuation = None;
    lease.set_attempts(&Attempts { continuation: None, count: 2 });
    assert_eq!((lease.attempts().count, lease.properties.get("cf.attempts").unwrap().as_str()), (2, "2"));
    lease.continuation = Some("with a space".into());
    lease.set_attempts(&Attempts { continuation: lease.continuation.clone(), count: 1 });
    assert_eq!(lease.attempts().count, 1);
}

#[test]
fn a_property_of_ours_that_cannot_be_read_counts_as_absent_and_is_reported() {
    let mut lease = created();
    for (key, value) in [
        ("cf.attempts", "many"),
        ("cf.epoch", "-1"),
        ("cf.generation", "18446744073709551615"),
        ("cf.gone", "yes"),
        ("cf.hand-over", ""),
        ("cf.later", "??"),
        ("cf.paused", "1"),
        ("tenant", ""),
    ] {
        Arc::make_mut(&mut lease.properties).insert(key.into(), value.into());
    }
    assert_eq!((lease.epoch(), lease.generation(), lease.attempts().count), (0, 0, 0));
    assert_eq!((lease.hand_over(), lease.is_paused(), lease.is_gone()), (None, false, false));
    let warnings = lease.warnings();
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    assert_eq!(warnings[1], r#"property cf.epoch of lease 0 is "-1", not a number: ignored"#);
}

#[test]
fn what_version_1_wrote_is_still_read() {
    let mut lease = parsed(golden!("version-1"));
    assert_eq!(lease.status(), Some(Status::Text { text: "retry 3 of 5: no route to host".into() }));
    let search = lease.search().unwrap();
    assert_eq!((search.first.as_deref(), search.crashes, search.window), (Some("order-17 at 7053"), 1, 1));
    assert_eq!(lease.owner_kind(), Some(OwnerKind::Version1));
    lease.count_crash();
    assert_eq!(lease.search(), Some(search), "what version 1 wrote counts the crash already");
    assert_eq!(lease.attempts().count, 4);
    lease.set_status(None);
    lease.set_search(None);
    assert!(!lease.properties.contains_key("cf.state") && !lease.properties.contains_key("cf.suspect"));
}

#[test]
fn a_promise_counts_only_while_its_author_owns_the_lease() {
    let second = Duration::from_secs(1);
    let mut lease = owned();
    lease.set_promise("host-1", 8 * second);
    assert_eq!((lease.owner_kind(), lease.expires_after(second)), (Some(OwnerKind::Current), 8 * second));
    lease.set_promise("host-1", 9000 * second);
    assert_eq!(lease.expires_after(second), 600 * second, "a promise has an upper bound");
    // A .NET host copies what it finds.
    lease.owner = Some("net".into());
    assert_eq!((lease.owner_kind(), lease.expires_after(second)), (Some(OwnerKind::Foreign), 60 * second));
    assert_eq!(lease.expires_after(90 * second), 90 * second);
    // A host of version 1 raises the epoch and has a session of its own.
    lease.set_epoch(lease.epoch() + 1);
    assert_eq!((lease.owner_kind(), lease.expires_after(second)), (Some(OwnerKind::Version1), 60 * second));
    lease.owner = None;
    assert_eq!((lease.owner_kind(), lease.expires_after(second)), (None, second));
}

#[test]
fn properties_of_a_later_version_are_refused_with_what_to_do() {
    let error = refusal(&with("properties", r#"{"cf.version":"3"}"#));
    assert_eq!(error, DocumentError::FutureVersion(3));
    assert!(error.to_string().ends_with(": update this host") && error.is_future());
    assert!(LeaseDocument::parse(with("properties", r#"{"cf.version":"x"}"#).as_bytes()).is_ok());
}

#[test]
fn a_child_goes_on_at_the_checkpoint_and_inherits_no_ownership() {
    let mut parent = parsed(golden!("searching"));
    Arc::make_mut(&mut parent.properties).insert("tenant".into(), "blue".into());
    parent.partition_key = Some("a random guid".into());
    parent.set_hand_over(Some("host-2"));
    parent.mode = None;
    let child = parent.child("x..3".into(), LeaseVersion::Range, "3".parse().unwrap(), range("-02"));
    assert_eq!((child.id.as_str(), child.partition_key.as_deref()), ("x..3", Some("x..3")));
    assert_eq!((&child.owner, &child.timestamp, child.mode), (&None, &None, Some(Mode::LatestVersion)));
    assert_eq!((&child.continuation, child.attempts()), (&parent.continuation, parent.attempts()));
    assert_eq!((child.generation(), child.is_paused(), child.search()), (2, true, parent.search()));
    assert_eq!((child.epoch(), child.session(), child.hand_over(), child.status()), (0, None, None, None));
    assert_eq!(child.properties.get("tenant").unwrap(), "blue");
}

fn facts(lease: &LeaseDocument) -> impl PartialEq + std::fmt::Debug + use<> {
    let numbers = (lease.epoch(), lease.generation(), lease.expires_after(Duration::from_secs(1)));
    let texts = (lease.session().map(str::to_owned), lease.hand_over(), lease.owner_kind());
    (numbers, texts, lease.is_paused(), lease.is_gone())
}

#[test]
fn properties_that_were_read_are_those_of_the_texts_and_a_change_shows() {
    let range = FeedRange::full();
    let mut lease =
        LeaseDocument::new("x..0".into(), None, LeaseVersion::Range, "0".parse().unwrap(), range, Mode::LatestVersion);
    lease.owner = Some("a".into());
    lease.set_epoch(3);
    lease.set_promise("a", Duration::from_secs(7));
    let plain = lease.clone();
    let mut read = lease.read_properties();
    assert!(read.read.get().is_some() && read.clone().read.get().is_none());
    assert_eq!((facts(&read), &read), (facts(&plain), &plain));
    let changes: [fn(&mut LeaseDocument); 7] = [
        |lease| lease.set_epoch(4),
        |lease| lease.set_generation(2),
        |lease| lease.set_session(Some("s")),
        |lease| lease.set_hand_over(Some("b")),
        |lease| lease.set_promise("a", Duration::from_secs(8)),
        |lease| lease.set_paused(true),
        |lease| lease.set_gone(true),
    ];
    for change in changes {
        let before = facts(&read);
        change(&mut read);
        assert_ne!(facts(&read), before);
        read = read.read_properties();
    }
}
