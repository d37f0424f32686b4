//! The examples of the documents that the other implementations write, and what becomes of them.

use changefeed_core::{PartitionKeyDefinition, RangeId, ResourceId, StoreId};
use serde_json::Value;

use super::*;
use crate::lease::document::InfoDocument;

const V1_STATE: &str = "eyJWIjoxLCJSaWQiOiIvZGJzL2QvY29sbHMvYyIsIk1vZGUiOiJJTkNSRU1FTlRBTCIsIlN0YXJ0RnJvbSI6eyJUeXBlIjoiTk9XIn0sIkNvbnRpbnVhdGlvbiI6eyJWIjoxLCJSaWQiOiIvZGJzL2QvY29sbHMvYyIsIkNvbnRpbnVhdGlvbiI6W3sidG9rZW4iOiJcIjQyXCIiLCJyYW5nZSI6eyJtaW4iOiIiLCJtYXgiOiJGRiJ9fV0sIlJhbmdlIjp7Im1pbiI6IiIsIm1heCI6IkZGIn19fQ==";

fn monitored() -> ContainerIdentity {
    let container: ResourceId = "kEgGAMy0JpU=".parse().unwrap();
    ContainerIdentity {
        store: StoreId::new("acct.documents.azure.com").unwrap(),
        account_host: "acct.documents.azure.com".to_owned(),
        database_name: "mydb".to_owned(),
        container_name: "mycoll".to_owned(),
        database: container.database_part(),
        container,
        partition_key: PartitionKeyDefinition::id(),
    }
}

fn range(id: u64, range: &str, parents: &[u64]) -> PhysicalRange {
    let parents = parents.iter().map(|parent| RangeId::from(*parent)).collect();
    PhysicalRange { id: id.into(), range: range.parse().unwrap(), parents }
}

fn plan(live: &[PhysicalRange], documents: &[&str]) -> ImportPlan {
    let bodies = documents.iter().map(|text| text.as_bytes());
    plan_import("orders", &monitored(), live, bodies, &StartFrom::Now, false).unwrap()
}

fn encode(state: &str) -> String {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE};
    BASE64_URL_SAFE.encode(state)
}

#[test]
fn a_lease_of_the_old_library_for_dot_net_keeps_position_and_properties() {
    let old = r#"{"id":"oldacct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=..0","PartitionId":"0","Owner":null,
        "ContinuationToken":"\"7052\"","properties":{"team":"shop"},"timestamp":"2019-01-02T03:04:05Z","_etag":"\"e\"",
        "_ts":1546398245}"#;
    let plan = plan(&[range(0, "-FF", &[])], &[old]);
    assert!(plan.is_complete(), "{plan:?}");
    let lease = &plan.leases[0];
    assert_eq!((lease.dialect, lease.token.as_str()), (LeaseDialect::DotNetV2, "0"));
    assert_eq!(lease.id, "ordersacct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=..0");
    let document = LeaseDocument::parse(&lease.document).unwrap();
    assert_eq!(document.continuation.as_deref(), Some("\"7052\""));
    assert_eq!((document.range(), document.owner.as_ref()), (Some(FeedRange::full()), None));
    assert_eq!(document.properties.get("team").map(String::as_str), Some("shop"));
}

#[test]
fn a_lease_of_java_for_a_physical_range_keeps_its_etag() {
    let java = r#"{"id":"TESTacct.documents.azure.com_mydb_mycoll..0","_etag":null,"LeaseToken":"0",
        "ContinuationToken":"\"1234\"","timestamp":"2026-01-02T03:04:05.678901Z","Owner":null}"#;
    let plan = plan(&[range(0, "-FF", &[])], &[java]);
    assert!(plan.is_complete(), "{plan:?}");
    assert_eq!(plan.leases[0].dialect, LeaseDialect::JavaRanges);
    assert_eq!(plan.leases[0].continuation.as_deref(), Some("\"1234\""));
    plan.check().unwrap();
}

#[test]
fn a_lease_of_java_for_a_feed_range_gives_the_etag_inside_of_its_state() {
    let java = format!(
        r#"{{"id":"TESTacct.documents.azure.com_kEgGAA==_kEgGAMy0JpU=..-FF","_etag":"\"e\"","LeaseToken":"-FF",
        "ContinuationToken":"{V1_STATE}","timestamp":"2026-01-02T03:04:05.678901Z","Owner":null,"version":1,
        "feedRange":{{"Range":{{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}}}}}}"#
    );
    let plan = plan(&[range(3, "-FF", &[])], &[&java]);
    assert!(plan.is_complete(), "{plan:?}");
    let lease = &plan.leases[0];
    assert_eq!((lease.dialect, lease.token.as_str()), (LeaseDialect::JavaFeedRanges, "3"));
    assert_eq!(lease.continuation.as_deref(), Some("\"42\""));
}

#[test]
fn a_lease_of_java_that_has_read_nothing_keeps_its_start() {
    let states = [
        (r#"{"V":1,"Rid":"c","Mode":"INCREMENTAL","StartFrom":{"Type":"BEGINNING"}}"#, "beginning"),
        (
            r#"{"V":1,"Rid":"c","Mode":"INCREMENTAL","StartFrom":{"Type":"POINT_IN_TIME","PointInTimeMs":1700000000000}}"#,
            "time 1700000000",
        ),
    ];
    for (state, expected) in states {
        let java = format!(
            r#"{{"id":"x..-FF","LeaseToken":"-FF","ContinuationToken":"{}","Owner":null,"version":1,
            "feedRange":{{"Range":{{"min":"","max":"FF"}}}}}}"#,
            encode(state)
        );
        let plan = plan(&[range(0, "-FF", &[])], &[&java]);
        assert_eq!(plan.leases[0].start.as_deref(), Some(expected), "{plan:?}");
    }
}

#[test]
fn a_part_of_a_range_becomes_a_lease_of_a_feed_range() {
    let java = |token: &str, min: &str, max: &str| {
        format!(
            r#"{{"id":"x..{token}","LeaseToken":"{token}","ContinuationToken":"{V1_STATE}","Owner":null,"version":1,
            "feedRange":{{"Range":{{"min":"{min}","max":"{max}"}}}}}}"#
        )
    };
    let plan = plan(&[range(4, "-FF", &[])], &[&java("-1F", "", "1F"), &java("1F-FF", "1F", "FF")]);
    assert!(plan.is_complete(), "{plan:?}");
    let tokens: Vec<_> = plan.leases.iter().map(|lease| lease.token.as_str()).collect();
    assert_eq!(tokens, ["-1F", "1F-FF"]);
}

#[test]
fn the_children_of_a_range_that_was_split_begin_at_its_position() {
    let java =
        r#"{"id":"x..0","_etag":null,"LeaseToken":"0","ContinuationToken":"\"9\"","timestamp":null,"Owner":null}"#;
    let plan = plan(&[range(1, "-1F", &[0]), range(2, "1F-FF", &[0])], &[java]);
    assert!(plan.is_complete(), "{plan:?}");
    let found: Vec<_> = plan.leases.iter().map(|lease| (lease.token.as_str(), lease.continuation.as_deref())).collect();
    assert_eq!(found, [("1", Some("\"9\"")), ("2", Some("\"9\""))]);
}

#[test]
fn what_cannot_be_moved_is_named_and_nothing_is_guessed() {
    let lease = |token: &str, owner: &str| {
        format!(
            r#"{{"id":"x..{token}","_etag":null,"LeaseToken":"{token}","ContinuationToken":"\"9\"","timestamp":null,"Owner":{owner}}}"#
        )
    };
    let live = [range(1, "-1F", &[]), range(2, "1F-FF", &[])];
    let gone = plan(&live, &[&lease("0", "null"), &lease("1", "null")]);
    assert!(gone.refused[0].1.contains("range 0 is not there any more"), "{gone:?}");
    assert_eq!(gone.uncovered, ["1F-FF".parse::<FeedRange>().unwrap()]);
    assert!(gone.check().unwrap_err().message().contains("cannot be imported"));
    let owned = plan(&live, &[&lease("1", "\"host-1\""), &lease("2", "null")]);
    assert!(owned.check().unwrap_err().message().contains("owned by host-1: stop its hosts first"));
    let twice = plan(&live, &[&lease("1", "null"), &lease("1", "null"), &lease("2", "null")]);
    assert!(twice.refused[0].1.contains("covers some of its keys as well"), "{twice:?}");
    let broken = plan(&live, &["{", r#"{"id":"x..1","LeaseToken":"1","version":7,"properties":{}}"#]);
    assert_eq!(broken.refused.len(), 2);
    assert_eq!(broken.uncovered.len(), 2);
}

#[test]
fn a_state_that_is_not_of_java_is_refused_with_what_is_wrong() {
    let states = [
        ("%%%".to_owned(), "is not base64"),
        (encode("{}"), "is not a state of the Java SDK"),
        (encode(r#"{"V":2,"Mode":"INCREMENTAL","StartFrom":{"Type":"NOW"}}"#), "has version 2"),
        (encode(r#"{"V":1,"Mode":"OTHER","StartFrom":{"Type":"NOW"}}"#), "is not known"),
        (
            encode(
                r#"{"V":1,"Mode":"INCREMENTAL","StartFrom":{"Type":"NOW"},"Continuation":{"Continuation":[{"token":"1"},{"token":"2"}]}}"#,
            ),
            "has 2 positions",
        ),
    ];
    for (state, wrong) in states {
        let java = format!(
            r#"{{"id":"x..-FF","LeaseToken":"-FF","ContinuationToken":"{state}","Owner":null,"version":1,
            "feedRange":{{"Range":{{"min":"","max":"FF"}}}}}}"#
        );
        let plan = plan(&[range(0, "-FF", &[])], &[&java]);
        assert!(plan.refused[0].1.contains(wrong), "{wrong}: {plan:?}");
    }
}

#[test]
fn leases_of_a_container_with_partition_keys_have_one() {
    let java =
        br#"{"id":"x..0","_etag":null,"LeaseToken":"0","ContinuationToken":"\"9\"","timestamp":null,"Owner":null}"#;
    let live = [range(0, "-FF", &[])];
    let plan = plan_import("orders", &monitored(), &live, [&java[..]], &StartFrom::Now, true).unwrap();
    let document: Value = serde_json::from_slice(&plan.leases[0].document).unwrap();
    assert_eq!(document["partitionKey"], document["id"]);
}

/// A lease of each kind that has no position, and its mode.
fn without_position() -> Vec<(String, Mode)> {
    let java = |state: &str| {
        format!(
            r#"{{"id":"x..-FF","LeaseToken":"-FF","ContinuationToken":"{}","Owner":null,"version":1,
            "feedRange":{{"Range":{{"min":"","max":"FF"}}}},"timestamp":"2026-01-02T03:04:05.678901Z"}}"#,
            encode(state)
        )
    };
    vec![
        (
            r#"{"id":"x..0","PartitionId":"0","Owner":null,"ContinuationToken":null,"properties":{},
            "timestamp":"2019-01-02T03:04:05Z","_ts":1546398245}"#
                .to_owned(),
            Mode::LatestVersion,
        ),
        (
            r#"{"id":"x..0","_etag":null,"LeaseToken":"0","ContinuationToken":null,
            "timestamp":"2026-01-02T03:04:05.678901Z","Owner":null}"#
                .to_owned(),
            Mode::LatestVersion,
        ),
        (java(r#"{"V":1,"Rid":"c","Mode":"INCREMENTAL","StartFrom":{"Type":"NOW"}}"#), Mode::LatestVersion),
        (java(r#"{"V":1,"Rid":"c","Mode":"FULL_FIDELITY","StartFrom":{"Type":"NOW"}}"#), Mode::AllVersions),
    ]
}

fn plan_from(start: &StartFrom, documents: &[&str]) -> ImportPlan {
    let bodies = documents.iter().map(|text| text.as_bytes());
    plan_import("orders", &monitored(), &[range(0, "-FF", &[])], bodies, start, false).unwrap()
}

/// Where the one lease of a plan begins.
fn position(plan: &ImportPlan) -> StartPosition {
    plan.check().unwrap();
    let document = LeaseDocument::parse(&plan.leases[0].document).unwrap();
    let position = document.continuation.clone().map(StartPosition::Continuation).or_else(|| document.start());
    assert_eq!(position.as_ref(), Some(&plan.leases[0].position));
    position.unwrap()
}

#[test]
fn a_lease_without_a_position_begins_before_its_hosts_created_it_or_where_they_were_told() {
    let info = r#"{"id":"x.info","_ts":10000}"#;
    let time = |seconds| StartPosition::Time(Timestamp::from_secs(seconds));
    let table = [
        (StartFrom::Now, true, Some(time(9700))),
        (StartFrom::Now, false, None),
        (StartFrom::Beginning, true, Some(StartPosition::Beginning)),
        (StartFrom::Beginning, false, Some(StartPosition::Beginning)),
        (StartFrom::Time(Timestamp::from_secs(500)), true, Some(time(500))),
        (StartFrom::Time(Timestamp::from_secs(50_000)), true, Some(time(9700))),
        (StartFrom::Time(Timestamp::from_secs(500)), false, Some(time(500))),
    ];
    for (lease, mode) in without_position() {
        for (start, has_info, expected) in &table {
            let documents = [lease.as_str(), info];
            let plan = plan_from(start, if *has_info { &documents } else { &documents[..1] });
            match expected.as_ref().filter(|_| mode == Mode::LatestVersion) {
                Some(expected) => assert_eq!(&position(&plan), expected, "{start:?} {has_info} {lease}"),
                None => {
                    let error = plan.check().unwrap_err();
                    let wanted = match mode {
                        Mode::LatestVersion => "pass their .info document with the leases",
                        Mode::AllVersions => "pass a continuation as `start`",
                    };
                    assert!(error.message().contains(wanted), "{error}");
                    assert!(!plan.is_complete());
                }
            }
        }
        let zero = StartFrom::Continuation(changefeed_core::Continuation::from_token("\"0\""));
        assert_eq!(position(&plan_from(&zero, &[&lease])), StartPosition::Continuation("\"0\"".to_owned()));
    }
}

/// A lease of ours for a range.
fn own(token: &str, edit: impl Fn(&mut LeaseDocument)) -> String {
    let (id, range) = (format!("x..{token}"), token.parse().unwrap_or(FeedRange::full()));
    let version = if token.contains('-') { LeaseVersion::FeedRange } else { LeaseVersion::Range };
    let mut lease = LeaseDocument::new(id, None, version, token.parse().unwrap(), range, Mode::LatestVersion);
    lease.set_epoch(7);
    lease.set_session(Some("s"));
    edit(&mut lease);
    String::from_utf8(lease.to_json()).unwrap()
}

#[test]
fn a_lease_of_ours_keeps_a_seek_a_pause_and_its_generation() {
    for start in [StartPosition::Beginning, StartPosition::Time(Timestamp::from_millis(1_234_567))] {
        let lease = own("0", |lease| {
            lease.set_start(&start);
            lease.set_paused(true);
            lease.set_generation(3);
        });
        let plan = plan_from(&StartFrom::Now, &[&lease]);
        assert_eq!(position(&plan), start);
        let document = LeaseDocument::parse(&plan.leases[0].document).unwrap();
        assert_eq!((document.is_paused(), document.generation()), (true, 3));
        assert_eq!((document.epoch(), document.session()), (0, None), "it is a new lease");
    }
}

#[test]
fn a_lease_of_ours_without_a_position_begins_where_its_info_says() {
    let mut info = InfoDocument::new(
        "x.info",
        None,
        &StartPositions::new(vec![
            ("-1F".parse().unwrap(), StartPosition::Beginning),
            ("1F-FF".parse().unwrap(), StartPosition::Continuation("\"9\"".to_owned())),
        ]),
    );
    let lease = own("0", |_| ());
    let read = |info: &InfoDocument| plan_from(&StartFrom::Now, &[&lease, &String::from_utf8(info.to_json()).unwrap()]);
    let plan = read(&info);
    plan.check().unwrap();
    let found: Vec<_> = plan.leases.iter().map(|lease| (lease.token.as_str(), &lease.position)).collect();
    assert_eq!(
        found,
        [("-1F", &StartPosition::Beginning), ("1F-FF", &StartPosition::Continuation("\"9\"".to_owned()))]
    );
    info.set_store("another.documents.azure.com");
    let error = read(&info).check().unwrap_err();
    assert!(error.message().contains("restored or replaced"), "{error}");
}

#[test]
fn a_tombstone_is_left_out_unless_no_lease_has_its_keys() {
    let at = |token: &'static str, position: &'static str, gone: bool| {
        own(token, move |lease| {
            lease.continuation = Some(position.to_owned());
            lease.set_gone(gone);
        })
    };
    let tombstone = at("0", "\"5\"", true);
    let plan = plan_from(&StartFrom::Now, &[&tombstone, &at("-1F", "\"7\"", false), &at("1F-FF", "\"8\"", false)]);
    plan.check().unwrap();
    let found: Vec<_> = plan.leases.iter().map(|lease| lease.continuation.as_deref()).collect();
    assert_eq!(found, [Some("\"7\""), Some("\"8\"")]);
    let plan = plan_from(&StartFrom::Now, &[&tombstone]);
    assert_eq!(position(&plan), StartPosition::Continuation("\"5\"".to_owned()));
    assert!(!LeaseDocument::parse(&plan.leases[0].document).unwrap().is_gone());
}

#[test]
fn a_lock_and_leases_of_two_modes_are_refused() {
    let lease = own("0", |lease| lease.continuation = Some("\"5\"".to_owned()));
    let locked = plan_from(
        &StartFrom::Now,
        &[&lease, r#"{"id":"x.lock","ttl":30}"#, r#"{"id":"x.time"}"#, r#"{"id":"x.reset"}"#],
    );
    assert_eq!(locked.refused.len(), 1);
    assert!(locked.check().unwrap_err().message().contains("a host is creating leases"), "{locked:?}");
    let at = |token: &'static str, mode| {
        own(token, move |lease| {
            lease.continuation = Some("\"5\"".to_owned());
            lease.mode = Some(mode);
        })
    };
    let mixed = plan_from(&StartFrom::Now, &[&at("-1F", Mode::LatestVersion), &at("1F-FF", Mode::AllVersions)]);
    assert!(mixed.check().unwrap_err().message().contains("a processor has one mode"), "{mixed:?}");
}

#[test]
fn leases_of_two_processors_are_not_mixed() {
    let lease = |prefix: &str, token: &str| {
        format!(
            r#"{{"id":"{prefix}..{token}","_etag":null,"LeaseToken":"{token}","ContinuationToken":"\"9\"","timestamp":null,"Owner":null}}"#
        )
    };
    let live = [range(1, "-1F", &[]), range(2, "1F-FF", &[])];
    let others = [r#"{"id":"shop_orders.eu.lock"}"#, r#"{"id":"shop_orders.eu.info","properties":{"cf.store":"x"}}"#];
    let own = [lease("shop_orders", "1"), lease("shop_orders", "2")];
    plan(&live, &[&own[0], &own[1], others[0], others[1]]).check().expect("the other documents do not matter");
    let mixed = plan(&live, &[&lease("shop_orders", "1"), &lease("shop_orders.eu", "2")]);
    let error = mixed.check().unwrap_err();
    assert!(error.message().contains("shop_orders.eu..2"), "{error}");
    assert!(error.message().contains("of another processor than shop_orders..1"), "{error}");
}
