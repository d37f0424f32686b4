//! Evaluation of expressions and of the queries inside them, for one item. Never fails: operations without a result are
//! undefined.
//! Both are in one module since each calls the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::aggregate::Accumulator;
use crate::ast::{Binary, Expr, Projection, Select, Source};
use crate::context::Context;
use crate::operators::{binary, equal, logic, negate_if, unary};
use crate::order;
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
        Expr::Exists(select) => Value::Bool(!rows(select, env, cx, 1).is_empty()),
        Expr::ArrayOf(select) => Value::Array(rows(select, env, cx, usize::MAX)),
        Expr::Scalar(select) => {
            let mut found = rows(select, env, cx, 2);
            if found.len() == 1 { found.remove(0) } else { Value::Undefined }
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

/// Calls `visit` for each combination of inputs that passes the filter, until it returns `false`.
pub(crate) fn each<'a>(
    select: &'a Select,
    env: &Env<'_, 'a>,
    cx: &Context<'a>,
    visit: &mut dyn FnMut(&Env<'_, 'a>) -> bool,
) -> bool {
    combine(select, 0, env, cx, visit)
}

fn combine<'a>(
    select: &'a Select,
    input: usize,
    env: &Env<'_, 'a>,
    cx: &Context<'a>,
    visit: &mut dyn FnMut(&Env<'_, 'a>) -> bool,
) -> bool {
    let Some(item) = select.from.get(input) else {
        let passes = select.filter.as_ref().is_none_or(|filter| eval(filter, env, cx).is_true());
        return cx.spend(1) && (!passes || visit(env) && cx.halted().is_none());
    };
    let values = match &item.source {
        Source::Path(path) => vec![eval(path, env, cx)],
        Source::Subquery(inner) => rows(inner, env, cx, usize::MAX),
    };
    for value in values {
        let parts = match item.iterate {
            true if cx.work(value.text_bytes() / 64) && cx.spend_bytes(value.owned_bytes()) => {
                value.into_elements().unwrap_or_default()
            }
            true => return false,
            false => vec![value],
        };
        for value in parts.into_iter().filter(Value::is_defined) {
            let inner = Env::Alias { name: &item.alias, value, outer: env };
            if !combine(select, input + 1, &inner, cx, visit) {
                return false;
            }
        }
    }
    true
}

/// Returns the projection of one row; undefined means no row.
pub(crate) fn project<'a>(select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>) -> Value<'a> {
    cx.fit(match &select.projection {
        Projection::Star => select.from.first().map_or(Value::Undefined, |item| env.alias(&item.alias)),
        Projection::Value(expr) => eval(expr, env, cx),
        Projection::List(items) => Value::Object(
            items
                .iter()
                .map(|item| (Cow::Borrowed(item.name.as_str()), eval(&item.expr, env, cx)))
                .filter(|(_, value)| value.is_defined())
                .collect(),
        ),
    })
}

/// One group's keys and aggregates.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) keys: Vec<Value<'static>>,
    accumulators: Vec<Accumulator>,
}

impl Group {
    pub(crate) fn new(select: &Select, keys: Vec<Value<'static>>) -> Self {
        Self { keys, accumulators: select.aggregates.iter().map(|(kind, _)| Accumulator::new(*kind)).collect() }
    }

    pub(crate) fn add<'a>(&mut self, select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>) {
        for (accumulator, (_, argument)) in self.accumulators.iter_mut().zip(&select.aggregates) {
            accumulator.add(&eval(argument, env, cx));
        }
    }

    /// The bytes of the group's values.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.keys.iter().map(Value::text_bytes).sum::<usize>();
        keys + self.accumulators.iter().map(Accumulator::bytes).sum::<usize>()
    }

    /// The row of this group.
    pub(crate) fn project<'a>(&self, select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>) -> Value<'a> {
        let results: Vec<_> = self.accumulators.iter().map(Accumulator::result).collect();
        project(select, &Env::Group { keys: &self.keys, results: &results, outer: env }, cx)
    }
}

/// The values of the GROUP BY clause for one row, and their key.
pub(crate) fn group_key<'a>(select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>) -> (Vec<Value<'a>>, Vec<u8>) {
    let values: Vec<_> = select.group_by.iter().map(|expr| cx.fit(eval(expr, env, cx))).collect();
    let mut key = Vec::new();
    for value in &values {
        order::encode(value, &mut key);
    }
    cx.spend_bytes(key.len());
    (values, key)
}

/// The key of one row in the order of the ORDER BY clause.
pub(crate) fn sort_key<'a>(select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>) -> Vec<u8> {
    let mut key = Vec::new();
    for item in &select.order_by {
        let start = key.len();
        order::encode(&cx.fit(eval(&item.expr, env, cx)), &mut key);
        if item.descending {
            key[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
    cx.spend_bytes(key.len());
    key
}

/// The rows of a subquery; at most `wanted`, if the caller needs no more.
pub(crate) fn rows<'a>(select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>, wanted: usize) -> Vec<Value<'a>> {
    let (skip, take) = match (&select.top, &select.offset_limit) {
        (Some(top), _) => (0, top.number()),
        (_, Some((offset, limit))) => (offset.number(), limit.number()),
        _ => (0, u64::MAX),
    };
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let take = usize::try_from(take).unwrap_or(usize::MAX).min(wanted);
    let found = if select.is_grouped() { grouped(select, env, cx) } else { plain(select, env, cx, skip, take) };
    found.into_iter().skip(skip).take(take).collect()
}

fn grouped<'a>(select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>) -> Vec<Value<'a>> {
    let mut groups: BTreeMap<Vec<u8>, Group> = BTreeMap::new();
    if select.group_by.is_empty() {
        groups.insert(Vec::new(), Group::new(select, Vec::new()));
    }
    each(select, env, cx, &mut |row| {
        let (values, key) = group_key(select, row, cx);
        groups
            .entry(key)
            .or_insert_with(|| Group::new(select, values.iter().map(Value::owned).collect()))
            .add(select, row, cx);
        true
    });
    groups.values().map(|group| group.project(select, env, cx)).filter(Value::is_defined).collect()
}

fn plain<'a>(select: &'a Select, env: &Env<'_, 'a>, cx: &Context<'a>, skip: usize, take: usize) -> Vec<Value<'a>> {
    let mut seen = BTreeSet::new();
    let mut found: Vec<(Vec<u8>, Value<'a>)> = Vec::new();
    let enough = if select.order_by.is_empty() { skip.saturating_add(take) } else { usize::MAX };
    each(select, env, cx, &mut |row| {
        let value = project(select, row, cx);
        if value.is_defined() && (!select.distinct || seen.insert(distinct_key(&value, cx))) {
            found.push((sort_key(select, row, cx), value));
        }
        found.len() < enough
    });
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.into_iter().map(|(_, value)| value).collect()
}

/// The key by which two rows are the same.
pub(crate) fn distinct_key<'a>(value: &Value<'a>, cx: &Context<'a>) -> Vec<u8> {
    let key = order::key_of(value);
    cx.spend_bytes(key.len());
    key
}
