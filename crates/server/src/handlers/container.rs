//! Containers: create, list, query, read, replace, delete.

use changefeed_core::{ContainerInfo, ContainerSpec, DatabaseInfo};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{database, offers, query};
use crate::{
    containers::unique_keys::{UNIQUE_KEY_POLICY, UniqueKeys},
    error::{ApiError, ApiResult, substatus},
    headers,
    state::ServerState,
    wire::{
        http::{Reply, Request},
        resources,
    },
};

/// Creates a container; lists or queries all of a database.
pub(crate) async fn all(state: &ServerState, request: &Request<'_>, database: &str) -> ApiResult<Reply> {
    let database = owner(state, database).await?;
    match request.method {
        Method::POST if !request.is_query() => create(state, request, &database).await,
        Method::GET | Method::POST => {
            let all = state.catalog.list_containers(&database.name).await?;
            let all: Vec<Value> = all.iter().map(resources::container).collect();
            query::resources(request, &database.rid.to_string(), "DocumentCollections", &all, state.clock.wall())
        }
        _ => Err(ApiError::method_not_allowed(&request.method)),
    }
}

/// Finds the database of a container.
async fn owner(state: &ServerState, segment: &str) -> ApiResult<DatabaseInfo> {
    database::find(state, segment).await.map_err(|error| match error.status {
        StatusCode::NOT_FOUND => error.substatus(substatus::OWNER_MISSING),
        _ => error,
    })
}

async fn create(state: &ServerState, request: &Request<'_>, database: &DatabaseInfo) -> ApiResult<Reply> {
    let throughput = offers::requested(request)?;
    let ranges = state.ranges.unwrap_or_else(|| offers::ranges(throughput));
    let mut spec = resources::container_spec(&request.body, ranges, state.retention)?;
    offers::set_throughput(&mut spec.extra, throughput);
    let created = state.catalog.create_container(&database.name, spec).await;
    let info = created.map_err(|error| ApiError::from_catalog(&error))?;
    Ok(written(StatusCode::CREATED, &info, &database.name))
}

/// Reads, replaces or deletes a container.
pub(crate) async fn one(
    state: &ServerState,
    request: &Request<'_>,
    database: &str,
    container: &str,
) -> ApiResult<Reply> {
    let missing = || ApiError::not_found(format!("there is no container {container} in database {database}"));
    let database = owner(state, database).await?;
    let all = state.catalog.list_containers(&database.name).await?;
    let named = all.iter().find(|info| info.spec.name == *container);
    let info = named.or_else(|| all.iter().find(|info| info.rid.to_string() == *container)).ok_or_else(missing)?;
    match request.method {
        Method::GET => {
            let opened = state.catalog.container(&database.name, &info.spec.name).await;
            let opened = opened.map_err(|error| ApiError::from_catalog(&error))?;
            let body = resources::container_with_store(info, opened.identity());
            Ok(with_headers(Reply::json(StatusCode::OK, &body), info, &database.name))
        }
        Method::PUT => replace(state, request, &database, info).await,
        Method::DELETE => {
            request.check_if_match(&resources::container_etag(info))?;
            let deleted = state.catalog.delete_container(&database.name, &info.spec.name).await;
            deleted.map_err(|error| ApiError::from_catalog(&error))?;
            state.containers.forget(&info.rid);
            Ok(Reply::new(StatusCode::NO_CONTENT, ""))
        }
        _ => Err(ApiError::method_not_allowed(&request.method)),
    }
}

async fn replace(
    state: &ServerState,
    request: &Request<'_>,
    database: &DatabaseInfo,
    info: &ContainerInfo,
) -> ApiResult<Reply> {
    request.check_if_match(&resources::container_etag(info))?;
    let mut spec = resources::container_spec(&request.body, info.spec.ranges, state.retention)?;
    let name = &info.spec.name;
    if spec.name != *name {
        return Err(ApiError::bad_request(format!("the body names {}, but the path {name}", spec.name)));
    }
    keep_unique_keys(&mut spec, &info.spec)?;
    offers::keep_throughput(&mut spec.extra, &info.spec.extra);
    let replaced = state.catalog.replace_container(&database.name, spec).await;
    let info = replaced.map_err(|error| ApiError::from_catalog(&error))?;
    state.containers.forget(&info.rid);
    Ok(written(StatusCode::OK, &info, &database.name))
}

/// Unique keys are set when a container is created and cannot change.
fn keep_unique_keys(spec: &mut ContainerSpec, old: &ContainerSpec) -> ApiResult<()> {
    let Some(policy) = old.extra.get(UNIQUE_KEY_POLICY) else {
        return match UniqueKeys::parse(spec.extra.get(UNIQUE_KEY_POLICY))?.is_empty() {
            true => Ok(()),
            false => Err(ApiError::bad_request("Unique keys cannot be added to a container: create another one")),
        };
    };
    let given = spec.extra.entry(UNIQUE_KEY_POLICY).or_insert_with(|| policy.clone());
    if UniqueKeys::parse(Some(given))? != UniqueKeys::parse(Some(policy))? {
        return Err(ApiError::bad_request("Unique keys of a container cannot be modified: create another one"));
    }
    Ok(())
}

/// Shows a container that was created or replaced, and names its settings that have no effect.
fn written(status: StatusCode, info: &ContainerInfo, database: &str) -> Reply {
    let mut reply = with_headers(Reply::json(status, &resources::container(info)), info, database);
    let without_effect = resources::not_acted_on(&info.spec);
    if !without_effect.is_empty() {
        let settings = without_effect.join(", ");
        tracing::warn!(database, container = %info.spec.name, settings, "settings are kept but not acted on");
        reply.set_text(&headers::NOT_ACTED_ON, &settings);
    }
    reply
}

fn with_headers(reply: Reply, info: &ContainerInfo, database: &str) -> Reply {
    let mut reply = reply.with_etag(&resources::container_etag(info));
    reply.set_text(&headers::ALT_CONTENT_PATH, &format!("dbs/{database}"));
    reply.set_text(&headers::CONTENT_PATH, &info.rid.to_string());
    reply
}
