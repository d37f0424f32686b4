//! Strings. Positions and lengths count characters.

use super::signature::{Function, LONGEST, MANY, flag, integer, number, text};
use crate::json;
use crate::value::Value;

/// REPLICATE makes at most this many characters, as in Cosmos DB.
const REPLICATED: usize = 10_000;

fn bounded<'a>(value: String) -> Option<Value<'a>> {
    (value.len() <= LONGEST).then(|| Value::text(value))
}

fn compare<'a>(a: &[Value<'_>], holds: fn(&str, &str) -> bool) -> Option<Value<'a>> {
    let (subject, wanted) = (text(a, 0)?, text(a, 1)?);
    Some(Value::Bool(if flag(a, 2)? {
        holds(&subject.to_lowercase(), &wanted.to_lowercase())
    } else {
        holds(subject, wanted)
    }))
}

fn trim<'a>(a: &[Value<'_>], start: bool, end: bool) -> Option<Value<'a>> {
    let mut subject = text(a, 0)?;
    let cut = |c: char| matches!(a.get(1), Some(Value::Text(set, _)) if set.contains(c));
    let blank = a.len() == 1;
    if !blank {
        text(a, 1)?;
    }
    if start {
        subject = subject.trim_start_matches(|c: char| if blank { c.is_whitespace() } else { cut(c) });
    }
    if end {
        subject = subject.trim_end_matches(|c: char| if blank { c.is_whitespace() } else { cut(c) });
    }
    Some(Value::text(subject.to_owned()))
}

/// A count argument: fractions are cut, negative numbers are none.
fn size(a: &[Value<'_>], index: usize) -> Option<usize> {
    Some(number(a, index)?.max(0.0) as usize)
}

fn substring<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let start = number(a, 1)?;
    let skipped = start.max(0.0) as usize;
    // A start before the string uses up some of the length.
    let length = (number(a, 2)? + start.min(0.0)).max(0.0) as usize;
    Some(Value::text(text(a, 0)?.chars().skip(skipped).take(length).collect::<String>()))
}

fn left<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    Some(Value::text(text(a, 0)?.chars().take(size(a, 1)?).collect::<String>()))
}

fn right<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let subject = text(a, 0)?;
    let skipped = subject.chars().count().saturating_sub(size(a, 1)?);
    Some(Value::text(subject.chars().skip(skipped).collect::<String>()))
}

fn index_of<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let (subject, wanted) = (text(a, 0)?, text(a, 1)?);
    let start = if a.len() > 2 { size(a, 2)? } else { 0 };
    let Some((offset, _)) = subject.char_indices().map(|(i, c)| (i, Some(c))).chain([(subject.len(), None)]).nth(start)
    else {
        return Some(Value::number(-1.0));
    };
    Some(match subject[offset..].find(wanted) {
        Some(at) => Value::number((start + subject[offset..offset + at].chars().count()) as f64),
        None => Value::number(-1.0),
    })
}

fn replace<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let (subject, old, new) = (text(a, 0)?, text(a, 1)?, text(a, 2)?);
    if old.is_empty() {
        return Some(Value::text(subject.to_owned()));
    }
    let grown = subject.matches(old).count().checked_mul(new.len())?;
    if grown > LONGEST {
        return None;
    }
    bounded(subject.replace(old, new))
}

fn replicate<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let (subject, times) = (text(a, 0)?, integer(a, 1)?);
    let times = usize::try_from(times).ok()?;
    (subject.chars().count().checked_mul(times)? <= REPLICATED).then(|| Value::text(subject.repeat(times)))
}

fn concat<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let mut joined = String::new();
    for index in 0..a.len() {
        joined.push_str(text(a, index)?);
    }
    bounded(joined)
}

fn split<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let (subject, delimiter) = (text(a, 0)?, text(a, 1)?);
    if delimiter.is_empty() {
        return Some(Value::Array(vec![Value::text(subject.to_owned())]));
    }
    Some(Value::Array(subject.split(delimiter).map(|part| Value::text(part.to_owned())).collect()))
}

fn join<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let list = a.first()?.elements()?;
    let parts: Option<Vec<&str>> = list.iter().map(Value::as_text).collect();
    bounded(parts?.join(text(a, 1)?))
}

fn to_string<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    match a.first()? {
        Value::Undefined => None,
        Value::Text(text, _) => Some(Value::text(text.clone().into_owned())),
        // A number has one spelling, whatever the document wrote.
        Value::Number(n, _) => Some(Value::text(Value::number(*n).json())),
        other => Some(Value::text(other.json())),
    }
}

/// Reads the JSON in a string if it is of the wanted kind.
fn parse<'a>(a: &[Value<'_>], wanted: fn(&Value<'_>) -> bool) -> Option<Value<'a>> {
    let parsed = json::check(text(a, 0)?.trim().as_bytes()).ok()?;
    let value = Value::raw(parsed);
    wanted(&value).then(|| value.owned())
}

fn regex_match<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let modifiers = if a.len() > 2 { text(a, 2)? } else { "" };
    crate::regex::matches(text(a, 0)?, text(a, 1)?, modifiers).map(Value::Bool)
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("STARTSWITH", 2, 3, |a, _| compare(a, |s, w| s.starts_with(w))),
    Function::new("ENDSWITH", 2, 3, |a, _| compare(a, |s, w| s.ends_with(w))),
    Function::new("CONTAINS", 2, 3, |a, _| compare(a, |s, w| s.contains(w))),
    Function::new("StringEquals", 2, 3, |a, _| compare(a, |s, w| s == w)),
    Function::new("RegexMatch", 2, 3, regex_match),
    Function::new("CONCAT", 2, MANY, concat),
    Function::new("LENGTH", 1, 1, |a, _| Some(Value::number(text(a, 0)?.chars().count() as f64))),
    Function::new("LOWER", 1, 2, |a, _| bounded(text(a, 0)?.to_lowercase())),
    Function::new("UPPER", 1, 2, |a, _| bounded(text(a, 0)?.to_uppercase())),
    Function::new("LTRIM", 1, 2, |a, _| trim(a, true, false)),
    Function::new("RTRIM", 1, 2, |a, _| trim(a, false, true)),
    Function::new("TRIM", 1, 2, |a, _| trim(a, true, true)),
    Function::new("LEFT", 2, 2, left),
    Function::new("RIGHT", 2, 2, right),
    Function::new("SUBSTRING", 3, 3, substring),
    Function::new("INDEX_OF", 2, 3, index_of),
    Function::new("REPLACE", 3, 3, replace),
    Function::new("REVERSE", 1, 1, |a, _| Some(Value::text(text(a, 0)?.chars().rev().collect::<String>()))),
    Function::new("REPLICATE", 2, 2, replicate),
    Function::new("StringSplit", 2, 2, split),
    Function::new("StringJoin", 2, 2, join),
    Function::new("ToString", 1, 1, to_string),
    Function::new("StringToNumber", 1, 1, |a, _| parse(a, |v| v.as_number().is_some_and(f64::is_finite))),
    Function::new("StringToBoolean", 1, 1, |a, _| parse(a, |v| v.as_bool().is_some())),
    Function::new("StringToNull", 1, 1, |a, _| parse(a, |v| matches!(v, Value::Null))),
    Function::new("StringToArray", 1, 1, |a, _| parse(a, |v| matches!(v, Value::RawArray(_)))),
    Function::new("StringToObject", 1, 1, |a, _| parse(a, |v| matches!(v, Value::RawObject(_)))),
];
