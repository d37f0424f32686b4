//! Backups: the files of the store at one moment, read by a client part by part.

use bytes::Bytes;
use changefeed_core::{Error, ErrorKind};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::open_backups::MOST;
use crate::{
    error::{ApiError, ApiResult},
    state::ServerState,
    wire::http::{Reply, Request},
};

/// The most bytes of one answer.
const PART_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    backup: u64,
    file: String,
    offset: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    backup: u64,
}

/// Takes a snapshot, and says which files it has.
pub(crate) async fn begin(state: &ServerState) -> ApiResult<Reply> {
    let Some(storage) = state.storage.clone() else {
        return Err(ApiError::bad_request("this server does not know the files of its store: copy containers instead"));
    };
    if state.backups.is_full() {
        let message = format!("{MOST} backups are under way: wait until one has ended");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    let files = state.workers.run(move |_: &_| storage.snapshot()).await??;
    let mut number = [0; 8];
    getrandom::fill(&mut number)
        .map_err(|error| Error::new(ErrorKind::Io, "draw the number of a backup").with_source(error.to_string()))?;
    // Readers of JSON keep numbers of 53 bits.
    let number = u64::from_be_bytes(number) >> 11;
    let listed: Vec<_> =
        files.files().into_iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect();
    let shown = json!({ "backup": number, "store": files.store_id(), "files": listed });
    state.backups.add(number, files, &state.clock);
    Ok(Reply::json(StatusCode::OK, &shown))
}

/// A part of a file. With its first part a file is checked, so that no damaged one gets into a backup.
pub(crate) async fn read(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    let Read { backup, file, offset } = parse(&request.body)?;
    let files = state.backups.files(backup, state.clock.wall()).ok_or_else(|| unknown(backup))?;
    let read = move |_: &_| {
        if offset == 0 {
            files.check(&file)?;
        }
        files.read(&file, offset, PART_BYTES)
    };
    let part = state.workers.run(read).await??;
    Ok(Reply::ok(Bytes::from(part)))
}

/// Lets the files of a backup go.
pub(crate) fn end(state: &ServerState, request: &Request<'_>) -> ApiResult<Reply> {
    let End { backup } = parse(&request.body)?;
    match state.backups.remove(backup) {
        true => Ok(Reply::json(StatusCode::OK, &json!({ "backup": backup }))),
        false => Err(unknown(backup)),
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> ApiResult<T> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("the body of this call: {error}")))
}

fn unknown(backup: u64) -> ApiError {
    ApiError::not_found(format!("there is no backup {backup} any more: begin another"))
}
