//! The data actions that docs/azure.md lists: every request is mapped to the action that it needs, and refused unless the list
//! has it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{Backoff, Context, Control, DeadLetter, DeadLetters, DelegateError, Locate, RawChanges, Scope};
use changefeed_core::{Container, StartFrom};
use changefeed_cosmos::Credential;
use serde_json::Value;

use crate::{
    account::{Emulated, Received},
    identity::Identity,
    seen::{Seen, until},
    shop::{Shop, container},
};

const DOCUMENT: &str = include_str!("../../../../docs/azure.md");

/// What all data actions begin with, and those in a container.
const ACCOUNT: &str = "Microsoft.DocumentDB/databaseAccounts/";
const CONTAINERS: &str = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/";

/// What the rows of the list call a container, and its name here.
const CONTAINER_NAMES: [(&str, &str); 3] =
    [("monitored", "orders"), ("leases", "leases"), ("dead letters", "rejected")];

const SOON: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(200) };

/// A container and a data action on it, such as `leases` and `items/read`.
type Grant = (String, String);

/// The data action that a request needs, by the description of the service; none if no data action allows it.
fn action(request: &Received) -> Option<Grant> {
    let path = request.path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is = |header: &str| request.header(header).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let name = |container: &str, action: &str| Some((container.to_owned(), action.to_owned()));
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", []) => name("", "readMetadata"),
        ("GET", ["dbs", _, "colls", container] | ["dbs", _, "colls", container, "pkranges"]) => {
            name(container, "readMetadata")
        }
        ("GET", ["dbs", _, "colls", container, "docs"]) if request.header("a-im").is_some() => {
            name(container, "readChangeFeed")
        }
        ("POST", ["dbs", _, "colls", container, "docs"]) => {
            if is("x-ms-documentdb-isquery") || is("x-ms-documentdb-query") || is("x-ms-cosmos-is-query-plan-request") {
                name(container, "executeQuery")
            } else if is("x-ms-documentdb-is-upsert") {
                name(container, "items/upsert")
            } else if is("x-ms-cosmos-is-batch-request") {
                None
            } else {
                name(container, "items/create")
            }
        }
        ("GET", ["dbs", _, "colls", container, "docs", _]) => name(container, "items/read"),
        ("PUT", ["dbs", _, "colls", container, "docs", _]) => name(container, "items/replace"),
        ("DELETE", ["dbs", _, "colls", container, "docs", _]) => name(container, "items/delete"),
        _ => None,
    }
}

/// Whether it comes from an identity. Data actions say nothing about keys.
fn has_token(request: &Received) -> bool {
    request.header("authorization").is_some_and(|sent| sent.starts_with("type%3Daad"))
}

/// The rows of the list whose first cell is one of these, as grants.
fn granted(rows: &[&str]) -> BTreeSet<Grant> {
    let mut grants = BTreeSet::from([(String::new(), "readMetadata".to_owned())]);
    for row in rows {
        let line = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let cell = line.unwrap_or_else(|| panic!("docs/azure.md has no row {row:?}")).split('|').nth(2).unwrap();
        let actions = cell.split('`').skip(1).step_by(2).map(short);
        for action in actions {
            let about = |(own, _): &&(&str, &str)| *row == "all" || row.starts_with(own);
            for (_, container) in CONTAINER_NAMES.iter().filter(about) {
                grants.insert(((*container).to_owned(), action.clone()));
            }
        }
    }
    grants
}

/// A data action without what all have in common: `items/read`, `readChangeFeed`.
fn short(action: &str) -> String {
    let action = action.rsplit_once("containers/").map_or(action, |(_, rest)| rest);
    action.trim_start_matches(ACCOUNT).trim_start_matches("…/").to_owned()
}

/// An account whose identity has these data actions and no others.
struct Stage {
    emulated: Emulated,
    shop: Shop,
    rejected: Container,
    /// With the key of the account, which may do everything.
    direct: Shop,
    used: Arc<Mutex<BTreeSet<Grant>>>,
    refused: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn new(rows: &[&str]) -> Self {
        let grants = granted(rows);
        let emulated = Emulated::new().await;
        Shop::create(&emulated);
        emulated.create_container("rejected", "/id", 1);
        let (used, refused) = (Arc::<Mutex<BTreeSet<Grant>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (own_used, own_refused) = (Arc::clone(&used), Arc::clone(&refused));
        emulated.refuse(move |request| match action(request) {
            _ if !has_token(request) => false,
            Some(grant) if grants.contains(&grant) => {
                own_used.lock().unwrap().insert(grant);
                false
            }
            other => {
                let line = format!("{} {} needs {other:?}", request.method, request.path);
                own_refused.lock().unwrap().push(line);
                true
            }
        });
        let account = emulated.connect_with(Credential::Token(Arc::new(Identity::default()))).await.unwrap();
        let shop = Shop::open(&account, &account).await;
        let rejected = container(&account, "rejected").await;
        let direct = emulated.connect().await;
        let direct = Shop::open(&direct, &direct).await;
        Self { emulated, shop, rejected, direct, used, refused }
    }

    /// Delivers orders of which one fails, before and after a split.
    async fn deliver(&self) {
        let seen = Seen::default();
        let own = seen.clone();
        let dead_letter = DeadLetter::to(&self.rejected).after_attempts(2);
        let processor = self.shop.builder().retry(SOON).dead_letter(dead_letter);
        let processor = processor.build(move |changes: RawChanges, context: Context| {
            let poison = changes.iter().position(|change| change.id.as_str() == "4");
            own.note(&changes.slice(0..poison.unwrap_or(changes.len())), &context);
            async move { poison.map_or(Ok(()), |index| Err(DelegateError::new("poison").at(index))) }
        });
        let running = processor.unwrap().start().await.unwrap();
        self.direct.write(0..20).await;
        until("delivery", || seen.distinct() >= 19).await;
        let store = self.emulated.store();
        store.split_partition("shop", "orders", 0, Duration::ZERO);
        store.drain_pending_control_plane().await;
        self.direct.write(20..40).await;
        until("delivery", || seen.distinct() >= 39).await;
        running.stop().await.unwrap();
    }

    /// Checks that nothing was refused; what was used.
    fn used(&self) -> BTreeSet<Grant> {
        let refused = self.refused.lock().unwrap();
        assert!(refused.is_empty(), "docs/azure.md does not list what these need: {refused:#?}");
        self.used.lock().unwrap().clone()
    }
}

/// Checks that every data action of these rows was needed.
fn assert_used(used: &BTreeSet<Grant>, rows: &[&str]) {
    let unused: Vec<Grant> = granted(rows).difference(used).cloned().collect();
    assert!(unused.is_empty(), "docs/azure.md lists what nothing needs: {unused:?}");
}

const HOST: [&str; 4] = ["all", "monitored", "leases", "dead letters"];

#[tokio::test]
async fn a_host_needs_the_listed_data_actions_and_no_others() {
    let stage = Stage::new(&HOST).await;
    stage.deliver().await;
    assert_eq!(stage.shop.leases.list("mailer").await.unwrap().len(), 3, "two leases and the mark of the start");
    assert_used(&stage.used(), &HOST);
}

/// These ask the store for its time, which only a write tells.
#[tokio::test]
async fn a_job_a_release_and_an_import_need_no_other_data_actions_than_a_host() {
    let stage = Stage::new(&["all", "monitored", "leases"]).await;
    stage.direct.write(0..20).await;
    let seen = Seen::default();
    let job = || {
        let own = seen.clone();
        let processor = stage.shop.builder().start_from(StartFrom::Beginning);
        let job = processor.build(move |changes: RawChanges, context: Context| {
            own.note(&changes, &context);
            async { Ok(()) }
        });
        job.unwrap()
    };
    // The document that has the time is created by the first, and replaced by the others.
    for written in [20, 40] {
        job().run_until_caught_up().await.unwrap();
        assert_eq!(seen.distinct(), written);
        stage.direct.write(20..40).await;
    }
    let control = Control::new("mailer", &stage.shop.orders, &stage.shop.leases);
    control.release(Scope::All).apply().await.unwrap();
    let archive = control.export().await.unwrap();
    control.import(archive).apply().await.unwrap();
    stage.used();
}

#[tokio::test]
async fn an_item_is_located_with_the_listed_data_action() {
    let rows = [&HOST[..], &["monitored, for `Locate` (`changefeed where`)"]].concat();
    let stage = Stage::new(&rows).await;
    stage.deliver().await;
    Locate::new("mailer", &stage.shop.orders, &stage.shop.leases).item("c1", "1").await.unwrap();
    assert_used(&stage.used(), &rows);
}

#[tokio::test]
async fn dead_letters_are_listed_read_and_redriven_with_the_listed_data_actions() {
    let tools = "dead letters, for `DeadLetters` (`changefeed dead-letters`)";
    let delegate = "dead letters, to redrive them to a delegate";
    for (rows, to_delegate) in [([tools, "monitored, to write dead letters back"], false), ([tools, delegate], true)] {
        let rows = [&HOST[..], &rows].concat();
        let stage = Stage::new(&rows).await;
        stage.deliver().await;
        let letters = DeadLetters::new(&stage.rejected);
        let id = letters.list().await.unwrap()[0].id.clone();
        assert_eq!(letters.get(&id).await.unwrap().item_id, "4");
        let redriven = if to_delegate {
            // Its attempts are counted in the dead letter.
            let failed = letters.redrive().to_delegate(|_| async { Err(DelegateError::new("not yet")) }).await;
            assert!(failed.unwrap().done.is_empty());
            letters.redrive().to_delegate(|_| async { Ok(()) }).await
        } else {
            letters.redrive().to_container(&stage.shop.orders).await
        };
        assert_eq!(redriven.unwrap().done.len(), 1);
        assert_used(&stage.used(), &rows);
    }
}

/// Without this, the tests above would show nothing.
#[tokio::test]
async fn what_is_not_listed_is_refused() {
    let stage = Stage::new(&["all", "monitored", "leases"]).await;
    let error = stage.rejected.read_item("1", "1").await.unwrap_err();
    assert!(error.message().contains("403/5300"), "{error}");
    assert_eq!(stage.refused.lock().unwrap().len(), 1);
}

#[test]
fn the_role_in_the_documentation_has_what_a_host_without_dead_letters_needs() {
    let json = DOCUMENT.split("```json").nth(1).unwrap().split("```").next().unwrap();
    let role: Value = serde_json::from_str(json).unwrap();
    let listed: BTreeSet<&str> = role["Permissions"][0]["DataActions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|action| action.as_str().unwrap())
        .collect();
    let needed: BTreeSet<String> = granted(&["all", "monitored", "leases"])
        .into_iter()
        .map(
            |(_, action)| {
                if action == "readMetadata" { format!("{ACCOUNT}{action}") } else { format!("{CONTAINERS}{action}") }
            },
        )
        .collect();
    assert_eq!(listed, needed.iter().map(String::as_str).collect());
}
