//! Arrays, sets and objects.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::signature::{Function, MANY, flag, integer, text};
use crate::order::key_of;
use crate::value::Value;

fn list<'a>(a: &[Value<'a>], index: usize) -> Option<Vec<Value<'a>>> {
    a.get(index)?.clone().into_elements()
}

/// Returns `true` if `value` is `wanted`, or has at least its members if both are objects.
fn includes(value: &Value<'_>, wanted: &Value<'_>) -> bool {
    match (value.members(), wanted.members()) {
        (Some(has), Some(wants)) => {
            wants.iter().all(|(name, wanted)| has.iter().any(|(own, value)| own == name && includes(value, wanted)))
        }
        _ => value.same(wanted),
    }
}

fn contains<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let wanted = a.get(1).filter(|wanted| wanted.is_defined())?;
    let partial = flag(a, 2)?;
    let found = list(a, 0)?.iter().any(|v| if partial { includes(v, wanted) } else { v.same(wanted) });
    Some(Value::Bool(found))
}

fn contains_any<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let list = list(a, 0)?;
    Some(Value::Bool(a.iter().skip(1).any(|wanted| list.iter().any(|v| wanted.is_defined() && v.same(wanted)))))
}

fn contains_all<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let list = list(a, 0)?;
    Some(Value::Bool(a.iter().skip(1).all(|wanted| list.iter().any(|v| wanted.is_defined() && v.same(wanted)))))
}

fn slice<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let list = list(a, 0)?;
    let length = i64::try_from(list.len()).ok()?;
    let start = integer(a, 1)?;
    // A negative start counts from the end.
    let start = if start < 0 { (length + start).max(0) } else { start };
    let count = if a.len() > 2 { integer(a, 2)?.max(0) } else { length };
    let (start, count) = (usize::try_from(start).ok()?, usize::try_from(count).ok()?);
    Some(Value::Array(list.into_iter().skip(start).take(count).collect()))
}

fn concat<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let lists: Option<Vec<_>> = (0..a.len()).map(|index| list(a, index)).collect();
    Some(Value::Array(lists?.into_iter().flatten().collect()))
}

/// The different elements of the first list that `keep` wants, given the keys of the second.
fn set<'a>(a: &[Value<'a>], keep: fn(&BTreeSet<Vec<u8>>, &[u8]) -> bool) -> Option<Value<'a>> {
    let other: BTreeSet<_> = list(a, 1)?.iter().map(key_of).collect();
    let mut seen = BTreeSet::new();
    let mut found = list(a, 0)?;
    found.retain(|value| {
        let key = key_of(value);
        keep(&other, &key) && seen.insert(key)
    });
    Some(Value::Array(found))
}

fn union<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let mut seen = BTreeSet::new();
    let mut all = list(a, 0)?;
    all.extend(list(a, 1)?);
    all.retain(|value| seen.insert(key_of(value)));
    Some(Value::Array(all))
}

fn object_to_array<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let key = if a.len() > 1 { text(a, 1)?.to_owned() } else { "k".to_owned() };
    let member = if a.len() > 2 { text(a, 2)?.to_owned() } else { "v".to_owned() };
    let pairs = a.first()?.members()?.into_iter().map(|(name, value)| {
        Value::Object(vec![
            (Cow::Owned(key.clone()), Value::text(name.into_owned())),
            (Cow::Owned(member.clone()), value.owned()),
        ])
    });
    Some(Value::Array(pairs.collect()))
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("ARRAY_CONTAINS", 2, 3, contains),
    Function::new("ARRAY_CONTAINS_ANY", 2, MANY, contains_any),
    Function::new("ARRAY_CONTAINS_ALL", 2, MANY, contains_all),
    Function::new("ARRAY_LENGTH", 1, 1, |a, _| Some(Value::number(list(a, 0)?.len() as f64))),
    Function::new("ARRAY_SLICE", 2, 3, slice),
    Function::new("ARRAY_CONCAT", 2, MANY, concat),
    Function::new("SetIntersect", 2, 2, |a, _| set(a, |other, key| other.contains(key))),
    Function::new("SetDifference", 2, 2, |a, _| set(a, |other, key| !other.contains(key))),
    Function::new("SetUnion", 2, 2, union),
    Function::new("ObjectToArray", 1, 3, object_to_array),
];
