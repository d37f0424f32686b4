//! Type tests and choices between values.

use super::signature::{Function, MANY};
use crate::value::{Type, Value};

fn test<'a>(arguments: &[Value<'_>], holds: fn(&Value<'_>) -> bool) -> Option<Value<'a>> {
    arguments.first().map(|value| Value::Bool(holds(value)))
}

fn choose<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let index = usize::try_from(a.first()?.as_integer()?).ok().filter(|index| *index > 0)?;
    a.get(index).cloned()
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("IS_DEFINED", 1, 1, |a, _| test(a, |v| v.is_defined())),
    Function::new("IS_NULL", 1, 1, |a, _| test(a, |v| v.kind() == Type::Null)),
    Function::new("IS_BOOL", 1, 1, |a, _| test(a, |v| v.kind() == Type::Bool)),
    // SDKs use it to resume a query with ORDER BY.
    Function::new("IS_BOOLEAN", 1, 1, |a, _| test(a, |v| v.kind() == Type::Bool)),
    Function::new("IS_NUMBER", 1, 1, |a, _| test(a, |v| v.kind() == Type::Number)),
    Function::new("IS_STRING", 1, 1, |a, _| test(a, |v| v.kind() == Type::Text)),
    Function::new("IS_ARRAY", 1, 1, |a, _| test(a, |v| v.kind() == Type::Array)),
    Function::new("IS_OBJECT", 1, 1, |a, _| test(a, |v| v.kind() == Type::Object)),
    Function::new("IS_PRIMITIVE", 1, 1, |a, _| test(a, |v| v.is_defined() && v.kind() < Type::Array)),
    Function::new("IS_INTEGER", 1, 1, |a, _| test(a, |v| v.as_integer().is_some())),
    Function::new("IS_FINITE_NUMBER", 1, 1, |a, _| test(a, |v| v.as_number().is_some_and(f64::is_finite))),
    Function::new("IIF", 3, 3, |a, _| a.get(if a.first()?.is_true() { 1 } else { 2 }).cloned()),
    Function::new("CHOOSE", 2, MANY, choose),
];
