//! Databases: create, list, query, read, delete; and their users, which are not supported.

use changefeed_core::{DatabaseInfo, DatabaseSpec};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{offers, query};
use crate::{
    error::{ApiError, ApiResult},
    headers,
    state::ServerState,
    wire::{
        http::{Reply, Request},
        resources,
    },
};

/// Creates a database; lists or queries all.
pub(crate) async fn all(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    match request.method {
        Method::POST if !request.is_query() => create(state, request).await,
        Method::GET | Method::POST => {
            let all = state.catalog.list_databases().await?;
            let all: Vec<Value> = all.iter().map(resources::database).collect();
            query::resources(request, "", "Databases", &all, state.clock.wall())
        }
        _ => Err(ApiError::method_not_allowed(&request.method)),
    }
}

async fn create(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    let body: Value = serde_json::from_slice(&request.body)
        .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))?;
    let mut spec = DatabaseSpec::new(resources::resource_name(body.get("id"))?);
    offers::set_throughput(&mut spec.extra, offers::requested(request)?);
    let info = state.catalog.create_database(spec).await.map_err(|error| ApiError::from_catalog(&error))?;
    let reply = Reply::json(StatusCode::CREATED, &resources::database(&info));
    Ok(reply.with_etag(&resources::database_etag(&info)))
}

/// Finds the database under a segment of a path, which is a name or a resource id.
pub(crate) async fn find(state: &ServerState, segment: &str) -> ApiResult<DatabaseInfo> {
    let name = state.containers.database_name(segment).await?;
    let found = state.catalog.list_databases().await?.into_iter().find(|info| info.name == name);
    found.ok_or_else(|| ApiError::not_found(format!("there is no database {segment}: create it first")))
}

/// Reads or deletes a database.
pub(crate) async fn one(state: &ServerState, request: &Request<'_>, segment: &str) -> ApiResult<Reply> {
    let info = find(state, segment).await?;
    match request.method {
        Method::GET => {
            let mut reply = Reply::json(StatusCode::OK, &resources::database(&info));
            reply.set_text(&headers::CONTENT_PATH, &info.rid.to_string());
            Ok(reply.with_etag(&resources::database_etag(&info)))
        }
        Method::DELETE => {
            request.check_if_match(&resources::database_etag(&info))?;
            state.catalog.delete_database(&info.name).await.map_err(|error| ApiError::from_catalog(&error))?;
            state.containers.forget_all();
            Ok(Reply::new(StatusCode::NO_CONTENT, ""))
        }
        _ => Err(ApiError::method_not_allowed(&request.method)),
    }
}

/// Answers about users: a database has none.
pub(crate) async fn users(
    state: &ServerState,
    request: &Request<'_>,
    database: &str,
    user: Option<&str>,
) -> ApiResult<Reply> {
    let info = find(state, database).await?;
    match (&request.method, user) {
        (&Method::GET, None) => Ok(Reply::empty_feed(&info.rid.to_string(), "Users")),
        (&Method::GET | &Method::DELETE, Some(user)) => {
            Err(ApiError::not_found(format!("there is no user {user}: users are not supported")))
        }
        _ => {
            Err(ApiError::bad_request("users and permissions are not supported: clients sign with the account's keys"))
        }
    }
}
