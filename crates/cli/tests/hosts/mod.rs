//! What tests of several hosts share: a server and hosts in processes of their own, a writer, and the ledger of what was
//! delivered.
#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../../examples/fleet.rs"]
#[allow(unreachable_pub, missing_docs, reason = "its `main` is not used here")]
mod fleet;
pub(crate) mod host;
pub(crate) mod ledger;
#[path = "../serve/process.rs"]
pub(crate) mod process;

use changefeed::{
    core::RangeId,
    remote::{EMULATOR_KEY, Server as Client},
};

use self::host::ARGUMENTS;

/// The process that is a host. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_process() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    fleet::run(arguments.lines().map(str::to_owned)).await.unwrap();
}

/// The process that is a host through the SDK of Azure Cosmos DB, with the timing of a host that uses our client. Does
/// nothing as a test.
#[cfg(feature = "cosmos")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sdk_host_process() {
    use changefeed::{LeaseTiming, Processor};
    use changefeed_cosmos::{Account, Credential};

    let (Ok(arguments), Ok(endpoint)) = (std::env::var(ARGUMENTS), std::env::var(host::ACCOUNT)) else { return };
    let account = Account::connect(&endpoint, Credential::Key(EMULATOR_KEY.to_owned())).await.unwrap();
    let orders = account.container("shop", "orders").await.unwrap();
    let leases = account.lease_container("shop", "leases").await.unwrap();
    let processor = Processor::builder("fleet", &orders, &leases)
        .lease_timing(LeaseTiming::SERVER)
        .poll_interval(std::time::Duration::from_millis(100));
    fleet::host(processor, fleet::Args::parse(arguments.lines().map(str::to_owned)).unwrap()).await.unwrap();
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A client of the server at `endpoint`.
pub(crate) fn connect(endpoint: &str) -> Client {
    Client::connect(endpoint, EMULATOR_KEY).unwrap()
}

/// Makes the container that hosts monitor.
pub(crate) fn create_orders(endpoint: &str, ranges: usize) {
    let orders = connect(endpoint).database("shop").container("orders").partition_key("/customer").ranges(ranges);
    block_on(orders.create()).unwrap();
}

/// Splits a range of it.
pub(crate) fn split(endpoint: &str, range: &str) {
    let range: RangeId = range.parse().unwrap();
    block_on(connect(endpoint).catalog().split("shop", "orders", &range, None)).unwrap();
}
