//! Routing: checks the signature of a request and finds the handler of its method and path.

pub(crate) mod host_check;
pub mod path;

use std::sync::Arc;

use hyper::{
    Method, StatusCode,
    header::{self, HeaderName},
};

use self::path::Target;
use crate::{
    auth::{self, Access, Signed},
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult, substatus},
    faults::InjectedFault,
    handlers::{
        account, admin, batch, container, database, feed, items, offers, partition_key_delete, partition_key_ranges,
        query, read_feed, scripts, session_headers,
    },
    headers,
    state::ServerState,
    wire::{
        http::{Reply, Request},
        session_token::{self, Seen},
    },
};

/// Answers a request that [`authorize`] has accepted.
pub(crate) async fn answer(
    state: &ServerState,
    request: &Request<'_>,
    raw_path: &str,
    access: Access,
) -> ApiResult<Reply> {
    if access == Access::ReadOnly && !is_read(request) {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "this key permits reads only: sign writes with another key"));
    }
    let fault = state.faults.next_fault(request.method.as_str(), raw_path, &request.path, &*state.clock);
    let mut reply = match fault {
        Some(InjectedFault::Before(error)) => Err(error),
        Some(InjectedFault::After(error)) => route(state, request).await.and(Err(error)),
        None => route(state, request).await,
    }?;
    reply.set_text(&header::CONTENT_LOCATION, &format!("{}{raw_path}", request.endpoint()));
    Ok(reply)
}

/// Checks the signature of a request, and its host name where the key is public. Reads its headers only.
pub(crate) fn authorize(state: &ServerState, request: &Request<'_>) -> ApiResult<Access> {
    if state.keys.read().has_emulator_key() {
        host_check::check(&request.headers, request.authority, &state.account_hosts)?;
    }
    let text = |name: &HeaderName| request.headers.get(name).and_then(|value| value.to_str().ok());
    let signed = Signed {
        authorization: text(&header::AUTHORIZATION),
        ms_date: text(&headers::MS_DATE),
        date: text(&header::DATE),
    };
    auth::authorize(&state.keys.read(), request.method.as_str(), &request.path, signed, state.clock.wall()).map_err(
        |refusal| {
            let status = match refusal {
                auth::Refusal::Skewed => StatusCode::FORBIDDEN,
                _ => StatusCode::UNAUTHORIZED,
            };
            ApiError::new(status, refusal.message())
        },
    )
}

/// Calls the handler of a request. A future is as large as the largest one it may await, and it is moved before it is
/// polled: rare and slow handlers are boxed here and in [`route_in_container`].
async fn route(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    match &request.path.target {
        Target::Account => account::read(state, request),
        Target::Databases => Box::pin(database::all(state, request)).await,
        Target::Database(database) => Box::pin(database::one(state, request, database)).await,
        Target::Users(database, user) => Box::pin(database::users(state, request, database, user.as_deref())).await,
        Target::Containers(database) => Box::pin(container::all(state, request, database)).await,
        Target::Container(database, container) => Box::pin(container::one(state, request, database, container)).await,
        Target::Offers => Box::pin(offers::list(state, request)).await,
        Target::Offer(id) => Box::pin(offers::one(state, request, id)).await,
        Target::Admin(name) => Box::pin(admin::call(state, request, name)).await,
        Target::Items(database, container)
        | Target::Item(database, container, _)
        | Target::Ranges(database, container)
        | Target::PartitionKeyDelete(database, container)
        | Target::Scripts(database, container, ..) => in_container(state, request, database, container).await,
    }
}

/// Routes a request about the contents of a container. If its handle turns out to be of a deleted container, the name is
/// looked up again, once.
async fn in_container(state: &ServerState, request: &Request<'_>, database: &str, container: &str) -> ApiResult<Reply> {
    let handle = state.containers.get(database, container).await?;
    match route_in_container(state, request, &handle).await {
        Err(error) if error.substatus == Some(substatus::OWNER_MISSING) => {
            state.containers.forget(&handle.identity().container);
            let handle = state.containers.get(database, container).await?;
            route_in_container(state, request, &handle).await
        }
        Err(error) => Err(Box::pin(session_headers::add_to_error(error, request, &handle)).await),
        Ok(reply) => Ok(reply),
    }
}

async fn route_in_container(
    state: &ServerState,
    request: &Request<'_>,
    handle: &Arc<ContainerHandle>,
) -> ApiResult<Reply> {
    check_intended_container(request, handle)?;
    if let Some(tokens) = request.text(&headers::SESSION_TOKEN)? {
        for Seen { range, lsn } in session_token::parse(tokens)? {
            if lsn > handle.known_lsn(&range) && !Box::pin(handle.has_reached(&range, lsn)).await? {
                let message = format!(
                    "The read session is not available for the input session token: its LSN {lsn} is beyond the newest of \
                     range {range}"
                );
                return Err(ApiError::not_found(message).substatus(substatus::READ_SESSION_NOT_AVAILABLE));
            }
        }
    }
    if !is_read(request) {
        refuse_triggers(request)?;
    }
    match (&request.path.target, &request.method) {
        (Target::Ranges(..), &Method::GET) => Box::pin(partition_key_ranges::read(request, handle)).await,
        (Target::Scripts(.., kind, id), _) => scripts::answer(request, handle, kind, id.as_deref()),
        (Target::Items(..), &Method::GET) => match feed::mode(request)? {
            Some(mode) => feed::read(request, handle, mode).await,
            None => Box::pin(read_feed::read(request, handle)).await,
        },
        (Target::Items(..), &Method::POST) if request.flag(&headers::IS_BATCH) => {
            Box::pin(batch::run(request, handle)).await
        }
        (Target::Items(..), &Method::POST) if request.flag(&headers::IS_QUERY_PLAN) => {
            Box::pin(query::plan(state, request, handle)).await
        }
        (Target::Items(..), &Method::POST) if request.is_query() => {
            Box::pin(query::items(state, request, handle)).await
        }
        (Target::Items(..), &Method::POST) => items::create(request, handle).await,
        (Target::PartitionKeyDelete(..), &Method::POST) => Box::pin(partition_key_delete::run(request, handle)).await,
        (Target::Item(.., id), &Method::GET) => items::read(request, handle, id).await,
        (Target::Item(.., id), &Method::PUT) => items::replace(request, handle, id).await,
        (Target::Item(.., id), &Method::PATCH) => Box::pin(items::patch(request, handle, id)).await,
        (Target::Item(.., id), &Method::DELETE) => items::delete(request, handle, id).await,
        (_, method) => Err(ApiError::method_not_allowed(method)),
    }
}

/// Refuses a request that is meant for an earlier container of the same name.
fn check_intended_container(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<()> {
    match request.text(&headers::INTENDED_COLLECTION)? {
        Some(intended) if intended != handle.rid => Err(ApiError::bad_request(format!(
            "the request is meant for container {intended}, but {} is {} now",
            handle.name_link, handle.rid
        ))
        .substatus(substatus::OTHER_CONTAINER)),
        _ => Ok(()),
    }
}

/// Returns `true` if a request changes nothing. Must agree with the routing of `POST`: a batch that also calls itself a
/// query is a batch.
fn is_read(request: &Request<'_>) -> bool {
    match (&request.method, &request.path.target) {
        (&Method::GET | &Method::HEAD, _) => true,
        (&Method::POST, Target::Items(..)) => {
            !request.flag(&headers::IS_BATCH) && (request.flag(&headers::IS_QUERY_PLAN) || request.is_query())
        }
        (&Method::POST, Target::Databases | Target::Containers(_)) => request.is_query(),
        (&Method::POST, Target::Offers) => true,
        (&Method::POST, Target::Admin(name)) => {
            changefeed_protocol::Target::parse(name).is_some_and(|target| target.is_read())
        }
        _ => false,
    }
}

/// Refuses a write that names a trigger: triggers are not supported, and the write must not happen without it.
fn refuse_triggers(request: &Request<'_>) -> ApiResult<()> {
    for header in [&headers::PRE_TRIGGERS, &headers::POST_TRIGGERS] {
        if let Some(triggers) = request.text(header)? {
            return Err(ApiError::bad_request(format!(
                "the trigger {triggers} of {header} does not exist: triggers are not supported"
            )));
        }
    }
    Ok(())
}
