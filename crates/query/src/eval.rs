//! What an expression is worth for one row. Never fails: what makes no sense is undefined.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::ast::{Binary, Expr, Unary};
use crate::context::Context;
use crate::functions::LONGEST;
use crate::subquery;
use crate::value::Value;

/// The names an expression sees, innermost first.
pub(crate) enum Env<'e, 'a> {
    Empty,
    Alias { name: &'a str, value: Value<'a>, outer: &'e Env<'e, 'a> },
    Group { keys: &'e [Value<'static>], results: &'e [Value<'static>], outer: &'e Env<'e, 'a> },
}

impl<'a> Env<'_, 'a> {
    pub(crate) fn alias(&self, wanted: &str) -> Value<'a> {
        match self {
            Self::Empty => Value::Undefined,
            Self::Alias { name, value, .. } if *name == wanted => value.clone(),
            Self::Alias { outer, .. } | Self::Group { outer, .. } => outer.alias(wanted),
        }
    }

    fn result(&self, slot: usize) -> Value<'a> {
        match self {
            Self::Empty => Value::Undefined,
            Self::Group { results, .. } => results.get(slot).cloned().unwrap_or(Value::Undefined),
            Self::Alias { outer, .. } => outer.result(slot),
        }
    }

    fn key(&self, index: usize) -> Value<'a> {
        match self {
            Self::Empty => Value::Undefined,
            Self::Group { keys, .. } => keys.get(index).cloned().unwrap_or(Value::Undefined),
            Self::Alias { outer, .. } => outer.key(index),
        }
    }
}

/// Evaluates `expr`.
pub(crate) fn eval<'a>(expr: &'a Expr, env: &Env<'_, 'a>, cx: &Context<'a>) -> Value<'a> {
    if !cx.work(1) {
        return Value::Undefined;
    }
    match expr {
        Expr::Const(value) => value.borrowed(),
        Expr::Parameter(..) => Value::Undefined,
        // An alias can be used many times: without a price, values made of values would grow without bound.
        Expr::Name(name, _) => Some(env.alias(name)).filter(|v| cx.spend(v.weight())).unwrap_or(Value::Undefined),
        Expr::Root(_) => cx.item.clone(),
        Expr::Member(base, key) => member(eval(base, env, cx), &eval(key, env, cx), cx),
        Expr::Unary(operator, operand) => unary(*operator, eval(operand, env, cx)),
        Expr::Binary(operator, a, b) => cx.paid(binary(*operator, &eval(a, env, cx), &eval(b, env, cx))),
        Expr::And(list) => logic(list.iter().map(|e| eval(e, env, cx)), false),
        Expr::Or(list) => logic(list.iter().map(|e| eval(e, env, cx)), true),
        Expr::Conditional(test, yes, no) => {
            if eval(test, env, cx).is_true() {
                eval(yes, env, cx)
            } else {
                eval(no, env, cx)
            }
        }
        Expr::Coalesce(a, b) => match eval(a, env, cx) {
            Value::Undefined => eval(b, env, cx),
            value => value,
        },
        Expr::In(subject, list, negated) => {
            let subject = eval(subject, env, cx);
            let any = logic(list.iter().map(|e| equal(&subject, &eval(e, env, cx))), true);
            negate_if(*negated, any)
        }
        Expr::Between(subject, low, high, negated) => {
            let subject = eval(subject, env, cx);
            let above = binary(Binary::GreaterEqual, &subject, &eval(low, env, cx));
            let below = binary(Binary::LessEqual, &subject, &eval(high, env, cx));
            negate_if(*negated, logic([above, below].into_iter(), false))
        }
        Expr::Like(subject, pattern, escape, negated) => {
            let (subject, pattern) = (eval(subject, env, cx), eval(pattern, env, cx));
            let matched = match (subject.as_text(), pattern.as_text()) {
                (Some(text), Some(pattern)) => Value::Bool(crate::like::matches(text, pattern, *escape)),
                _ => Value::Undefined,
            };
            negate_if(*negated, matched)
        }
        Expr::Call(function, list) => {
            let arguments: Vec<_> = list.iter().map(|e| cx.fit(eval(e, env, cx))).collect();
            if !cx.work(arguments.iter().map(|argument| argument.text_bytes() / 256).sum()) {
                return Value::Undefined;
            }
            cx.paid((function.call)(&arguments, cx.now).unwrap_or(Value::Undefined))
        }
        Expr::Aggregate(_, _, slot, _) => env.result(*slot),
        Expr::GroupKey(index) => env.key(*index),
        Expr::Array(list) => Value::Array(list.iter().map(|e| eval(e, env, cx)).filter(Value::is_defined).collect()),
        Expr::Object(list) => Value::Object(
            list.iter()
                .map(|(name, e)| (Cow::Borrowed(name.as_str()), eval(e, env, cx)))
                .filter(|(_, value)| value.is_defined())
                .collect(),
        ),
        Expr::Exists(select) => Value::Bool(!subquery::rows(select, env, cx, 1).is_empty()),
        Expr::ArrayOf(select) => Value::Array(subquery::rows(select, env, cx, usize::MAX)),
        Expr::Scalar(select) => {
            let mut rows = subquery::rows(select, env, cx, 2);
            if rows.len() == 1 { rows.remove(0) } else { Value::Undefined }
        }
    }
}

/// `base[key]`. Text with escapes is a copy, which has its price.
fn member<'a>(base: Value<'a>, key: &Value<'_>, cx: &Context<'a>) -> Value<'a> {
    match (&base, key) {
        (Value::RawObject(Cow::Borrowed(text)), Value::Text(name, _)) => cx.paid(cx.member(text, name)),
        (Value::RawObject(Cow::Owned(text)) | Value::RawArray(Cow::Owned(text)), _) => {
            if cx.spend_bytes(text.len()) {
                cx.paid(base.index(key))
            } else {
                Value::Undefined
            }
        }
        (Value::RawArray(Cow::Borrowed(text)), _) => {
            if cx.work(text.len() / 256) {
                cx.paid(base.index(key))
            } else {
                Value::Undefined
            }
        }
        _ => base.index(key),
    }
}

/// AND and OR with three values: `decisive` decides alone, otherwise anything but a boolean makes it undefined.
fn logic<'a>(values: impl Iterator<Item = Value<'a>>, decisive: bool) -> Value<'a> {
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

fn negate_if(negated: bool, value: Value<'_>) -> Value<'_> {
    if negated { unary(Unary::Not, value) } else { value }
}

fn unary(operator: Unary, value: Value<'_>) -> Value<'_> {
    match operator {
        Unary::Not => value.as_bool().map_or(Value::Undefined, |b| Value::Bool(!b)),
        Unary::Minus => value.as_number().map_or(Value::Undefined, |n| Value::number(-n)),
        Unary::Plus => value.as_number().map_or(Value::Undefined, Value::number),
        Unary::BitNot => value.as_integer().map_or(Value::Undefined, |n| Value::number(!n as f64)),
    }
}

/// Equality is defined between values of different types (they differ), but not with undefined.
fn equal<'a>(a: &Value<'_>, b: &Value<'_>) -> Value<'a> {
    if a.is_defined() && b.is_defined() { Value::Bool(a.same(b)) } else { Value::Undefined }
}

fn binary<'a>(operator: Binary, a: &Value<'a>, b: &Value<'a>) -> Value<'a> {
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
