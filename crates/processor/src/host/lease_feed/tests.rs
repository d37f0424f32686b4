//! What a host takes from the feed of its lease container: others' moves, not its own checkpoints.

use changefeed_core::{Container, FeedRange, Mode};
use changefeed_embedded::Engine;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::{
    host::record::RunningTask,
    lease::{
        document::{LeaseDocument, LeaseVersion},
        prefix::LeasePrefix,
        signals::CommandSender,
    },
    runtime::TokioRuntime,
};

const SESSION: &str = "0123456789abcdef";

/// A feed that knows two leases, 0 of this session and 1 of another, and has read everything so far.
async fn listening() -> (Container, Arc<LeaseStore>, LeaseFeed, Records) {
    let database = Engine::in_memory().expect("engine").database("shop");
    let monitored = database.container("orders").create().await.expect("create");
    let leases = database.container("leases").create().await.expect("create");
    let prefix = LeasePrefix::new("mailer", monitored.identity()).expect("prefix");
    let store = Arc::new(LeaseStore::new(leases.clone(), prefix).expect("store"));
    for (token, range, owner, session) in [("0", "-80", "me", SESSION), ("1", "80-FF", "other", "theirs")] {
        let token: LeaseToken = token.parse().expect("token");
        let range: FeedRange = range.parse().expect("range");
        let id = store.lease_id(&token);
        let mut lease = LeaseDocument::new(id, None, LeaseVersion::Range, token, range, Mode::LatestVersion);
        lease.owner = Some(owner.to_owned());
        lease.set_session(Some(session));
        store.create(lease).await.expect("create");
    }
    let mut feed = LeaseFeed::new(&store);
    feed.begin().await;
    feed.listed(&store.list().await.expect("list"));
    let mut records = Records::default();
    let handle = TokioRuntime::new().spawn("idle", Box::pin(std::future::pending()));
    let task = RunningTask {
        commands: CommandSender::new().0,
        document: (String::new(), None),
        _handle: AbortOnDropHandle::new(handle),
    };
    records.own_mut(&"0".parse().expect("token")).task = Some(task);
    (leases, store, feed, records)
}

async fn change(store: &LeaseStore, token: &str, change: impl Fn(&mut LeaseDocument)) {
    let listing = store.list().await.expect("list");
    let lease = listing.find(&token.parse().expect("token")).expect("lease");
    let mut document = LeaseDocument::clone(&lease.document);
    change(&mut document);
    store.replace(&document, &lease.etag).await.expect("replace");
}

async fn relevance(feed: &mut LeaseFeed, records: &mut Records) -> Relevance {
    let runtime = TokioRuntime::new();
    let page = feed.next(&runtime, Duration::from_millis(1)).await;
    feed.take(page, SESSION, records, runtime.monotonic())
}

#[tokio::test(start_paused = true)]
async fn own_checkpoints_and_renewals_of_others_are_irrelevant() {
    let (leases, store, mut feed, mut records) = listening().await;
    change(&store, "0", |lease| lease.continuation = Some("\"7\"".to_owned())).await;
    change(&store, "1", |lease| lease.touch(changefeed_core::Timestamp::from_millis(5))).await;
    leases.upsert(&json!({"id": "somebody else's"})).await.expect("upsert");
    assert_eq!(relevance(&mut feed, &mut records).await, Relevance::Irrelevant { read: 3 });
}

#[tokio::test(start_paused = true)]
async fn requests_releases_grants_pauses_and_new_leases_are_relevant() {
    let (leases, store, mut feed, mut records) = listening().await;
    type Change = fn(&mut LeaseDocument);
    let changes: [(&str, Change); 4] = [
        ("0", |lease| lease.set_hand_over(Some("other"))),
        ("0", |lease| lease.set_paused(true)),
        ("1", |lease| lease.owner = None),
        ("1", |lease| lease.owner = Some("me".to_owned())),
    ];
    for (at, (token, what)) in changes.into_iter().enumerate() {
        change(&store, token, what).await;
        assert_eq!(relevance(&mut feed, &mut records).await, Relevance::Relevant, "{at}");
    }
    let id = format!("{}new", store.prefix().leases());
    let lease = json!({"id": id, "version": 0, "LeaseToken": "new", "properties": {}});
    leases.create(&lease).await.expect("create");
    assert_eq!(relevance(&mut feed, &mut records).await, Relevance::Relevant);
    leases.upsert(&json!({"id": id, "LeaseToken": 7})).await.expect("upsert");
    assert_eq!(relevance(&mut feed, &mut records).await, Relevance::Relevant, "a document that cannot be read");
}

#[tokio::test(start_paused = true)]
async fn records_follow_listings_and_outlive_them_while_a_task_runs() {
    let (_, store, _, mut records) = listening().await;
    let token = |text: &str| text.parse::<LeaseToken>().expect("token");
    let take_in = |listing: &Listing, records: &mut Records| {
        records.take_in(listing, Duration::from_secs(60), "me", Duration::from_secs(1));
    };
    let listed = |listing: &Listing, records: &Records| -> Vec<(String, bool)> {
        let tokens =
            records.beside(listing).map(|(lease, record)| (lease.document.token.to_string(), record.is_some()));
        tokens.collect()
    };
    let both = store.list().await.expect("list");
    assert_eq!(listed(&both, &records), [("0".to_owned(), true), ("1".to_owned(), false)]);
    take_in(&both, &mut records);
    assert_eq!(listed(&both, &records), [("0".to_owned(), true), ("1".to_owned(), true)]);
    for lease in &both.leases {
        store.delete(lease).await.expect("delete");
    }
    for (text, range) in [("00", "-40"), ("05", "40-FF")] {
        let (token, range) = (token(text), range.parse().expect("range"));
        let id = store.lease_id(&token);
        let lease = LeaseDocument::new(id, None, LeaseVersion::Range, token, range, Mode::LatestVersion);
        store.create(lease).await.expect("create");
    }
    let children = store.list().await.expect("list");
    take_in(&children, &mut records);
    assert_eq!(listed(&children, &records), [("00".to_owned(), true), ("05".to_owned(), true)]);
    assert!(records.has_task(&token("0")), "its task still runs");
    assert!(records.get(&token("1")).is_none(), "nobody works on it");
    assert_eq!(records.tasks().count(), 1);
}
