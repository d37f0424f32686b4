//! Messages of [`VERSION`] as bytes: a client and a server that were built at different times understand each other. If a
//! message has to change, give the calls another version; do not renew the file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use bytes::Bytes;
use changefeed_core::{
    Batch, Capabilities, Change, ChangePage, ContainerIdentity, ContainerInfo, ContainerSpec, Continuation,
    DatabaseInfo, DatabaseSpec, ETag, Epk, Error, ErrorKind, FeedRange, Item, ItemId, ItemKey, ItemPage, ListItems,
    Lsn, Mode, Operation, PartitionKeyDefinition, PhysicalRange, RangeId, ReadChanges, ResourceId, Response, StartFrom,
    StoreId, TimeToLive, Timestamp, Write, WriteResult,
};
use changefeed_protocol::{
    Address, Opened, VERSION, Wait, WatchCall, WatchId, WatchReply, Wire, decode, decode_error, encode, encode_error,
};

/// Written by the first build whose calls were those of this version.
const GOLDEN: &str = include_str!("golden/v3.txt");

/// The lines of the file, by name.
fn golden() -> BTreeMap<&'static str, &'static str> {
    GOLDEN.lines().map(|line| line.split_once(' ').unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Bytes {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect::<Vec<_>>().into()
}

/// What is compared, and what was wrong.
#[derive(Default)]
struct Check {
    seen: Vec<&'static str>,
    wrong: Vec<String>,
}

impl Check {
    fn message<T: Wire + Debug>(&mut self, name: &'static str, value: &T) {
        self.compare(name, value, encode(value), |golden| decode::<T>(golden));
    }

    fn compare<T: Debug, E: Debug>(
        &mut self,
        name: &'static str,
        value: &T,
        written: Bytes,
        read: impl FnOnce(Bytes) -> Result<T, E>,
    ) {
        self.seen.push(name);
        let written = hex(&written);
        let stored = golden().get(name).copied().unwrap_or_default();
        let back = read(bytes(stored)).map(|back| format!("{back:?}"));
        if stored != written || back.ok() != Some(format!("{value:?}")) {
            self.wrong.push(format!("{name} {written}"));
        }
    }
}

fn id(text: &str) -> ItemId {
    ItemId::new(text).unwrap()
}

fn etag() -> ETag {
    ETag::new("\"1-2f\"").unwrap()
}

fn address() -> Address {
    Address { store: StoreId::from_bits(0x0123_4567_89ab_cdef), container: ResourceId::container(1, 2) }
}

fn item() -> Item {
    Item {
        id: id("o-1"),
        etag: etag(),
        timestamp: Timestamp::from_millis(1_700_000_000_123),
        lsn: Lsn::new(300),
        rid: ResourceId::document(1, 2, 3).unwrap(),
        body: Bytes::from_static(b"{\"id\":\"o-1\"}"),
    }
}

fn spec() -> ContainerSpec {
    let mut spec = ContainerSpec::new("orders", PartitionKeyDefinition::hierarchical(["/a", "/b"]).unwrap());
    (spec.ranges, spec.time_to_live) = (4, TimeToLive::Seconds(3600));
    spec.all_versions_retention = Some(Duration::from_secs(600));
    spec.extra.insert("indexingPolicy".to_owned(), serde_json::json!({"automatic": true}));
    spec
}

fn ranges() -> Vec<PhysicalRange> {
    vec![PhysicalRange { id: RangeId::from(1), range: "-7F".parse().unwrap(), parents: vec![RangeId::from(0)] }]
}

fn requests(check: &mut Check) {
    let if_match = Some(etag());
    let body = Bytes::from_static(b"{\"id\":\"o-1\"}");
    let writes = vec![
        Write::Create { body: body.clone() },
        Write::Upsert { body: body.clone(), if_match: None },
        Write::Replace { body, if_match: if_match.clone() },
        Write::Delete { id: id("o-2"), if_match },
    ];
    let partition_key = Some("[\"ada\",1.5,null]".parse().unwrap());
    check.message("write", &(address(), Batch { partition_key, writes, return_items: true }));
    let starts = [
        StartFrom::Beginning,
        StartFrom::Now,
        StartFrom::Time(Timestamp::from_millis(1234)),
        StartFrom::Continuation(Continuation::after(Lsn::new(9), ResourceId::container(1, 2))),
    ];
    for (name, start) in ["beginning", "now", "time", "continuation"].into_iter().zip(starts) {
        let read = ReadChanges::new("-10".parse().unwrap(), start).mode(Mode::AllVersions).physical(RangeId::from(7));
        let read = read.not_before(Timestamp::from_millis(5)).max_items(3).count_remaining();
        check.message(name, &(address(), read));
    }
    check.message("read_item", &(address(), ItemKey::new("ada", id("o-1"))));
    let list = ListItems {
        id_prefix: "o-".to_owned(),
        rid: Some(ResourceId::document(1, 2, 3).unwrap()),
        range: FeedRange::full(),
        after: Some("x".to_owned()),
        max_items: 7,
        cursors: true,
    };
    check.message("list_items", &(address(), list));
    check.message("feed_ranges", &address());
    check.message("create_container", &("shop".to_owned(), spec()));
    check.message("create_database", &DatabaseSpec::new("shop"));
    check.message("open_container", &("shop".to_owned(), "orders".to_owned()));
    let at: Option<Epk> = Some("3F".parse().unwrap());
    check.message("split", &("shop".to_owned(), "orders".to_owned(), RangeId::from(0), at));
    check.message("merge", &("shop".to_owned(), "orders".to_owned(), RangeId::from(1), RangeId::from(2)));
    let wait = Wait {
        id: 7,
        database: "shop".to_owned(),
        container: "orders".to_owned(),
        address: address(),
        range: FeedRange::full(),
        continuation: Continuation::from_token("\"3\""),
    };
    // One number on the wire: 0x0000_0001_0000_0002.
    let watch = WatchId { client: 1, number: 2 };
    check.message("watch", &WatchCall { watch, begin: true, add: vec![wait], cancel: vec![1, 300], poll: true });
}

fn answers(check: &mut Check) {
    let operations = [Operation::Write, Operation::Create, Operation::Replace, Operation::Delete, Operation::Expire];
    let changes = operations.map(|operation| Change {
        id: id("o-1"),
        rid: Some(ResourceId::document(1, 2, 3).unwrap()),
        lsn: Lsn::new(5),
        timestamp: Timestamp::from_millis(77),
        operation,
        current: Some(Bytes::from_static(b"{}")),
        previous: (operation == Operation::Replace).then(|| Bytes::from_static(b"{\"n\":1}")),
        previous_lsn: (operation == Operation::Replace).then(|| Lsn::new(2)),
    });
    let page = ChangePage {
        changes: changes.to_vec(),
        continuation: Continuation::after(Lsn::new(5), ResourceId::container(1, 2)),
        newest_lsn: Lsn::new(6),
        remaining: Some(1),
        physical: RangeId::from(0),
    };
    check.message("page", &Response::new(page, 2.5));
    check.message("item", &Response::new(item(), 1.0));
    let page = ItemPage { items: vec![item()], cursors: vec!["c".to_owned()], next: Some("n".to_owned()) };
    check.message("items", &Response::new(page, 1.0));
    let written = WriteResult {
        id: id("o-1"),
        etag: Some(etag()),
        lsn: Lsn::new(4),
        timestamp: Timestamp::from_millis(77),
        created: true,
        item: Some(item()),
    };
    check.message("written", &Response::new(vec![written], 5.25));
    check.message("ranges", &Response::new(ranges(), 1.0));
    let identity = ContainerIdentity {
        store: address().store,
        account_host: "localhost".to_owned(),
        database_name: "shop".to_owned(),
        container_name: "orders".to_owned(),
        database: ResourceId::database(1),
        container: ResourceId::container(1, 2),
        partition_key: PartitionKeyDefinition::hash("/customer").unwrap(),
    };
    let capabilities = Capabilities::new().split_on_demand(true).wake_ups(true);
    check.message("opened", &Opened { identity, capabilities });
    let timestamp = Timestamp::from_millis(1);
    check.message("containers", &vec![ContainerInfo { rid: ResourceId::container(1, 2), timestamp, spec: spec() }]);
    let extra = serde_json::Map::new();
    let database = DatabaseInfo { name: "shop".to_owned(), rid: ResourceId::database(1), timestamp, extra };
    check.message("databases", &vec![database]);
    check.message("fired", &WatchReply { fired: vec![7, 300] });
    let error = Error::new(ErrorKind::Throttled, "too many requests").with_retry_after(Duration::from_millis(40));
    let error = error.with_unknown_effect().with_operation(2);
    let written = encode_error(&error);
    check.compare("error", &error, written, decode_error);
}

#[test]
fn messages_of_this_version_are_written_and_read_as_they_always_were() {
    assert_eq!(VERSION, "v3", "calls of another version have a file of their own");
    let mut check = Check::default();
    requests(&mut check);
    answers(&mut check);
    assert!(check.wrong.is_empty(), "these are:\n{}", check.wrong.join("\n"));
    assert_eq!(check.seen.len(), golden().len(), "each line of the file is compared");
}
