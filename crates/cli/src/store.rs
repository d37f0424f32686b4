//! The store that a sub-command works on: a folder, a server, memory, or an account of Azure Cosmos DB.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use changefeed::{ADMIN_SOCKET, AdminEndpoint, LeaseTiming, remote};
use changefeed_core::{Catalog, Container, Database, ErrorKind, TimeToLive};
use changefeed_embedded::Engine;
use hyper::Uri;

use crate::{
    args::{ContainerName, StoreArgs},
    clock,
    connection_string::{AccountName, is_connection_string},
    exit::Result,
    keys,
    nearest::nearest,
    progress::Indicator,
    redact::redacted,
};

/// What `--store` says for a store that is gone with its process.
pub(crate) const MEMORY: &str = "memory";

/// The file that every store on disk has.
const FORMAT_FILE: &str = "FORMAT";

/// How often a folder that another process has open is tried again, and how long to wait in between: a second and a half.
const LOCK_TRIES: u32 = 30;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A store that is open.
#[derive(Clone)]
pub(crate) struct Store {
    catalog: Arc<dyn Catalog>,
    /// Set if the store is in this process.
    engine: Option<Engine>,
    /// Set if it is in another.
    server: Option<remote::Server>,
    /// The folder, if the store is reached through the admin endpoint of the process that has it open.
    pub(crate) joined: Option<PathBuf>,
    #[cfg(feature = "cosmos")]
    cosmos: Option<Arc<crate::cosmos::CosmosStore>>,
}

/// The settings of a container that is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewContainer<'a> {
    /// The path of the partition key; none: `/id`.
    pub(crate) partition_key: Option<&'a str>,
    pub(crate) ranges: usize,
    /// How long all versions are kept; none: they are not.
    pub(crate) retention: Option<Duration>,
}

/// What happens to a store folder that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Refused,
    Created,
}

impl Store {
    /// Opens what the arguments name.
    pub(crate) fn open(args: &StoreArgs, missing: Missing) -> Result<Self> {
        if let Some(account) = AccountName::of(&args.store) {
            return Self::azure(args, &account);
        }
        if is_url(&args.store) {
            return Self::connect(args);
        }
        if args.store == MEMORY {
            return Ok(Self::embedded(Engine::in_memory()?));
        }
        let folder = Path::new(&args.store);
        if missing == Missing::Refused {
            must_be_a_store(folder)?;
        }
        let _opening = Indicator::waiting(format!("opening {}", folder.display()));
        let mut tries = 0;
        loop {
            match Engine::open(folder) {
                Err(error) if error.kind() == ErrorKind::Locked => {}
                opened => return Ok(Self::embedded(opened?)),
            }
            match Self::of_program(folder) {
                // A program that is starting has no endpoint yet, and other commands are done soon.
                Err(_) if tries < LOCK_TRIES => clock::pause(LOCK_PAUSE),
                found => return found,
            }
            tries += 1;
        }
    }

    fn embedded(engine: Engine) -> Self {
        Self {
            catalog: engine.catalog(),
            engine: Some(engine),
            server: None,
            joined: None,
            #[cfg(feature = "cosmos")]
            cosmos: None,
        }
    }

    fn remote(server: remote::Server) -> Self {
        Self {
            catalog: server.catalog(),
            engine: None,
            server: Some(server),
            joined: None,
            #[cfg(feature = "cosmos")]
            cosmos: None,
        }
    }

    /// An account of Azure Cosmos DB. A key in its connection string counts before the one of the arguments, which may be
    /// meant for another store.
    #[cfg(feature = "cosmos")]
    fn azure(args: &StoreArgs, account: &AccountName<'_>) -> Result<Self> {
        let host = account.host()?;
        if args.ca_file.is_some() {
            // No error: the file may be for another store of the same command.
            crate::exit::warn(
                "--ca-file has no effect on an account of Azure Cosmos DB: its SDK trusts what this machine trusts; on Linux \
                 name the file in SSL_CERT_FILE",
            );
        }
        let key = match account.key {
            Some(key) => key.to_owned(),
            None => keys::of_client(args, &host)?,
        };
        let cosmos = Arc::new(crate::cosmos::CosmosStore::new(account.endpoint, key));
        let catalog = Arc::clone(&cosmos) as Arc<dyn Catalog>;
        Ok(Self { catalog, engine: None, server: None, joined: None, cosmos: Some(cosmos) })
    }

    #[cfg(not(feature = "cosmos"))]
    fn azure(_: &StoreArgs, account: &AccountName<'_>) -> Result<Self> {
        let host = account.host()?;
        Err(format!(
            "{host} is an account of Azure Cosmos DB, and this command was built without support for it: build it with \
             `cargo install --path crates/cli --features cosmos`"
        )
        .into())
    }

    /// A container of leases, if it is there. One that cannot hold leases is refused.
    pub(crate) async fn leases_if_any(
        &self,
        name: &ContainerName,
        write_region: Option<&str>,
    ) -> Result<Option<Container>> {
        #[cfg(feature = "cosmos")]
        if let Some(cosmos) = &self.cosmos {
            let _waiting = Indicator::waiting(format!("looking for {name}"));
            // The futures of the SDK are large.
            return if_any(Box::pin(cosmos.lease_container(&name.database, &name.container, write_region)).await);
        }
        if write_region.is_some() {
            return Err("--write-region is for leases in an account of Azure Cosmos DB: leave it out".into());
        }
        let Some(found) = self.container_if_any(name).await? else { return Ok(None) };
        found.time_to_live().await?.check_for_leases(found.identity())?;
        Ok(Some(found))
    }

    /// The store that another program has open, through its admin endpoint.
    fn of_program(folder: &Path) -> Result<Self> {
        let socket = folder.join(ADMIN_SOCKET);
        // One that a killed process left answers nobody.
        if let Err(error) = UnixStream::connect(&socket) {
            let folder = folder.display();
            return Err(match error.kind() {
                std::io::ErrorKind::PermissionDenied => format!(
                    "the store in {folder} is open in a program of another user: run this as that user"
                ),
                _ => format!(
                    "the store in {folder} is open in another process that offers no admin endpoint: if it is a server pass \
                     its URL, such as http://127.0.0.1:8081; let a program of your own call AdminEndpoint::open; or wait \
                     until it has ended"
                ),
            }
            .into());
        }
        let server = remote::Server::connect_to_socket(&socket)?;
        Ok(Self { joined: Some(folder.to_owned()), ..Self::remote(server) })
    }

    /// The engine, if the store is in this process.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// The server or the program that has the store open.
    pub(crate) fn server(&self) -> Result<&remote::Server> {
        self.server.as_ref().ok_or_else(|| "this needs a server: pass its URL, such as http://127.0.0.1:8081".into())
    }

    /// Offers the admin endpoint of a folder that this process has open, so that other commands work on it meanwhile.
    pub(crate) fn offer_admin_endpoint(&self) -> Option<AdminEndpoint> {
        admin_endpoint(self.engine.as_ref()?)
    }

    fn connect(args: &StoreArgs) -> Result<Self> {
        let no_url = |problem: &str| {
            format!("--store {}: {problem}: pass a URL such as http://127.0.0.1:8081", redacted(&args.store))
        };
        let uri: Uri = args.store.parse().map_err(|error: hyper::http::uri::InvalidUri| no_url(&error.to_string()))?;
        let host = uri.host().ok_or_else(|| no_url("a URL needs a host"))?;
        if uri.path_and_query().is_some_and(|path| path != "/") {
            return Err(no_url("the URL of a server has no path").into());
        }
        let mut server = remote::Server::builder(&args.store, &keys::of_client(args, host)?);
        // A look at a server that is not there fails at once; `run` waits by itself, for stores of any kind.
        server = server.trust_loopback().start_timeout(Duration::ZERO);
        if let Some(file) = &args.ca_file {
            server = server.certificate_file(file);
        }
        Ok(Self::remote(server.connect()?))
    }

    pub(crate) fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    pub(crate) fn database(&self, name: &str) -> Database {
        Database::new(Arc::clone(&self.catalog), name)
    }

    /// A container that must be there; if it is not, the error names those that are.
    pub(crate) async fn container(&self, name: &ContainerName) -> Result<Container> {
        match self.container_if_any(name).await? {
            Some(container) => Ok(container),
            None => Err(self.unknown(name).await?.into()),
        }
    }

    /// A container, if it is there.
    pub(crate) async fn container_if_any(&self, name: &ContainerName) -> Result<Option<Container>> {
        let _waiting = Indicator::waiting(format!("looking for {name}"));
        if_any(self.catalog.container(&name.database, &name.container).await)
    }

    /// A container, made as `new` says if it is not there. One that is there must keep versions if a new one would.
    pub(crate) async fn container_or_new(&self, name: &ContainerName, new: NewContainer<'_>) -> Result<Container> {
        if let Some(container) = self.container_if_any(name).await? {
            if new.retention.is_some() && !self.keeps_versions(name).await? {
                return Err(format!(
                    "--retention is for a container that is made, and {name} is there and keeps no versions: pass another \
                     container, or set its changeFeedPolicy with an SDK"
                )
                .into());
            }
            return Ok(container);
        }
        let mut builder = self.database(&name.database).container(name.container.as_str()).ranges(new.ranges);
        if let Some(path) = new.partition_key {
            builder = builder.partition_key(path);
        }
        if let Some(retention) = new.retention {
            builder = builder.all_versions(retention);
        }
        Ok(builder.open_or_create().await?)
    }

    /// Refuses a container without the versions that `--all-versions` needs.
    pub(crate) async fn check_versions(&self, name: &ContainerName) -> Result<()> {
        if self.keeps_versions(name).await? {
            return Ok(());
        }
        Err(format!(
            "--all-versions: {name} keeps no versions: `changefeed load --retention 10` makes a container that keeps them \
             for ten minutes; or set the changeFeedPolicy of this one with an SDK"
        )
        .into())
    }

    /// Whether a container keeps all versions for a while. In Azure the account decides, and its first answer tells.
    async fn keeps_versions(&self, name: &ContainerName) -> Result<bool> {
        if self.engine.is_none() && self.server.is_none() {
            return Ok(true);
        }
        let listed = self.catalog.list_containers(&name.database).await?;
        let found = listed.iter().find(|info| info.spec.name == name.container);
        Ok(found.is_none_or(|info| info.spec.all_versions_retention.is_some()))
    }

    /// Creates the container of dead letters, unless it is there. A new one allows a time to live of its items.
    pub(crate) async fn create_dead_letters(&self, name: &ContainerName) -> Result<Container> {
        let new = self.database(&name.database).container(name.container.as_str());
        Ok(new.time_to_live(TimeToLive::ItemsOnly).open_or_create().await?)
    }

    /// The container of dead letters, if it is there. It must allow a time to live of its items if the dead letters have
    /// one.
    pub(crate) async fn dead_letters_if_any(&self, name: &ContainerName, with_ttl: bool) -> Result<Option<Container>> {
        let Some(container) = self.container_if_any(name).await? else { return Ok(None) };
        if with_ttl && container.time_to_live().await? == TimeToLive::Off {
            return Err(format!(
                "--dead-letter-ttl: {name} ignores the time to live of its items: set its defaultTtl to -1, or pass \
                 another container to --dead-letters, which is made with it"
            )
            .into());
        }
        Ok(Some(container))
    }

    /// The default timing of leases in this store, as [`LeaseTiming::for_container`] has it.
    pub(crate) fn lease_timing(&self) -> LeaseTiming {
        match (&self.engine, &self.server) {
            (Some(_), _) => LeaseTiming::EMBEDDED,
            (None, Some(_)) => LeaseTiming::SERVER,
            (None, None) => LeaseTiming::REMOTE,
        }
    }

    /// What to say about a container that is not there: which one was meant, or which ones are there.
    pub(crate) async fn unknown(&self, name: &ContainerName) -> Result<String> {
        let mut names = Vec::new();
        for database in self.catalog.list_databases().await? {
            for container in self.catalog.list_containers(&database.name).await? {
                names.push(format!("{}/{}", database.name, container.spec.name));
            }
        }
        Ok(match names.as_slice() {
            [] => format!("there is no container {name}, and no other: is this the right store?"),
            names => {
                let meant = nearest(&name.to_string(), names).map(|found| format!(" did you mean {found}?"));
                format!("there is no container {name};{} there are: {}", meant.unwrap_or_default(), names.join(", "))
            }
        })
    }

    /// Ends the use of the store; everything that was acknowledged is on disk already.
    pub(crate) async fn close(self) -> Result<()> {
        drop(self.catalog);
        match self.engine {
            Some(engine) => Ok(engine.close().await?),
            None => Ok(()),
        }
    }
}

/// Opens a folder. One that another process has open is tried again for a second and a half.
pub(crate) fn when_unlocked(open: impl Fn() -> changefeed_core::Result<Engine>) -> changefeed_core::Result<Engine> {
    for _ in 0..LOCK_TRIES {
        match open() {
            Err(error) if error.kind() == ErrorKind::Locked => clock::pause(LOCK_PAUSE),
            opened => return opened,
        }
    }
    open()
}

/// Refuses a URL and an account where only a folder of this machine will do; `use_of_it` says what for.
pub(crate) fn must_be_a_path(folder: &Path, use_of_it: &str) -> Result<()> {
    let text = folder.to_string_lossy();
    if !text.contains("://") && !is_connection_string(&text) {
        return Ok(());
    }
    Err(format!("--store {} is no folder, and {use_of_it}: pass --store DIR", redacted(&text)).into())
}

/// Refuses a folder without a store: opening it would make one.
fn must_be_a_store(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let problem = match (folder.is_dir(), is_store(folder)) {
        (true, true) => return Ok(()),
        (true, false) => format!("there is no store in the folder {shown}"),
        (false, _) => format!("there is no folder {shown}"),
    };
    Err(format!(
        "{problem}: pass that of a store, or a URL such as http://127.0.0.1:8081; `serve` and `load --create` make a new \
         store"
    )
    .into())
}

/// Whether a folder holds a store.
pub(crate) fn is_store(folder: &Path) -> bool {
    folder.join(FORMAT_FILE).exists()
}

/// The admin endpoint of a folder; none, with a warning, if there cannot be one: work goes on without it.
pub(crate) fn admin_endpoint(engine: &Engine) -> Option<AdminEndpoint> {
    engine.folder()?;
    AdminEndpoint::open(engine)
        .inspect_err(|error| tracing::warn!(%error, source = ?std::error::Error::source(error), "no admin endpoint"))
        .ok()
}

/// Whether both are the same container of the same store.
pub(crate) fn is_same_container(one: &Container, other: &Container) -> bool {
    let (one, other) = (one.identity(), other.identity());
    one.store == other.store && one.container == other.container
}

pub(crate) fn is_url(store: &str) -> bool {
    store.starts_with("http://") || store.starts_with("https://")
}

/// The container, unless it is missing.
fn if_any(opened: changefeed_core::Result<Container>) -> Result<Option<Container>> {
    match opened {
        Err(error) if matches!(error.kind(), ErrorKind::ContainerNotFound | ErrorKind::DatabaseNotFound) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

#[cfg(all(test, feature = "cosmos"))]
mod tests {
    use super::*;

    /// Nothing is sent before the first call.
    #[test]
    fn accounts_are_reached_through_the_sdk_and_servers_are_not() {
        let file = std::env::temp_dir().join(format!("changefeed-store-test-{}", std::process::id()));
        std::fs::write(&file, "ZmVkY2JhOTg3NjU0MzIxMA==").expect("write the key");
        for (store, is_account) in [
            ("https://my-shop.documents.azure.com:443/", true),
            ("AccountEndpoint=https://my-shop.documents.azure.com:443/;", true),
            ("AccountEndpoint=http://localhost:8081/;AccountKey=YWJj;", true),
            ("'AccountEndpoint=http://localhost:8081/;AccountKey=YWJj;'", true),
            ("http://localhost:8081", false),
            ("https://changefeed.example.org", false),
        ] {
            let args = StoreArgs { store: store.to_owned(), key_file: Some(file.clone()), ca_file: None };
            let opened = Store::open(&args, Missing::Refused).expect(store);
            assert_eq!((opened.cosmos.is_some(), opened.server.is_none()), (is_account, is_account), "{store}");
        }
        let bad =
            StoreArgs { store: "AccountEndpoint=shop;AccountKey=YWJj;".to_owned(), key_file: None, ca_file: None };
        let error = Store::open(&bad, Missing::Refused).err().expect("not a URL");
        assert!(error.to_string().contains("needs an AccountEndpoint that is a URL"), "{error}");
        std::fs::remove_file(&file).expect("remove the key");
    }
}
