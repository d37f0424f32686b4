//! A shop in an emulator of its own: orders, leases, hosts that note what they deliver, and requests that fail.

use std::{ops::Range, sync::Arc, time::Duration};

use azure_core::{credentials::Secret, http::Url};
use azure_data_cosmos::{
    AccountReference, CosmosClientBuilder, CosmosRuntimeBuilder, RoutingStrategy,
    fault_injection::{
        FaultInjectionConditionBuilder, FaultInjectionErrorType as Error, FaultInjectionResultBuilder,
        FaultInjectionRule, FaultInjectionRuleBuilder, FaultOperationType as Operation,
    },
};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, ContainerConfig, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion,
};
use changefeed::{
    Latest, Processor, ProcessorBuilder, Running,
    core::{Container, StartFrom},
};
use changefeed_cosmos::CosmosContainer;
use serde_json::json;

pub(crate) use crate::seen::{Seen, TIMING, pass, start, until};
use crate::support::{KEY, OnSdk, on_sdk};

const ENDPOINT: &str = "https://eastus.emulator.local";

/// What a request may be answered with instead: 429, 449, 410/1002, 503, 408, and no answer after the service has performed
/// it.
pub(crate) const FAULTS: [Error; 6] = [
    Error::TooManyRequests,
    Error::RetryWith,
    Error::PartitionIsGone,
    Error::ServiceUnavailable,
    Error::Timeout,
    Error::ResponseTimeoutAfterService,
];

pub(crate) struct Shop {
    emulator: Arc<InMemoryEmulatorHttpClient>,
    pub(crate) orders: Container,
    pub(crate) leases: Container,
}

impl Shop {
    /// A shop in which the first creates, replaces and deletes of leases, and the first reads of the feed of orders, fail
    /// with each of the faults.
    pub(crate) async fn new(ranges: usize) -> Self {
        let mut rules = Vec::new();
        for error in FAULTS {
            rules.push(rule(error, Operation::CreateItem, "leases", 1));
            rules.push(rule(error, Operation::ReplaceItem, "leases", 2));
            rules.push(rule(error, Operation::DeleteItem, "leases", 1));
            rules.push(rule(error, Operation::ChangeFeedItem, "orders", 1));
        }
        Self::with_faults(ranges, rules).await
    }

    /// A shop in which hosts meet these faults, and writers of orders do not.
    pub(crate) async fn with_faults(ranges: usize, rules: Vec<Arc<FaultInjectionRule>>) -> Self {
        let region = VirtualRegion::new("East US", Url::parse(ENDPOINT).unwrap());
        let config = VirtualAccountConfig::new(vec![region]).unwrap().with_consistency(ConsistencyLevel::Session);
        let emulator = Arc::new(InMemoryEmulatorHttpClient::new(config));
        let store = emulator.store();
        store.create_database("shop");
        let config = ContainerConfig::new().with_partition_count(u32::try_from(ranges).unwrap());
        store.create_container_with_config("shop", "orders", "/customer".into(), config);
        store.create_container("shop", "leases", "/id".into());
        let orders = open(&emulator, "orders", rules.clone()).await;
        let leases = open(&emulator, "leases", rules).await;
        Self { emulator, orders, leases }
    }

    /// A further container, keyed by `/id`, without faults.
    pub(crate) async fn create_container(&self, name: &str) -> Container {
        self.create_container_with_faults(name, Vec::new()).await
    }

    /// A further container, keyed by `/id`.
    pub(crate) async fn create_container_with_faults(
        &self,
        name: &str,
        rules: Vec<Arc<FaultInjectionRule>>,
    ) -> Container {
        self.emulator.store().create_container("shop", name, "/id".into());
        open(&self.emulator, name, rules).await
    }

    /// Splits a range of the orders in the middle. Meanwhile the emulator answers 410/1007, as the service does.
    pub(crate) async fn split(&self, range: u32) {
        let store = self.emulator.store();
        store.split_partition("shop", "orders", range, Duration::ZERO);
        store.drain_pending_control_plane().await;
        assert_eq!(store.child_partition_ids("shop", "orders", &[range]).len(), 2, "range {range} is split");
    }

    /// Merges two neighbours.
    pub(crate) async fn merge(&self, a: u32, b: u32) {
        let store = self.emulator.store();
        store.merge_partitions_and_wait("shop", "orders", a, b, Duration::ZERO).await.unwrap();
    }

    /// Writes version `n` of these orders. There are seven customers.
    pub(crate) async fn write(&self, numbers: Range<u32>, n: u32) {
        for number in numbers {
            let order = json!({"id": number.to_string(), "customer": format!("c{}", number % 7), "n": n});
            self.orders.upsert(&order).await.unwrap();
        }
    }

    pub(crate) fn builder(&self, instance: &str) -> ProcessorBuilder<Latest> {
        Processor::builder("mailer", &self.orders, &self.leases)
            .instance_name(instance)
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
            .poll_interval(Duration::from_millis(100))
    }

    /// A host of the processor `mailer`, from the beginning.
    pub(crate) async fn host(&self, instance: &str, seen: &Seen) -> Running {
        start(self.builder(instance), seen).await
    }
}

/// Opens a container with a client of its own.
async fn open(
    emulator: &Arc<InMemoryEmulatorHttpClient>,
    name: &str,
    rules: Vec<Arc<FaultInjectionRule>>,
) -> Container {
    let (runtime, name) = (CosmosRuntimeBuilder::from(Arc::clone(emulator).runtime_builder()), name.to_owned());
    let opened = on_sdk(async move {
        let builder = CosmosClientBuilder::new().with_fault_injection_rules(rules).unwrap();
        let account = AccountReference::with_authentication_key(ENDPOINT.parse().unwrap(), Secret::new(KEY));
        let builder = builder.with_runtime(runtime.build().await.unwrap());
        let client = builder.build(account, RoutingStrategy::ProximityTo("East US".into())).await.unwrap();
        CosmosContainer::open(&client, "shop", &name).await.unwrap()
    });
    OnSdk::container(&opened.await)
}

/// The first `hits` requests of this kind to the container fail.
pub(crate) fn rule(error: Error, operation: Operation, container: &str, hits: u32) -> Arc<FaultInjectionRule> {
    let condition =
        FaultInjectionConditionBuilder::new().with_operation_type(operation).with_container_id(container).build();
    let result = FaultInjectionResultBuilder::new().with_error(error).build();
    let id = format!("{error:?} {operation:?} {container}");
    Arc::new(FaultInjectionRuleBuilder::new(id, result).with_condition(condition).with_hit_limit(hits).build())
}
