//! A change as a line of text, for people or as JSON.

use std::{fmt::Write as _, time::SystemTime};

use changefeed::{ChangeInfo, RawChanges};
use changefeed_core::{Operation, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

/// So many characters of an item are shown to people.
const SHOWN_OF_AN_ITEM: usize = 200;

/// How changes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One line of JSON each.
    Json,
    /// One line for people each; a long item is cut.
    Plain,
}

/// The members of a line, in this order.
#[derive(Serialize)]
struct Line<'a> {
    change_id: String,
    id: &'a str,
    lsn: u64,
    timestamp: String,
    operation: Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<&'a str>,
    /// Null after a delete.
    item: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<&'a RawValue>,
}

/// A line for each change.
pub(crate) fn lines(changes: &RawChanges, form: Form, lease: Option<&str>) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for (_, info) in changes.with_info() {
        line(&mut text, info, form, lease)?;
    }
    Ok(text)
}

fn line(text: &mut String, info: ChangeInfo<'_>, form: Form, lease: Option<&str>) -> Result<(), serde_json::Error> {
    let change = info.change();
    let timestamp = time(change.timestamp);
    match form {
        Form::Json => {
            let line = Line {
                change_id: info.change_id(),
                id: change.id.as_str(),
                lsn: change.lsn.get(),
                timestamp,
                operation: change.operation,
                lease,
                item: change.current.as_deref().map(serde_json::from_slice).transpose()?,
                previous: change.previous.as_deref().map(serde_json::from_slice).transpose()?,
            };
            text.push_str(&serde_json::to_string(&line)?);
        }
        Form::Plain => {
            let item = change.current.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let cut = item.char_indices().nth(SHOWN_OF_AN_ITEM).map_or(item.len(), |(at, _)| at);
            let dots = if cut < item.len() { "..." } else { "" };
            let shown = item.get(..cut).unwrap_or_default();
            let operation = format!("{:?}", change.operation).to_lowercase();
            // Writing to a text does not fail.
            let _ = write!(text, "{timestamp} {operation} {} lsn {} {shown}{dots}", change.id, change.lsn);
        }
    }
    text.push('\n');
    Ok(())
}

/// A time in UTC, to the millisecond.
pub(crate) fn time(at: Timestamp) -> String {
    let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(at).to_string()
}
