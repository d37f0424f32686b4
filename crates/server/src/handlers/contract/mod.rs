//! The contract itself over HTTP, for `changefeed-remote`: every method of `Backend` and `Catalog` as a call of our own.

mod address;
pub(crate) mod watch;

use std::sync::Arc;

use bytes::Bytes;
use changefeed_core::{
    Batch, Catalog, ContainerSpec, DatabaseSpec, Epk, Error, ErrorKind, ItemKey, ListItems, RangeId, ReadChanges,
    Response, Result,
};
use changefeed_protocol::{
    Address, CONTENT_TYPE, CatalogCall, ContainerCall, Opened, Target, Wire, decode, encode, encode_error,
};
use hyper::{
    Method, StatusCode,
    header::{self, HeaderValue},
};

use self::{address::open, watch::Watches};
use crate::{
    containers::{container_cache::ContainerCache, handle::ContainerHandle},
    error::{ApiError, ApiResult},
    headers,
    wire::http::{Reply, Request},
};

/// The parts of the server that these calls need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) catalog: &'a Arc<dyn Catalog>,
    pub(crate) containers: &'a ContainerCache,
    pub(crate) watches: &'a Watches,
}

/// Carries out a call.
pub(crate) async fn call(service: Parts<'_>, request: &Request<'_>, target: &Target) -> ApiResult<Reply> {
    if request.method != Method::POST {
        return Err(ApiError::method_not_allowed(&request.method));
    }
    let body = request.body.clone();
    let answer = match target {
        Target::Catalog(call) => Box::pin(catalog(service, *call, body)).await,
        Target::Container(database, name, call) => container(service, (database, name), *call, body).await,
        Target::Watch => {
            let prefer = request.text(&headers::PREFER)?;
            match read(body) {
                Ok(call) => Box::pin(service.watches.call(service.containers, call, prefer)).await,
                Err(error) => Err(error),
            }
            .map(|reply| encode(&reply))
        }
    };
    Ok(reply(answer))
}

/// Encodes a result; an error gets the status that Cosmos DB has for it.
fn reply(answer: Result<Bytes>) -> Reply {
    let mut reply = match answer {
        Ok(message) => Reply::ok(message),
        Err(error) => Reply::new(ApiError::from_store(&error).status, encode_error(&error)),
    };
    reply.set(&header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    reply
}

/// Reads the message of a request. One that is malformed comes from a client whose messages are others.
fn read<T: Wire>(body: Bytes) -> Result<T> {
    decode(body).map_err(|error| {
        let message = format!(
            "the server (changefeed {}, calls of {}) cannot read the request: build client and server from the same version \
             of changefeed",
            env!("CARGO_PKG_VERSION"),
            changefeed_protocol::VERSION
        );
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })
}

async fn catalog(service: Parts<'_>, call: CatalogCall, body: Bytes) -> Result<Bytes> {
    let catalog = service.catalog;
    Ok(match call {
        CatalogCall::CreateDatabase => encode(&catalog.create_database(read::<DatabaseSpec>(body)?).await?),
        CatalogCall::ListDatabases => {
            read::<()>(body)?;
            encode(&catalog.list_databases().await?)
        }
        CatalogCall::ReplaceDatabase => encode(&catalog.replace_database(read::<DatabaseSpec>(body)?).await?),
        CatalogCall::DeleteDatabase => {
            let deleted = catalog.delete_database(&read::<String>(body)?).await;
            service.containers.forget_all();
            encode(&deleted?)
        }
        CatalogCall::CreateContainer => {
            let (database, spec) = read::<(String, ContainerSpec)>(body)?;
            encode(&catalog.create_container(&database, spec).await?)
        }
        CatalogCall::ListContainers => encode(&catalog.list_containers(&read::<String>(body)?).await?),
        CatalogCall::ReplaceContainer => {
            let (database, spec) = read::<(String, ContainerSpec)>(body)?;
            let replaced = catalog.replace_container(&database, spec).await;
            service.containers.forget_all();
            encode(&replaced?)
        }
        CatalogCall::DeleteContainer => {
            let (database, name) = read::<(String, String)>(body)?;
            let deleted = catalog.delete_container(&database, &name).await;
            service.containers.forget_all();
            encode(&deleted?)
        }
        CatalogCall::OpenContainer => {
            let (database, name) = read::<(String, String)>(body)?;
            let container = catalog.container(&database, &name).await?;
            let (identity, capabilities) = (container.identity().clone(), container.capabilities());
            encode(&Opened { identity, capabilities })
        }
        CatalogCall::Split => {
            let (database, name, range, at) = read::<(String, String, RangeId, Option<Epk>)>(body)?;
            let children = catalog.split(&database, &name, &range, at).await?;
            service.containers.get(&database, &name).await?.fresh_ranges().await?;
            encode(&children)
        }
        CatalogCall::Merge => {
            let (database, name, a, b) = read::<(String, String, RangeId, RangeId)>(body)?;
            let merged = catalog.merge(&database, &name, [&a, &b]).await?;
            service.containers.get(&database, &name).await?.fresh_ranges().await?;
            encode(&merged)
        }
    })
}

async fn container(service: Parts<'_>, names: (&str, &str), call: ContainerCall, body: Bytes) -> Result<Bytes> {
    match call {
        ContainerCall::FeedRanges => {
            let handle = open(service.containers, names, &read::<Address>(body)?).await?;
            answered(service.containers, &handle, handle.store().feed_ranges().await)
        }
        ContainerCall::ReadChanges => {
            let (address, request) = read::<(Address, ReadChanges)>(body)?;
            let handle = open(service.containers, names, &address).await?;
            answered(service.containers, &handle, handle.store().read_changes(request).await)
        }
        ContainerCall::ReadItem => {
            let (address, key) = read::<(Address, ItemKey)>(body)?;
            let handle = open(service.containers, names, &address).await?;
            answered(service.containers, &handle, handle.store().read_item(&key).await)
        }
        ContainerCall::Write => {
            let (address, batch) = read::<(Address, Batch)>(body)?;
            let handle = open(service.containers, names, &address).await?;
            answered(service.containers, &handle, handle.store().write(batch).await)
        }
        ContainerCall::ListItems => {
            let (address, request) = read::<(Address, ListItems)>(body)?;
            let handle = open(service.containers, names, &address).await?;
            answered(service.containers, &handle, handle.store().list_items(request).await)
        }
    }
}

/// Encodes the result of a container. The handle of a deleted container is dropped.
fn answered<T: Wire>(
    containers: &ContainerCache,
    handle: &ContainerHandle,
    answer: Result<Response<T>>,
) -> Result<Bytes> {
    if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::ContainerNotFound) {
        containers.forget(&handle.identity().container);
    }
    answer.map(|response| encode(&response))
}

/// The error for an unknown call.
pub(crate) fn unknown() -> ApiError {
    let message = format!(
        "there is no such call: use split, merge, throttle, faults, verify or backup; changefeed/{} offers its clients the \
         calls of {}",
        env!("CARGO_PKG_VERSION"),
        changefeed_protocol::VERSION
    );
    ApiError::new(StatusCode::NOT_FOUND, message).substatus(0)
}
