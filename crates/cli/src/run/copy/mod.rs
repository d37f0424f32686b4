//! `run --copy-to`: the items of a container into another one, live. An older version never overwrites a newer one: each
//! copy carries the container and the LSN of the version it was made of. Versions with one LSN, of one transaction, come in
//! their order.

mod origin;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::PathBuf,
    time::Duration,
};

use changefeed::{BatchResult, ChangeInfo, DelegateError, ErrorAt as _, Estimator, RawChanges};
use changefeed_core::{
    Change, Container, ContainerSpec, DatabaseSpec, Error, ErrorKind, Item, PartitionKey, PartitionKeyDefinition,
    parse_item,
};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};

use self::origin::{Decision, Marks, Origin, decide};
use crate::{
    args::{ContainerName, ProcessorArgs},
    clock,
    connection_string::is_connection_string,
    exit::Result,
    processor_stores::{FoundStores, ProcessorStores},
    progress::Indicator,
    redact::redacted,
    store::{Missing, Store, is_same_container},
};

/// The member of a copy that holds the LSN of its original.
const LSN: &str = "_cf_lsn";

/// The member that holds the container of its original.
const SOURCE: &str = "_cf_source";

/// How often somebody else may write the copy at the same moment.
const ATTEMPTS: u32 = 10;

/// How often it is measured how much is left.
const MEASURED_EVERY: Duration = Duration::from_secs(1);

/// The container that is written.
#[derive(Debug)]
pub(super) struct Copy {
    target: Container,
    /// The monitored container when the host started: it opens the one that has the name now.
    monitored: Container,
    /// Whether copies of other sources are replaced.
    takes_over: bool,
    /// Containers, each with one of the same name before it that is gone for good.
    succeeded: Mutex<BTreeSet<(Origin, Origin)>>,
    progress: Indicator,
}

/// The target as it is found: nothing is created.
pub(super) struct Target {
    name: ContainerName,
    container: Option<Container>,
    /// The store, if it is not that of the monitored container.
    store: Option<Store>,
}

impl Target {
    /// Finds the target, `db/name` in the same store or `STORE/db/name`, which may have a key of its own. Refuses a container that the processor uses for
    /// something else; `letters` is that of its dead letters.
    pub(super) async fn find(
        (place, key_file): (&str, Option<&PathBuf>),
        args: &ProcessorArgs,
        stores: &FoundStores,
        letters: Option<(&ContainerName, Option<&Container>)>,
    ) -> Result<Self> {
        let (store, name) = parse(place)?;
        let same = store.is_none_or(|store| store == args.store.store);
        let other = match store {
            Some(store) if !same => Some(Store::open(&args.store.other(store, key_file), Missing::Refused)?),
            _ => None,
        };
        let container = other.as_ref().unwrap_or(&stores.store).container_if_any(&name).await?;
        let leases = stores.lease_store.is_none().then_some(&args.leases);
        let is_used = |by_name: Option<&ContainerName>, found: Option<&Container>| {
            let by_identity = found.zip(container.as_ref()).is_some_and(|(one, other)| is_same_container(one, other));
            by_identity || same && by_name == Some(&name)
        };
        let problem = if is_used(Some(&args.container), Some(&stores.monitored)) {
            Some("this is the monitored container: each copy would be copied")
        } else if is_used(leases, stores.leases.as_ref()) {
            Some("this is the lease container: pass another one")
        } else if letters.is_some_and(|(name, found)| is_used(Some(name), found)) {
            Some("this is the dead-letter container: pass another one")
        } else {
            None
        };
        match problem {
            Some(problem) => Err(format!("--copy-to {}: {problem}", shown(place)).into()),
            None => Ok(Self { name, container, store: other }),
        }
    }

    /// Whether it has to be created.
    pub(super) fn is_missing(&self) -> bool {
        self.container.is_none()
    }

    pub(super) async fn close(self) -> Result<()> {
        drop(self.container);
        match self.store {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }
}

impl Copy {
    /// Creates the target if it is missing, with the partition key of the original. The store, if it is another one, is
    /// handed back to be closed.
    pub(super) async fn open(
        target: Target,
        stores: &ProcessorStores,
        takes_over: bool,
    ) -> Result<(Self, Option<Store>)> {
        let Target { name, container, store } = target;
        let target = match container {
            Some(found) => found,
            None => {
                let of_target = store.as_ref().unwrap_or(&stores.store);
                create(of_target, &name, &stores.monitored.identity().partition_key).await?
            }
        };
        Ok((Self::between(&stores.monitored, target, takes_over), store))
    }

    fn between(monitored: &Container, target: Container, takes_over: bool) -> Self {
        let (monitored, succeeded) = (monitored.clone(), Mutex::default());
        Self { target, monitored, takes_over, succeeded, progress: Indicator::counting("changes copied") }
    }

    /// Measures how much is left to be copied, if anybody sees it. Never ends.
    pub(super) async fn measure(&self, stores: &ProcessorStores) -> Infallible {
        let estimator = Estimator::new(&stores.name, &stores.monitored, &stores.leases);
        while self.progress.is_seen() {
            clock::sleep(MEASURED_EVERY).await;
            // Without leases, as before the first start, there is nothing to measure.
            if let Ok(lag) = estimator.lag().await {
                self.progress.set_left(lag.changes);
            }
        }
        std::future::pending().await
    }

    /// Copies a batch.
    pub(super) async fn call(&self, changes: &RawChanges) -> std::result::Result<BatchResult, DelegateError> {
        // A host follows a container that was created again.
        let origin = Origin::of(changes.container().unwrap_or_else(|| self.monitored.identity()));
        for (place, (change, info)) in changes.with_info().enumerate() {
            match &change.current {
                Some(body) => self.put(&origin, info, body).await.map_err(|error| error.at(place))?,
                None => self.delete(&origin, info).await.map_err(|error| error.at(place))?,
            }
            self.progress.inc(1);
        }
        Ok(BatchResult::Done)
    }

    async fn put(&self, origin: &Origin, info: ChangeInfo<'_>, body: &[u8]) -> std::result::Result<(), Error> {
        let change = info.change();
        let copy = copied(body, origin, change.lsn.get())?;
        let key = self.key(&copy)?;
        for _ in 0..ATTEMPTS {
            match self.target.create(&copy).await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                other => return other.map(drop),
            }
            let Some(found) = self.found(&key, change).await? else { continue };
            if !self.replaces(origin, info, &found).await? {
                return Ok(());
            }
            match self.target.replace_if(&copy, &found.etag).await {
                Err(error) if is_overtaken(&error) => {}
                other => return other.map(drop),
            }
        }
        Err(overtaken(change))
    }

    async fn delete(&self, origin: &Origin, info: ChangeInfo<'_>) -> std::result::Result<(), Error> {
        let change = info.change();
        let key = match &change.previous {
            Some(body) => self.key(&copied(body, origin, change.lsn.get())?)?,
            None => self.key_of_id(change)?,
        };
        for _ in 0..ATTEMPTS {
            let Some(found) = self.found(&key, change).await? else { return Ok(()) };
            if !self.replaces(origin, info, &found).await? {
                return Ok(());
            }
            match self.target.delete_if(key.clone(), change.id.as_str(), &found.etag).await {
                Err(error) if is_overtaken(&error) => {}
                other => return other,
            }
        }
        Err(overtaken(change))
    }

    /// Whether a change replaces the copy that was found, which is to be written with its etag only.
    async fn replaces(&self, ours: &Origin, info: ChangeInfo<'_>, found: &Item) -> std::result::Result<bool, Error> {
        let change = info.change();
        let beside = self.target.identity().store == self.monitored.identity().store;
        match decide(marks(found), ours, change.lsn.get(), beside) {
            Decision::Replace => Ok(true),
            Decision::ReplaceIfCurrent => self.is_current(info).await,
            Decision::KeepUnnamed => {
                tracing::warn!(
                    item = %change.id,
                    "a copy of an earlier version of changefeed has a higher LSN and is kept: if the monitored container was \
                     created again since, remove the member {LSN} of its copies"
                );
                Ok(false)
            }
            Decision::ReplaceIfSucceeded(before) => self.succeeds(ours, before).await.map(|()| true),
            Decision::Refuse(_) if self.takes_over => Ok(true),
            Decision::Refuse(other) => Err(of_other_source(change, &other)),
        }
    }

    /// Whether the monitored container has the version of this change, or no item if it was deleted.
    async fn is_current(&self, info: ChangeInfo<'_>) -> std::result::Result<bool, Error> {
        // Without a previous version of a deleted item its key is not known, and the copy is kept.
        let Some(key) = info.partition_key() else { return Ok(false) };
        match self.monitored.read_item(key, info.id().as_str()).await {
            Ok(item) => Ok(info.etag() == Some(item.etag)),
            Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(info.change().current.is_none()),
            Err(error) if error.kind() == ErrorKind::Forbidden => {
                tracing::warn!(
                    item = %info.id(),
                    %error,
                    "a copy has a higher LSN than a change, and is kept since the item cannot be read: grant items/read on the \
                     monitored container, so that changes after a failover of its account are copied"
                );
                Ok(false)
            }
            // It was deleted and created again since the host started, and only a failover loses versions.
            Err(error) if error.kind() == ErrorKind::ContainerNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses to go on unless `ours` has its name now: then any other container that had the name is gone. This is asked
    /// once the copy was read, which is then only replaced if nobody else has replaced it.
    async fn succeeds(&self, ours: &Origin, before: Origin) -> std::result::Result<(), Error> {
        let pair = (ours.clone(), before);
        if self.succeeded.lock().contains(&pair) {
            return Ok(());
        }
        let current = self.monitored.reopen().await?;
        // A name may be looked up where it is out of date: the container itself has to answer.
        current.feed_ranges().await?;
        if Origin::of(current.identity()) != *ours {
            let message = format!("the container {} was created again: the host goes on with that one", ours.container);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.succeeded.lock().insert(pair);
        Ok(())
    }

    /// The partition key of a deleted item of which the feed has no previous version, where the id is the key.
    fn key_of_id(&self, change: &Change) -> std::result::Result<PartitionKey, Error> {
        if self.target.identity().partition_key.paths().eq(["/id"]) {
            return Ok(PartitionKey::from(change.id.as_str()));
        }
        let message = format!(
            "item {} was deleted, and the feed has no previous version of it, which has the partition key of its copy: keep \
             versions for longer (changeFeedPolicy of the container; an account of Azure needs previous images), delete the \
             copy, and pass --dead-letters to go on without this delete",
            change.id
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn key(&self, copy: &BTreeMap<String, Box<RawValue>>) -> std::result::Result<PartitionKey, Error> {
        self.target.identity().partition_key.extract_from(|name| copy.get(name).map(|value| &**value))
    }

    async fn found(&self, key: &PartitionKey, change: &Change) -> std::result::Result<Option<Item>, Error> {
        match self.target.read_item(key.clone(), change.id.as_str()).await {
            Err(error) if error.kind() == ErrorKind::ItemNotFound => Ok(None),
            other => other.map(Some),
        }
    }
}

async fn create(store: &Store, name: &ContainerName, key: &PartitionKeyDefinition) -> Result<Container> {
    match store.catalog().create_database(DatabaseSpec::new(&name.database)).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => drop(other?),
    }
    match store.catalog().create_container(&name.database, ContainerSpec::new(&name.container, key.clone())).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => drop(other?),
    }
    store.container(name).await
}

/// The members of the original, each spelled as it was, its container and its LSN.
fn copied(body: &[u8], origin: &Origin, lsn: u64) -> std::result::Result<BTreeMap<String, Box<RawValue>>, Error> {
    let unreadable = |error| Error::new(ErrorKind::BadJson, "the item cannot be read").with_source(error);
    let mut members: BTreeMap<String, Box<RawValue>> = parse_item(body).map_err(unreadable)?;
    members.insert(LSN.to_owned(), to_raw_value(&lsn).map_err(unreadable)?);
    members.insert(SOURCE.to_owned(), to_raw_value(origin).map_err(unreadable)?);
    Ok(members)
}

/// What an item says of itself; none if it is no copy.
fn marks(item: &Item) -> Option<Marks> {
    serde_json::from_slice(&item.body).ok()
}

fn of_other_source(change: &Change, other: &Origin) -> Error {
    let Origin { store, container, .. } = other;
    let message = format!(
        "the copy of item {} was made of {container} in store {store}: pass another target to --copy-to, or \
         --copy-other-source if this container has taken the place of that one, as after a restore",
        change.id
    );
    Error::new(ErrorKind::AlreadyExists, message)
}

fn is_overtaken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound)
}

fn overtaken(change: &Change) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the copy of item {} is written by others all the time", change.id))
}

/// Store, if one is named, and container of `STORE/db/name`.
fn parse(place: &str) -> Result<(Option<&str>, ContainerName)> {
    let mut parts = place.rsplitn(3, '/');
    let (container, database) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let store = parts.next().filter(|store| !store.is_empty());
    let name = format!("{database}/{container}");
    // A key may hold a slash: what follows it is no container.
    let is_key = is_connection_string(place) && name.contains(['=', ';']);
    let name = name.parse().ok().filter(|_| !is_key);
    let name =
        name.ok_or_else(|| format!("--copy-to {}: pass db/name, or STORE/db/name for another store", redacted(place)))?;
    Ok((store, name))
}

/// The target without secrets.
pub(super) fn shown(place: &str) -> String {
    match parse(place) {
        Ok((Some(store), name)) => format!("{}/{name}", redacted(store)),
        _ => redacted(place),
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::{FeedRange, ReadChanges, StartFrom};

    use super::*;

    #[test]
    fn a_place_is_a_container_with_or_without_a_store() {
        let parsed =
            |place| parse(place).map(|(store, name)| (store, name.to_string())).map_err(|error| error.to_string());
        assert_eq!(parsed("shop/archive"), Ok((None, "shop/archive".to_owned())));
        assert_eq!(parsed("./other/shop/archive"), Ok((Some("./other"), "shop/archive".to_owned())));
        let url = parsed("http://localhost:8081/shop/archive");
        assert_eq!(url, Ok((Some("http://localhost:8081"), "shop/archive".to_owned())));
        assert!(parsed("archive").unwrap_err().contains("STORE/db/name"));
        let account = "AccountEndpoint=https://a.b/;AccountKey=c2/Vjc/mV0==;";
        let place = format!("{account}/shop/archive");
        assert_eq!(parsed(&place), Ok((Some(account), "shop/archive".to_owned())));
        assert_eq!(shown(&place), "AccountEndpoint=https://a.b/;AccountKey=(hidden);/shop/archive");
        assert!(!parsed(account).unwrap_err().contains("mV0"), "a part of the key is no container");
        assert_eq!(shown("https://ada:c2V@a.b/shop/archive"), "https://(hidden)@a.b/shop/archive");
    }

    #[tokio::test]
    async fn a_delete_without_a_previous_version_needs_no_other_key_than_the_id() {
        let database = changefeed_embedded::Engine::in_memory().unwrap().database("shop");
        for (path, left) in [("/id", Some(0)), ("/customer", None)] {
            let target = database.container(format!("by{}", path.replace('/', "-")).as_str()).partition_key(path);
            let target = target.create().await.unwrap();
            target.create(&serde_json::json!({ "id": "a", "customer": "ada", "_cf_lsn": 7 })).await.unwrap();
            let copy = Copy::between(&target, target.clone(), false);
            let deleted = Change {
                id: changefeed_core::ItemId::new("a").unwrap(),
                rid: None,
                lsn: changefeed_core::Lsn::new(9),
                timestamp: changefeed_core::Timestamp::from_millis(0),
                operation: changefeed_core::Operation::Delete,
                current: None,
                previous: None,
                previous_lsn: None,
            };
            let result = copy.call(&RawChanges::from(vec![deleted])).await;
            match left {
                Some(left) => {
                    result.unwrap();
                    assert_eq!(copy.target.list("").await.unwrap().len(), left);
                }
                None => {
                    let said = result.unwrap_err().to_string();
                    assert!(said.contains("keep versions for longer (changeFeedPolicy"), "{said}");
                }
            }
        }
    }

    /// The changes of a container from the beginning on.
    async fn changes(container: &Container) -> Vec<Change> {
        let request = ReadChanges::new(FeedRange::full(), StartFrom::Beginning);
        container.backend().read_changes(request).await.unwrap().into_value().changes
    }

    #[tokio::test]
    async fn a_copy_of_a_version_that_its_source_has_lost_is_replaced() {
        let database = changefeed_embedded::Engine::in_memory().unwrap().database("shop");
        let source = database.container("orders").partition_key("/customer").create().await.unwrap();
        let target = database.container("archive").partition_key("/customer").create().await.unwrap();
        let order = |n: u32| serde_json::json!({ "id": "a", "customer": "ada", "n": n });
        source.create(&order(1)).await.unwrap();
        let first = changes(&source).await;
        let lost = copied(order(9).to_string().as_bytes(), &Origin::of(source.identity()), 99).unwrap();
        target.create(&lost).await.unwrap();
        let copy = Copy::between(&source, target, false);
        let number = async || {
            let copied: serde_json::Value = copy.target.read("ada", "a").await.unwrap();
            copied["n"].as_u64().unwrap()
        };
        copy.call(&RawChanges::from_container(first.clone(), &source)).await.unwrap();
        assert_eq!(number().await, 1, "the source has this version");
        source.replace(&order(2)).await.unwrap();
        copy.call(&RawChanges::from_container(changes(&source).await, &source)).await.unwrap();
        copy.call(&RawChanges::from_container(first.clone(), &source)).await.unwrap();
        assert_eq!(number().await, 2, "the first version came once more");
        source.delete("ada", "a").await.unwrap();
        copy.call(&RawChanges::from_container(first.clone(), &source)).await.unwrap();
        assert_eq!(number().await, 2, "the item has gone since");
        let delete = Change { current: None, previous: first[0].current.clone(), ..first[0].clone() };
        copy.call(&RawChanges::from_container(vec![delete], &source)).await.unwrap();
        assert_eq!(copy.target.list("").await.unwrap(), [], "the source has none");
    }

    #[test]
    fn a_copy_keeps_spellings_and_leaves_out_what_the_store_added() {
        let body = br#"{"id":"a","big":12345678901234567890123,"half":0.50,"_rid":"x","_ts":7}"#;
        let origin = Origin { store: "s".to_owned(), container: "shop/orders".to_owned(), rid: "r".to_owned() };
        let copy = serde_json::to_string(&copied(body, &origin, 9).unwrap()).unwrap();
        let source = r#"{"store":"s","container":"shop/orders","rid":"r"}"#;
        let members = r#""big":12345678901234567890123,"half":0.50,"id":"a""#;
        assert_eq!(copy, format!(r#"{{"_cf_lsn":9,"_cf_source":{source},{members}}}"#));
    }
}
