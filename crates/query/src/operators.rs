//! Operators on values. None fails: operands of a wrong type make the result undefined.

use std::cmp::Ordering;

use crate::ast::{Binary, Unary};
use crate::functions::LONGEST;
use crate::value::Value;

/// AND and OR with three values: `decisive` decides alone, otherwise anything but a boolean makes it undefined.
pub(crate) fn logic<'a>(values: impl Iterator<Item = Value<'a>>, decisive: bool) -> Value<'a> {
    let mut known = true;
    for value in values {
        match value.as_bool() {
            Some(b) if b == decisive => return Value::Bool(decisive),
            Some(_) => {}
            None => known = false,
        }
    }
    if known { Value::Bool(!decisive) } else { Value::Undefined }
}

pub(crate) fn negate_if(negated: bool, value: Value<'_>) -> Value<'_> {
    if negated { unary(Unary::Not, value) } else { value }
}

pub(crate) fn unary(operator: Unary, value: Value<'_>) -> Value<'_> {
    match operator {
        Unary::Not => value.as_bool().map_or(Value::Undefined, |b| Value::Bool(!b)),
        Unary::Minus => value.as_number().map_or(Value::Undefined, |n| Value::number(-n)),
        Unary::Plus => value.as_number().map_or(Value::Undefined, Value::number),
        Unary::BitNot => value.as_integer().map_or(Value::Undefined, |n| Value::number(!n as f64)),
    }
}

/// Equality is defined between values of different types (they differ), but not with undefined.
pub(crate) fn equal<'a>(a: &Value<'_>, b: &Value<'_>) -> Value<'a> {
    if a.is_defined() && b.is_defined() { Value::Bool(a.same(b)) } else { Value::Undefined }
}

pub(crate) fn binary<'a>(operator: Binary, a: &Value<'a>, b: &Value<'a>) -> Value<'a> {
    match operator {
        Binary::Equal => equal(a, b),
        Binary::NotEqual => unary(Unary::Not, equal(a, b)),
        Binary::Less => ordered(a, b, Ordering::is_lt),
        Binary::LessEqual => ordered(a, b, Ordering::is_le),
        Binary::Greater => ordered(a, b, Ordering::is_gt),
        Binary::GreaterEqual => ordered(a, b, Ordering::is_ge),
        Binary::Concat => match (a.as_text(), b.as_text()) {
            (Some(a), Some(b)) if a.len() + b.len() <= LONGEST => Value::text([a, b].concat()),
            _ => Value::Undefined,
        },
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder => {
            match (a.as_number(), b.as_number()) {
                (Some(a), Some(b)) => Value::number(arithmetic(operator, a, b)),
                _ => Value::Undefined,
            }
        }
        _ => match (a.as_integer(), b.as_integer()) {
            (Some(a), Some(b)) => bits(operator, a, b).map_or(Value::Undefined, |n| Value::number(n as f64)),
            _ => Value::Undefined,
        },
    }
}

fn ordered<'a>(a: &Value<'_>, b: &Value<'_>, holds: fn(Ordering) -> bool) -> Value<'a> {
    a.compare(b).map_or(Value::Undefined, |order| Value::Bool(holds(order)))
}

fn arithmetic(operator: Binary, a: f64, b: f64) -> f64 {
    match operator {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        _ => a % b,
    }
}

fn bits(operator: Binary, a: i64, b: i64) -> Option<i64> {
    match operator {
        Binary::BitAnd => Some(a & b),
        Binary::BitOr => Some(a | b),
        Binary::BitXor => Some(a ^ b),
        Binary::ShiftLeft => u32::try_from(b).ok().and_then(|by| a.checked_shl(by)),
        _ => u32::try_from(b).ok().and_then(|by| a.checked_shr(by)),
    }
}
