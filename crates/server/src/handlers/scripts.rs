//! Stored procedures, triggers, user-defined functions and conflicts: a container has none, and none can be created.

use hyper::Method;

use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    wire::http::{Reply, Request},
};

/// Answers about the feed `kind` of a container, or about `id` in it.
pub(crate) fn answer(
    request: &Request<'_>,
    handle: &ContainerHandle,
    kind: &str,
    id: Option<&str>,
) -> ApiResult<Reply> {
    let (member, words) = match kind {
        "sprocs" => ("StoredProcedures", "stored procedures"),
        "triggers" => ("Triggers", "triggers"),
        "udfs" => ("UserDefinedFunctions", "user-defined functions"),
        _ => ("Conflicts", "conflicts"),
    };
    match (&request.method, id) {
        (&Method::GET, None) => Ok(Reply::empty_feed(&handle.rid, member)),
        (&Method::GET | &Method::DELETE, Some(id)) => {
            Err(ApiError::not_found(format!("there is nothing called {id} among the {words}")))
        }
        _ if request.is_query() => Ok(Reply::empty_feed(&handle.rid, member)),
        _ => Err(ApiError::bad_request(format!("{words} are not supported: run such code in a change feed processor"))),
    }
}
