//! Dead letters in groups, as people read them: by error, and among equal errors by partition key. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use changefeed::DeadLetterDocument;
use changefeed_core::{PartitionKey, PartitionKeyValue, Timestamp};

use crate::{change_line::time, count::count_of};

/// How many errors, keys of an error and letters of a key are listed: each about a screen.
const ERRORS: usize = 20;
const KEYS: usize = 10;
const LETTERS: usize = 3;

/// Dead letters in groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    total: u64,
    errors: BTreeMap<String, Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    total: u64,
    keys: BTreeMap<Option<PartitionKey>, Letters>,
}

/// The letters of one key. There may be many: only those that are listed are kept.
#[derive(Debug, Default)]
struct Letters {
    total: u64,
    first: Vec<String>,
}

impl Groups {
    pub(super) fn add(&mut self, letter: &DeadLetterDocument) {
        let keys = self.errors.entry(one_line(last_error(letter))).or_default();
        let letters = keys.keys.entry(letter.item_key.clone()).or_default();
        for total in [&mut self.total, &mut keys.total, &mut letters.total] {
            *total += 1;
        }
        if letters.first.len() < LETTERS {
            letters.first.push(lines_of(letter));
        }
    }

    /// The most frequent first.
    pub(super) fn text(&self) -> String {
        let mut text = match self.total {
            0 => return "no dead letters\n".to_owned(),
            1 => "1 dead letter\n".to_owned(),
            total => format!("{}, by error and partition key\n", count_of_letters(total)),
        };
        let (errors, more_errors) = largest(&self.errors, |keys| keys.total, ERRORS);
        let mut is_whole = more_errors == 0;
        for (error, keys) in errors {
            text.push_str(&format!("\n{} x {error}\n", keys.total));
            is_whole &= keys.write_to(&mut text);
        }
        if more_errors > 0 {
            text.push_str(&format!("\nand {}\n", count_of(more_errors, "more error")));
        }
        if !is_whole {
            text.push_str("\n--error and --key narrow the list, --json has all of it\n");
        }
        text
    }
}

impl Keys {
    /// Whether nothing was left out.
    fn write_to(&self, text: &mut String) -> bool {
        let (keys, more_keys) = largest(&self.keys, |letters| letters.total, KEYS);
        let mut is_whole = more_keys == 0;
        for (key, letters) in keys {
            let (shown, count) = (shown_key(key.as_ref()), count_of_letters(letters.total));
            text.push_str(&format!("  {shown}: {count}\n{}", letters.first.concat()));
            let more = letters.total - letters.first.len() as u64;
            if more > 0 {
                text.push_str(&format!("    and {more} more\n"));
                is_whole = false;
            }
        }
        if more_keys > 0 {
            text.push_str(&format!("  and {}\n", count_of(more_keys, "more key")));
        }
        is_whole
    }
}

/// The error that the others come from.
pub(super) fn last_error(letter: &DeadLetterDocument) -> &str {
    letter.errors.last().map_or("no error was recorded", String::as_str)
}

pub(super) fn count_of_letters(count: u64) -> String {
    count_of(count, "dead letter")
}

/// The groups with the most letters, and how many others there are.
fn largest<K: Ord, G>(groups: &BTreeMap<K, G>, size: impl Fn(&G) -> u64, most: usize) -> (Vec<(&K, &G)>, u64) {
    let mut found: Vec<(&K, &G)> = groups.iter().collect();
    found.sort_by_key(|(_, group)| Reverse(size(group)));
    let more = found.len().saturating_sub(most) as u64;
    found.truncate(most);
    (found, more)
}

/// A key as `--key` takes it.
fn shown_key(key: Option<&PartitionKey>) -> String {
    match key.map(PartitionKey::values) {
        None => "key unknown".to_owned(),
        // A text that looks like a list or would not fit on its line is shown as a list, whose texts are escaped.
        Some([PartitionKeyValue::String(text)]) if is_plain(text) => format!("key {text}"),
        Some(_) => key.map(|key| format!("key {key}")).unwrap_or_default(),
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('[') && text.trim() == text && !text.chars().any(char::is_control)
}

/// Errors come from outside: one with line breaks would look like several groups.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A dead letter: what it is about, and its id below, which is long.
fn lines_of(letter: &DeadLetterDocument) -> String {
    let DeadLetterDocument { id, item_id, lsn, lease, attempts, failed_at, .. } = letter;
    let attempts = count_of(u64::from(*attempts), "attempt");
    let failed = time(Timestamp::from_millis(*failed_at));
    format!("    item {item_id}: lsn {lsn}, lease {lease}, {attempts}, {failed}\n      {id}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn letter(number: u64, key: Option<&str>, error: &str) -> DeadLetterDocument {
        let mut letter = json!({
            "id": format!("mailer.{number:020}.0123456789abcdef"), "processor": "mailer", "lease": "3",
            "itemId": format!("o-{number}"), "lsn": number, "operation": "write", "changedAt": 1_767_225_600_000_u64,
            "diedAt": 1_767_225_600_000_u64 + number, "instance": "worker-1", "attempts": 5,
            "errors": ["send the mail", error],
        });
        if let Some(key) = key {
            letter["itemKey"] = key.into();
        }
        serde_json::from_value(letter).unwrap()
    }

    fn text(letters: &[DeadLetterDocument]) -> String {
        let mut groups = Groups::default();
        letters.iter().for_each(|letter| groups.add(letter));
        groups.text()
    }

    #[test]
    fn letters_are_grouped_by_error_and_key_the_most_frequent_first() {
        let listed = text(&[
            letter(3, Some(r#"["ada"]"#), "connection refused"),
            letter(17, Some(r#"["bob"]"#), "no such\naddress"),
            letter(18, Some(r#"["bob"]"#), "no such\naddress"),
            letter(19, Some(r#"["tenant",7]"#), "no such\naddress"),
            letter(20, None, "no such\naddress"),
        ]);
        let expected = "\
5 dead letters, by error and partition key

4 x no such address
  key bob: 2 dead letters
    item o-17: lsn 17, lease 3, 5 attempts, 2026-01-01T00:00:00.017Z
      mailer.00000000000000000017.0123456789abcdef
    item o-18: lsn 18, lease 3, 5 attempts, 2026-01-01T00:00:00.018Z
      mailer.00000000000000000018.0123456789abcdef
  key unknown: 1 dead letter
    item o-20: lsn 20, lease 3, 5 attempts, 2026-01-01T00:00:00.020Z
      mailer.00000000000000000020.0123456789abcdef
  key [\"tenant\",7]: 1 dead letter
    item o-19: lsn 19, lease 3, 5 attempts, 2026-01-01T00:00:00.019Z
      mailer.00000000000000000019.0123456789abcdef

1 x connection refused
  key ada: 1 dead letter
    item o-3: lsn 3, lease 3, 5 attempts, 2026-01-01T00:00:00.003Z
      mailer.00000000000000000003.0123456789abcdef
";
        assert_eq!(listed, expected);
        assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    }

    #[test]
    fn a_long_list_is_bounded_and_says_how_to_see_the_rest() {
        let of_a_key = (0..5).map(|number| letter(number, Some(r#"["ada"]"#), "timeout"));
        let keys = (10..22).map(|number| letter(number, Some(&format!("[\"k{number}\"]")), "timeout"));
        let errors = (100..125).map(|number| letter(number, Some(r#"["ada"]"#), &format!("error {number}")));
        let listed = text(&of_a_key.chain(keys).chain(errors).collect::<Vec<_>>());
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(
            lines[..4],
            ["42 dead letters, by error and partition key", "", "17 x timeout", "  key ada: 5 dead letters"]
        );
        assert!(listed.contains("\n    and 2 more\n  key k10: 1 dead letter\n"), "{listed}");
        assert!(listed.contains("\n  and 3 more keys\n\n1 x error 100\n"), "{listed}");
        let end = "\n\nand 6 more errors\n\n--error and --key narrow the list, --json has all of it\n";
        assert!(listed.ends_with(end), "{listed}");
    }

    #[test]
    fn few_letters_need_no_heading() {
        assert_eq!(text(&[]), "no dead letters\n");
        let listed = text(&[letter(1, Some(r#"["[x]"]"#), "timeout")]);
        assert!(listed.starts_with("1 dead letter\n\n1 x timeout\n  key [\"[x]\"]: 1 dead letter\n"), "{listed}");
    }
}
