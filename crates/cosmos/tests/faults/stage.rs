//! Two services behind the same client: a server of this project on a socket, and the emulator inside of the SDK. Faults
//! are injected between the client and either.

use std::{sync::Arc, time::Duration};

use azure_core::{credentials::Secret, http::Url};
use azure_data_cosmos::{
    AccountReference, CosmosClient, CosmosClientBuilder, CosmosRuntimeBuilder, RoutingStrategy,
    fault_injection::{
        FaultInjectionConditionBuilder, FaultInjectionErrorType, FaultInjectionResultBuilder, FaultInjectionRule,
        FaultInjectionRuleBuilder, FaultOperationType,
    },
};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, ContainerConfig, EmulatorStore, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion,
};
use changefeed_core::{Container, ContainerSpec, DatabaseSpec, PartitionKeyDefinition};
use changefeed_cosmos::{CosmosContainer, Options};
use changefeed_embedded::Engine;
use changefeed_server::Server;

use crate::support::{KEY, OnSdk, on_sdk};

/// Both budgets: the least that the SDK allows, so that giving up does not take long.
pub(crate) const BUDGET: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Server,
    Emulator,
}

pub(crate) const SERVICES: [Service; 2] = [Service::Server, Service::Emulator];

/// Where the container lives.
pub(crate) enum Place {
    /// Gone when dropped.
    Server(#[expect(dead_code, reason = "it lives as long as the place")] Engine, Server),
    Emulator(Arc<EmulatorStore>, Arc<InMemoryEmulatorHttpClient>),
}

/// A container `shop/orders`, keyed by `/pk`, and a rule that makes requests to it fail.
pub(crate) struct Stage {
    /// Gone when dropped.
    #[expect(dead_code, reason = "it lives as long as the stage")]
    place: Place,
    /// Through the faults.
    pub(crate) orders: Container,
    /// Past them.
    pub(crate) direct: Container,
    /// One for each fault.
    rules: Vec<Arc<FaultInjectionRule>>,
}

/// A fault that hits the first requests of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// None delays requests, which are performed afterwards.
    pub(crate) error: Option<FaultInjectionErrorType>,
    pub(crate) operation: FaultOperationType,
    pub(crate) hits: Option<u32>,
    pub(crate) delay: Duration,
}

impl Stage {
    pub(crate) async fn new(service: Service, fault: Fault) -> Self {
        Self::with(service, &[fault]).await
    }

    /// Faults begin once the container is open.
    pub(crate) async fn with(service: Service, faults: &[Fault]) -> Self {
        let place = Place::new(service).await;
        let (orders, rules) = place.open_with(faults).await;
        let direct = place.open().await;
        Self { place, orders, direct, rules }
    }

    /// How many requests each fault has hit. A fault that hits none tests nothing: the SDK may send another operation.
    pub(crate) fn hits(&self) -> Vec<u32> {
        self.rules.iter().map(|rule| rule.hit_count()).collect()
    }
}

impl Place {
    pub(crate) async fn new(service: Service) -> Self {
        match service {
            Service::Server => {
                let engine = Engine::in_memory().unwrap();
                let server =
                    Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
                engine.catalog().create_database(DatabaseSpec::new("shop")).await.unwrap();
                let spec = ContainerSpec::new("orders", PartitionKeyDefinition::hash("/pk").unwrap());
                engine.catalog().create_container("shop", spec).await.unwrap();
                Self::Server(engine, server)
            }
            Service::Emulator => {
                let region = VirtualRegion::new("East US", Url::parse("https://eastus.emulator.local").unwrap());
                let config = VirtualAccountConfig::new(vec![region]).unwrap();
                let config = config.with_consistency(ConsistencyLevel::Session);
                let emulator = Arc::new(InMemoryEmulatorHttpClient::new(config));
                let store = emulator.store();
                store.create_database("shop");
                let config = ContainerConfig::new().with_partition_count(1);
                store.create_container_with_config("shop", "orders", "/pk".into(), config);
                Self::Emulator(store, emulator)
            }
        }
    }

    /// Opens the container with a client of its own.
    pub(crate) async fn open(&self) -> Container {
        self.open_with(&[]).await.0
    }

    /// Opens the container with a client of its own, whose requests meet these faults.
    async fn open_with(&self, faults: &[Fault]) -> (Container, Vec<Arc<FaultInjectionRule>>) {
        let rules: Vec<_> = faults.iter().enumerate().map(|(index, fault)| rule(index, *fault)).collect();
        rules.iter().for_each(|rule| rule.disable());
        let mut builder = CosmosClientBuilder::new().with_fault_injection_rules(rules.clone()).unwrap();
        let (endpoint, runtime) = match self {
            Self::Server(_, server) => (server.endpoint(), None),
            Self::Emulator(_, emulator) => {
                let runtime = CosmosRuntimeBuilder::from(Arc::clone(emulator).runtime_builder());
                ("https://eastus.emulator.local".to_owned(), Some(runtime))
            }
        };
        let opened = on_sdk(async move {
            if let Some(runtime) = runtime {
                builder = builder.with_runtime(runtime.build().await.unwrap());
            }
            let client = connect(builder, endpoint).await;
            let options = Options::new().feed_timeout(BUDGET).item_timeout(BUDGET);
            CosmosContainer::open_with(&client, "shop", "orders", options).await.unwrap()
        });
        let container = OnSdk::container(&opened.await);
        rules.iter().for_each(|rule| rule.enable());
        (container, rules)
    }
}

async fn connect(builder: CosmosClientBuilder, endpoint: String) -> CosmosClient {
    let account = AccountReference::with_authentication_key(endpoint.parse().unwrap(), Secret::new(KEY));
    builder.build(account, RoutingStrategy::ProximityTo("East US".into())).await.unwrap()
}

fn rule(index: usize, fault: Fault) -> Arc<FaultInjectionRule> {
    let condition = FaultInjectionConditionBuilder::new().with_operation_type(fault.operation).build();
    let mut result = FaultInjectionResultBuilder::new().with_delay(fault.delay);
    if let Some(error) = fault.error {
        result = result.with_error(error);
    }
    let mut rule = FaultInjectionRuleBuilder::new(format!("fault {index}"), result.build()).with_condition(condition);
    if let Some(hits) = fault.hits {
        rule = rule.with_hit_limit(hits);
    }
    Arc::new(rule.build())
}
