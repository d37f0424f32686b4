//! An account in the emulator inside of the SDK, with a socket for itself and one for each region: for what opens its own
//! connections, such as `Account::connect`. It remembers each request, and may refuse some.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use azure_core::{
    credentials::Secret,
    http::{Method, Request as SdkRequest, Url},
};
use azure_data_cosmos::{AccountReference, CosmosClient, CosmosRuntime, RoutingStrategy, options::OperationOptions};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, ContainerConfig, EmulatorStore, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion,
    WriteMode,
};
use bytes::Bytes;
use changefeed_cosmos::{Account, AccountProperties, Credential};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    http::serve,
    support::{KEY, on_sdk},
};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) region: String,
    pub(crate) method: String,
    pub(crate) path: String,
    headers: BTreeMap<String, String>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Whether it concerns the items of this container of the database `shop`.
    pub(crate) fn is_for_items_of(&self, container: &str) -> bool {
        self.path.starts_with(&format!("/dbs/shop/colls/{container}/docs"))
    }
}

/// Decides whether a request is refused as one for which the identity has no role.
type Refuses = dyn Fn(&Received) -> bool + Send + Sync;

/// The account. Its sockets are closed when it is dropped.
pub(crate) struct Emulated {
    service: Arc<Service>,
    endpoint: String,
    _connections: JoinSet<()>,
}

struct Service {
    emulator: Arc<InMemoryEmulatorHttpClient>,
    requests: Mutex<Vec<Received>>,
    refuses: Mutex<Option<Box<Refuses>>>,
}

impl Emulated {
    /// An account with one region.
    pub(crate) async fn new() -> Self {
        Self::start(&["East US"], WriteMode::Single).await
    }

    /// An account with these regions.
    pub(crate) async fn start(regions: &[&str], mode: WriteMode) -> Self {
        Self::with_consistency(regions, mode, ConsistencyLevel::Session).await
    }

    /// An account with these regions and this default consistency.
    pub(crate) async fn with_consistency(regions: &[&str], mode: WriteMode, consistency: ConsistencyLevel) -> Self {
        let regions: Vec<String> = regions.iter().map(|region| (*region).to_owned()).collect();
        on_sdk(async move { Self::start_here(&regions, mode, consistency).await }).await
    }

    async fn start_here(regions: &[String], mode: WriteMode, consistency: ConsistencyLevel) -> Self {
        let (mut listeners, mut places) = (Vec::new(), Vec::new());
        for region in regions {
            let (listener, endpoint) = listen().await;
            listeners.push((listener, Some(VirtualRegion::new(region, Url::parse(&endpoint).unwrap()))));
            places.push(VirtualRegion::new(region, Url::parse(&endpoint).unwrap()));
        }
        let (listener, endpoint) = listen().await;
        listeners.push((listener, None));
        let config = VirtualAccountConfig::new(places).unwrap();
        let config = config.with_consistency(consistency).with_write_mode(mode);
        let emulator = Arc::new(InMemoryEmulatorHttpClient::new(config));
        let service = Arc::new(Service { emulator, requests: Mutex::default(), refuses: Mutex::default() });
        let mut connections = JoinSet::new();
        for (listener, region) in listeners {
            connections.spawn(accept(listener, region, Arc::clone(&service)));
        }
        Self { service, endpoint, _connections: connections }
    }

    /// What the emulator stores, to do what an operator or the service does.
    pub(crate) fn store(&self) -> Arc<EmulatorStore> {
        self.service.emulator.store()
    }

    /// Creates a container of the database `shop`.
    pub(crate) fn create_container(&self, name: &str, partition_key: &'static str, ranges: u32) {
        let config = ContainerConfig::new().with_partition_count(ranges);
        self.store().create_container_with_config("shop", name, partition_key.into(), config);
    }

    /// Connects with the key.
    pub(crate) async fn connect(&self) -> Account {
        self.connect_with(Credential::Key(KEY.to_owned())).await.unwrap()
    }

    pub(crate) async fn connect_with(&self, credential: Credential) -> changefeed_core::Result<Account> {
        let endpoint = self.endpoint.clone();
        on_sdk(async move { Account::connect(&endpoint, credential).await }).await
    }

    /// The settings of the account.
    pub(crate) async fn properties(&self) -> AccountProperties {
        let endpoint = self.endpoint.clone();
        on_sdk(async move { AccountProperties::read(&endpoint, &Credential::Key(KEY.to_owned())).await }).await.unwrap()
    }

    /// A client of the SDK as a program builds it: with these operation options, and with these regions in this order.
    pub(crate) async fn client(&self, options: OperationOptions, regions: &[&str]) -> CosmosClient {
        let account = AccountReference::with_authentication_key(self.endpoint.parse().unwrap(), Secret::new(KEY));
        let regions = regions.iter().map(|region| (*region).to_owned().into()).collect();
        on_sdk(async move {
            let runtime = CosmosRuntime::builder().build().await.unwrap();
            let builder = CosmosClient::builder().with_runtime(runtime).with_default_operation_options(options);
            builder.build(account, RoutingStrategy::PreferredRegions(regions)).await.unwrap()
        })
        .await
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.service.requests.lock().unwrap().clone()
    }

    /// From now on such requests are refused.
    pub(crate) fn refuse(&self, refuses: impl Fn(&Received) -> bool + Send + Sync + 'static) {
        *self.service.refuses.lock().unwrap() = Some(Box::new(refuses));
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (listener, endpoint)
}

/// Requests to the region; without one, to the account.
async fn accept(listener: TcpListener, region: Option<VirtualRegion>, service: Arc<Service>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (region, service) = (region.clone(), Arc::clone(&service));
        connections.spawn(serve(stream, move |request| {
            let (region, service) = (region.clone(), Arc::clone(&service));
            async move { service.answer(region, request).await }
        }));
    }
}

impl Service {
    /// # Errors
    /// If the region cannot be reached: the connection then ends.
    async fn answer(
        &self,
        region: Option<VirtualRegion>,
        request: Request<Incoming>,
    ) -> io::Result<Response<Full<Bytes>>> {
        // The account answers as long as one of its regions does.
        let first = || self.emulator.store().config().topology_snapshot().advertised()[0].clone();
        let region = region.unwrap_or_else(first);
        let (head, body) = request.into_parts();
        let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let received = Received {
            region: region.name().to_owned(),
            method: head.method.to_string(),
            path: path.to_owned(),
            headers,
        };
        self.requests.lock().unwrap().push(received.clone());
        if self.refuses.lock().unwrap().as_ref().is_some_and(|refuses| refuses(&received)) {
            return Ok(refusal(&received));
        }
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let answer = self.emulator.execute_request(&to_sdk(region.gateway_url(), &received, body)).await;
        let answer = answer.map_err(|error| io::Error::other(error.to_string()))?;
        let answer = answer.try_into_raw_response().await.map_err(io::Error::other)?;
        let mut response = Response::builder().status(u16::from(answer.status()));
        for (name, value) in answer.headers().iter() {
            response = response.header(name.as_str(), value.as_str());
        }
        let body: &[u8] = answer.body().as_ref();
        response.body(Full::new(Bytes::copy_from_slice(body))).map_err(io::Error::other)
    }
}

/// The request as the emulator takes it.
fn to_sdk(region: &Url, received: &Received, body: Bytes) -> SdkRequest {
    let url = region.join(&received.path).unwrap();
    let method = match received.method.as_str() {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        other => panic!("the SDK sends no {other}"),
    };
    let mut request = SdkRequest::new(url, method);
    for (name, value) in &received.headers {
        request.insert_header(name.clone(), value.clone());
    }
    request.set_body(body);
    request
}

/// As the service refuses an identity that has no role with the data action.
fn refusal(received: &Received) -> Response<Full<Bytes>> {
    let Received { method, path, .. } = received;
    let body =
        format!(r#"{{"code":"Forbidden","message":"Request for {method} {path} is blocked: no role allows it"}}"#);
    let response = Response::builder().status(403).header("x-ms-substatus", "5300");
    response.body(Full::new(Bytes::from(body))).unwrap()
}
