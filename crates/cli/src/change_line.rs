//! A change as a line of text, for people or as JSON.

use std::time::SystemTime;

use changefeed::{ChangeInfo, RawChanges};
use changefeed_core::{Operation, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::terminal;

/// So many characters of an item are shown to people who read them in a file or through a pipe.
const SHOWN_OF_AN_ITEM: usize = 200;

/// On a terminal a change takes one line. If so many characters of the item do not fit, the date is left out.
const LEAST_OF_AN_ITEM: usize = 20;

/// How changes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One line of JSON each.
    Json,
    /// One line for people each, no longer than the terminal is wide if there is one; a long item is cut.
    Plain { columns: Option<usize> },
}

impl Form {
    /// What `--json` says, on whatever stdout is.
    pub(crate) fn on_stdout(json: bool) -> Self {
        if json {
            return Self::Json;
        }
        Self::Plain { columns: terminal::columns() }
    }
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
        Form::Plain { columns } => {
            let operation = format!("{:?}", change.operation).to_lowercase();
            let begin = |at: &str| format!("{at} {operation} {} lsn {} ", change.id, change.lsn);
            let item = change.current.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let Some(columns) = columns else {
                text.push_str(&begin(&timestamp));
                text.push_str(&cut(&item, SHOWN_OF_AN_ITEM));
                text.push('\n');
                return Ok(());
            };
            let mut whole = begin(&timestamp);
            if whole.chars().count() + LEAST_OF_AN_ITEM > columns {
                // On a narrow terminal the time of day has to do.
                whole = begin(timestamp.split_once('T').map_or(&*timestamp, |(_, time)| time));
            }
            whole.push_str(&item);
            text.push_str(&cut(&whole, columns));
        }
    }
    text.push('\n');
    Ok(())
}

/// A text of so many characters at most; one that was longer ends with dots.
fn cut(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

/// A time in UTC, to the millisecond.
pub(crate) fn time(at: Timestamp) -> String {
    let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    use changefeed_core::{Bytes, Change, ItemId, Lsn};

    use super::*;

    #[test]
    fn a_change_takes_one_line_of_a_terminal_of_any_width() {
        let body = format!("{{\"id\":\"o-1\",\"padding\":\"{}\"}}", "ä".repeat(500));
        let change = Change {
            id: ItemId::new("o-1").unwrap(),
            rid: None,
            lsn: Lsn::new(7),
            timestamp: Timestamp::from_millis(1_767_225_600_017),
            operation: Operation::Write,
            current: Some(Bytes::from(body)),
            previous: None,
            previous_lsn: None,
        };
        let changes = RawChanges::from(vec![change]);
        let line = |columns| lines(&changes, Form::Plain { columns }, None).unwrap();
        let begin = "2026-01-01T00:00:00.017Z write o-1 lsn 7 ";
        assert_eq!(line(Some(80)), format!("{begin}{{\"id\":\"o-1\",\"padding\":\"{}...\n", "ä".repeat(13)));
        assert_eq!(line(Some(80)).chars().count(), 81);
        let narrow = line(Some(40));
        assert_eq!(narrow, "00:00:00.017Z write o-1 lsn 7 {\"id\":\"...\n", "the item does not vanish");
        assert_eq!(line(Some(20)), "00:00:00.017Z wri...\n");
        assert_eq!(line(None).chars().count(), begin.len() + SHOWN_OF_AN_ITEM + 1);
    }
}
