//! A container of an account: opened through the caller's client.

use std::{fmt, sync::Arc};

use azure_data_cosmos::{ContainerClient, CosmosClient, CosmosError, diagnostics::DiagnosticsContext, options::Region};
use changefeed_core::{
    Container, ContainerIdentity, Error, ErrorKind, FeedRange, PartitionKeyDefinition, PhysicalRange, Response, Result,
    check_name,
};
use parking_lot::Mutex;

use crate::{
    account_properties::AccountProperties,
    error::{Call, charge, failed, timed_out},
    failover::Positions,
    lease_account::LeaseAccount,
    named_client::NamedClient,
    options::{Budget, Budgets, Options},
    parts::Parts,
    settings::{Settings, StoreNames},
    timer::within,
};

/// A container of Azure Cosmos DB.
///
/// # Session tokens
/// The SDK keeps the session tokens of a client, sends them with each read and updates them from each response, so a host
/// reads its own writes if the consistency of the account is session. [`Response`](changefeed_core::Response) does not have
/// the token, since no caller needs it: what a host stores of another one's work are ETags. The position of a lease is the
/// ETag of a page. If a replica lags behind it, the feed returns nothing new until the replica has caught up. A lease that
/// was read from such a replica is written on condition of its ETag, and refused if it is not the newest version. If no
/// replica has what the session has seen, the read is repeated without the token, with the same two safeguards.
///
/// ```no_run
/// # async fn example(client: azure_data_cosmos::CosmosClient) -> changefeed_core::Result<()> {
/// use changefeed_cosmos::CosmosContainer;
///
/// let orders = CosmosContainer::open(&client, "shop", "orders").await?;
/// # Ok(())
/// # }
/// ```
pub struct CosmosContainer {
    client: Arc<NamedClient>,
    pub(crate) identity: ContainerIdentity,
    pub(crate) options: Options,
    pub(crate) budgets: Budgets,
    /// The account, if the container was opened for leases.
    pub(crate) leases: Option<Arc<LeaseAccount>>,
    /// The ranges as last read, to find one by its id.
    pub(crate) ranges: Mutex<Vec<PhysicalRange>>,
    /// Where the feeds of the ranges end, to find positions that are ahead of them.
    pub(crate) positions: Mutex<Positions>,
    /// How parts of physical ranges are read.
    pub(crate) parts: Mutex<Parts>,
}

impl CosmosContainer {
    /// Opens a container through the caller's client, with all settings at their defaults. Reads its settings once; the
    /// identity needs the data action `readMetadata` for it.
    ///
    /// A container for leases is better opened with [`CosmosContainer::open_leases`], which refuses what would break them.
    ///
    /// # A client on the SDK's default runtime
    /// Unless a `CosmosClient` was built `with_runtime`, it uses a runtime that all clients of the process share, and which
    /// remembers containers by endpoint and name, with the credential that they were first opened with. Two things are not
    /// followed then: a container that is deleted and created again (calls fail with `ContainerNotFound` until the process
    /// is restarted), and a rotated key (another client for the same container goes on with the old one). Build the client
    /// with a runtime of its own, or use an [`Account`](crate::Account), which does, and which can also replace its key while
    /// processors run.
    ///
    /// # Errors
    /// `ContainerNotFound`, `Forbidden`, and `Unavailable` or `Timeout` if the account cannot be reached.
    pub async fn open(client: &CosmosClient, database: &str, container: &str) -> Result<Container> {
        Self::open_with(client, database, container, Options::new()).await
    }

    /// Opens a container with settings.
    ///
    /// # Errors
    /// See [`CosmosContainer::open`].
    pub async fn open_with(
        client: &CosmosClient,
        database: &str,
        container: &str,
        options: Options,
    ) -> Result<Container> {
        Ok(Container::new(Box::pin(Self::open_shared(client, database, container, options)).await?))
    }

    /// As [`CosmosContainer::open_with`], for an account that may get another client.
    pub(crate) async fn open_shared(
        client: &CosmosClient,
        database: &str,
        container: &str,
        options: Options,
    ) -> Result<Arc<Self>> {
        let (container, _) = Self::read(client, database, container, options, None).await?;
        Ok(Arc::new(container))
    }

    /// As [`CosmosContainer::open_leases`], for an account that may get another client.
    pub(crate) async fn open_shared_leases(
        client: &CosmosClient,
        database: &str,
        container: &str,
        account: &AccountProperties,
        options: Options,
    ) -> Result<Arc<Self>> {
        let (account, options) = LeaseAccount::new(account, client.endpoint(), options)?;
        let (opened, settings) = Self::read(client, database, container, options, Some(Arc::new(account))).await?;
        settings.time_to_live().check_for_leases(&opened.identity)?;
        Ok(Arc::new(opened))
    }

    /// Opens a container for leases, and refuses one that cannot hold them safely: with a `defaultTtl`, which would
    /// delete leases; in an account with several write regions and none pinned, where a condition on an ETag holds in one
    /// region only; in an account whose consistency is weaker than session, where a host may not see its own writes.
    ///
    /// `account` comes from [`AccountProperties::read`] with the endpoint of the same account: the SDK does not show these
    /// settings of its client. They are read again at the first write after two minutes, and when another region answers
    /// than before; that write waits for 2 s at most. Writes are refused as long as the account is one that would not be
    /// opened.
    ///
    /// Leases are read with session consistency where that is the default of the account, otherwise with its default,
    /// whatever the operation options of the client and the variables of the SDK say.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with the setting to change; otherwise see [`CosmosContainer::open`].
    pub async fn open_leases(
        client: &CosmosClient,
        database: &str,
        container: &str,
        account: &AccountProperties,
        options: Options,
    ) -> Result<Container> {
        let opening = Self::open_shared_leases(client, database, container, account, options);
        Ok(Container::new(Box::pin(opening).await?))
    }

    async fn read(
        client: &CosmosClient,
        database: &str,
        name: &str,
        options: Options,
        leases: Option<Arc<LeaseAccount>>,
    ) -> Result<(Self, Settings)> {
        let budgets = options.budgets();
        let what = format!("open container {database}/{name}");
        if check_name(database).is_err() || check_name(name).is_err() {
            return Err(Error::new(ErrorKind::ContainerNotFound, format!("{what}: nothing can have this name")));
        }
        let opening = async {
            let container = client.database_client(database).container_client(name, None).await?;
            let settings = Settings::read(&container).await?.into_value();
            Ok::<_, CosmosError>((container, settings))
        };
        let answer = within(budgets.items.limit, opening).await;
        let answer = answer.ok_or_else(|| timed_out(Call::Container, &what, budgets.items.limit))?;
        let (container, settings) = answer.map_err(|error| failed(Call::Container, &what, error))?;
        let endpoint = client.endpoint();
        let names = StoreNames::of_endpoint(endpoint.host_str().unwrap_or_default(), endpoint.port())?;
        let identity = settings.identity(names, database)?;
        let client = Arc::new(NamedClient::new(client.clone(), container, (database, name), budgets.items.limit));
        Ok((Self::new(client, identity, options, leases), settings))
    }

    fn new(
        client: Arc<NamedClient>,
        identity: ContainerIdentity,
        options: Options,
        leases: Option<Arc<LeaseAccount>>,
    ) -> Self {
        let (ranges, positions, parts) = (Mutex::default(), Mutex::default(), Mutex::default());
        let budgets = options.budgets();
        Self { client, identity, options, budgets, leases, ranges, positions, parts }
    }

    /// Opens the container that has this name now, through the same client, with the same options.
    ///
    /// # Errors
    /// See [`CosmosContainer::open`].
    pub(crate) async fn open_again(&self) -> Result<Container> {
        let client = self.sdk();
        let reading = Settings::read(&client);
        let read = Box::pin(self.call(Call::Container, "open again", &self.budgets.items, reading)).await?;
        let names = StoreNames::of_container(&self.identity);
        let identity = read.into_value().identity(names, &self.identity.database_name)?;
        if identity.container != self.identity.container {
            // The SDK remembers the resource id of the name until the answer to a request shows that it is another one.
            drop(Box::pin(self.identified(FeedRange::full())).await);
            Box::pin(self.client.resolve()).await?;
        }
        let (client, options, leases) = (Arc::clone(&self.client), self.options.clone(), self.leases.clone());
        Ok(Container::new(Arc::new(Self::new(client, identity, options, leases))))
    }

    /// The client of the SDK by name.
    pub(crate) fn client(&self) -> &Arc<NamedClient> {
        &self.client
    }

    /// The client of the SDK.
    pub(crate) fn sdk(&self) -> ContainerClient {
        self.client.get()
    }

    pub(crate) fn definition(&self) -> &PartitionKeyDefinition {
        &self.identity.partition_key
    }

    /// `read changes of shop/orders`.
    pub(crate) fn what(&self, doing: &str) -> String {
        format!("{doing} {}/{}", self.identity.database_name, self.identity.container_name)
    }

    /// Checks that this is still the container that was opened. The SDK addresses containers by name, and goes on by itself
    /// in another one that gets the name.
    ///
    /// # Errors
    /// [`ErrorKind::ContainerNotFound`] if it is not.
    pub(crate) async fn check_identity(&self) -> Result<()> {
        self.settings("read the settings of").await.map(drop)
    }

    /// Reads the settings of this container.
    ///
    /// # Errors
    /// As for [`CosmosContainer::check_identity`], and those of the service.
    pub(crate) async fn settings(&self, doing: &str) -> Result<Response<Settings>> {
        let client = self.sdk();
        let reading = Settings::read(&client);
        let found = self.call(Call::Feed, doing, &self.budgets.items, reading).await?;
        if found.value.are_of(&self.identity) { Ok(found) } else { Err(self.replaced()) }
    }

    pub(crate) fn replaced(&self) -> Error {
        let message = self.what("another container has the name of");
        Error::new(ErrorKind::ContainerNotFound, format!("{message}, which was deleted: open it again"))
    }

    /// Waits for an answer as long as the budget allows.
    pub(crate) async fn call<T>(
        &self,
        call: Call,
        doing: &str,
        budget: &Budget,
        answer: impl Future<Output = azure_data_cosmos::Result<T>> + Send,
    ) -> Result<T> {
        let answer = match within(budget.limit, answer).await {
            Some(answer) => answer.map_err(|error| self.failed(call, doing, error)),
            None => return Err(timed_out(call, &self.what(doing), budget.limit)),
        };
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Forbidden) {
            // The key may have been replaced while the container was missing: the next call has the new one.
            drop(Box::pin(self.client.catch_up()).await);
        }
        answer
    }

    fn failed(&self, call: Call, doing: &str, error: CosmosError) -> Error {
        // Other calls are allowed in every region.
        let is_of_items = matches!(call, Call::Read | Call::List | Call::ListAfter | Call::Write);
        let diagnostics = error.diagnostics().filter(|_| is_of_items);
        match diagnostics.and_then(|diagnostics| self.check_region(call, &diagnostics).err()) {
            Some(elsewhere) => elsewhere,
            None => failed(call, &self.what(doing), error),
        }
    }

    /// The charge of an answer, if it may be used.
    ///
    /// # Errors
    /// See [`CosmosContainer::check_region`].
    pub(crate) fn charge_of(&self, call: Call, diagnostics: &Arc<DiagnosticsContext>) -> Result<f64> {
        self.check_region(call, diagnostics)?;
        Ok(charge(diagnostics))
    }

    /// Checks that the pinned region has answered, if one is pinned. The SDK goes to the first write region if all that are
    /// left are excluded, as they are while the pinned one is offline; two regions do not see each other's conditions.
    ///
    /// # Errors
    /// `Unavailable`, with an unknown effect for a write, which the other region may have performed.
    fn check_region(&self, call: Call, diagnostics: &DiagnosticsContext) -> Result<()> {
        if let (Some(account), Call::Write) = (&self.leases, call)
            && let Some(region) = diagnostics.responded_regions().last()
        {
            account.answered(region);
        }
        let Some(pinned) = self.options.only_region() else { return Ok(()) };
        let own = Region::from(pinned.to_owned());
        let Some(other) = diagnostics.responded_regions().into_iter().find(|region| **region != own) else {
            return Ok(());
        };
        let message = self.what("use leases in");
        let message = format!("{message}: region {pinned} is pinned and not available, and {other} answered");
        let error = Error::new(ErrorKind::Unavailable, message);
        Err(if call == Call::Write { error.with_unknown_effect() } else { error })
    }

    /// Performs a request that takes several calls of the SDK, each with the limit of the budget: together they take no
    /// longer than one of them may.
    pub(crate) async fn together<T>(
        &self,
        call: Call,
        doing: &str,
        budget: &Budget,
        calls: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match within(budget.limit, calls).await {
            Some(result) => result,
            None => Err(timed_out(call, &self.what(doing), budget.limit)),
        }
    }
}

impl fmt::Debug for CosmosContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContainerIdentity { database_name, container_name, account_host, .. } = &self.identity;
        write!(f, "CosmosContainer({database_name}/{container_name} at {account_host})")
    }
}
