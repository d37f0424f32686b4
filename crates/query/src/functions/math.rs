//! Numbers to numbers.

use super::signature::{Function, integer, number};
use crate::value::Value;

fn one<'a>(arguments: &[Value<'_>], f: fn(f64) -> f64) -> Option<Value<'a>> {
    number(arguments, 0).map(|n| Value::number(f(n)))
}

fn log<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let n = number(a, 0)?;
    match a.get(1) {
        None => Some(Value::number(n.ln())),
        Some(base) => Some(Value::number(n.ln() / base.as_number()?.ln())),
    }
}

/// The largest multiple of the size that is not greater.
fn bin<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let size = if a.len() > 1 { number(a, 1)? } else { 1.0 };
    Some(Value::number((number(a, 0)? / size).floor() * size))
}

fn int<'a>(a: &[Value<'_>], f: fn(i64, i64) -> Option<i64>) -> Option<Value<'a>> {
    Some(Value::number(f(integer(a, 0)?, integer(a, 1)?)? as f64))
}

fn shift(by: i64) -> Option<u32> {
    u32::try_from(by).ok().filter(|by| *by < 64)
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("ABS", 1, 1, |a, _| one(a, f64::abs)),
    Function::new("CEILING", 1, 1, |a, _| one(a, f64::ceil)),
    Function::new("FLOOR", 1, 1, |a, _| one(a, f64::floor)),
    Function::new("ROUND", 1, 1, |a, _| one(a, f64::round)),
    Function::new("TRUNC", 1, 1, |a, _| one(a, f64::trunc)),
    Function::new("SIGN", 1, 1, |a, _| one(a, |n| if n == 0.0 { 0.0 } else { n.signum() })),
    Function::new("SQRT", 1, 1, |a, _| one(a, f64::sqrt)),
    Function::new("SQUARE", 1, 1, |a, _| one(a, |n| n * n)),
    Function::new("POWER", 2, 2, |a, _| Some(Value::number(number(a, 0)?.powf(number(a, 1)?)))),
    Function::new("EXP", 1, 1, |a, _| one(a, f64::exp)),
    Function::new("LOG", 1, 2, log),
    Function::new("LOG10", 1, 1, |a, _| one(a, f64::log10)),
    Function::new("SIN", 1, 1, |a, _| one(a, f64::sin)),
    Function::new("COS", 1, 1, |a, _| one(a, f64::cos)),
    Function::new("TAN", 1, 1, |a, _| one(a, f64::tan)),
    Function::new("COT", 1, 1, |a, _| one(a, |n| 1.0 / n.tan())),
    Function::new("ASIN", 1, 1, |a, _| one(a, f64::asin)),
    Function::new("ACOS", 1, 1, |a, _| one(a, f64::acos)),
    Function::new("ATAN", 1, 1, |a, _| one(a, f64::atan)),
    Function::new("ATN2", 2, 2, |a, _| Some(Value::number(number(a, 0)?.atan2(number(a, 1)?)))),
    Function::new("DEGREES", 1, 1, |a, _| one(a, f64::to_degrees)),
    Function::new("RADIANS", 1, 1, |a, _| one(a, f64::to_radians)),
    Function::new("PI", 0, 0, |_, _| Some(Value::number(std::f64::consts::PI))),
    Function::new("NumberBin", 1, 2, bin),
    Function::new("IntAdd", 2, 2, |a, _| int(a, i64::checked_add)),
    Function::new("IntSub", 2, 2, |a, _| int(a, i64::checked_sub)),
    Function::new("IntMul", 2, 2, |a, _| int(a, i64::checked_mul)),
    Function::new("IntDiv", 2, 2, |a, _| int(a, i64::checked_div)),
    Function::new("IntMod", 2, 2, |a, _| int(a, i64::checked_rem)),
    Function::new("IntBitAnd", 2, 2, |a, _| int(a, |x, y| Some(x & y))),
    Function::new("IntBitOr", 2, 2, |a, _| int(a, |x, y| Some(x | y))),
    Function::new("IntBitXor", 2, 2, |a, _| int(a, |x, y| Some(x ^ y))),
    Function::new("IntBitNot", 1, 1, |a, _| Some(Value::number(!integer(a, 0)? as f64))),
    Function::new("IntBitLeftShift", 2, 2, |a, _| int(a, |x, by| Some(x << shift(by)?))),
    Function::new("IntBitRightShift", 2, 2, |a, _| int(a, |x, by| Some(x >> shift(by)?))),
];
