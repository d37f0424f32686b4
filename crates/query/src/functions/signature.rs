//! The signature of functions: name, number of arguments, implementation; and access to arguments.

use crate::value::Value;

/// One function of the language.
#[derive(Debug)]
pub(crate) struct Function {
    /// The name as the documentation writes it; calls ignore case.
    pub(crate) name: &'static str,
    least: usize,
    most: usize,
    /// The result for these arguments at a time (milliseconds since 1970); none is undefined.
    pub(crate) call: Call,
}

type Call = for<'a> fn(&[Value<'a>], i64) -> Option<Value<'a>>;

/// Longer strings are undefined: no item could hold them, and a query must not exhaust memory.
pub(crate) const LONGEST: usize = 2 * 1024 * 1024;

/// Any number of arguments.
pub(super) const MANY: usize = usize::MAX;

impl Function {
    pub(super) const fn new(name: &'static str, least: usize, most: usize, call: Call) -> Self {
        Self { name, least, most, call }
    }

    pub(crate) fn takes(&self, count: usize) -> bool {
        (self.least..=self.most).contains(&count)
    }

    /// Returns the number of arguments, in words.
    pub(crate) fn arity(&self) -> String {
        let plural = |n: usize| if n == 1 { "argument" } else { "arguments" };
        match (self.least, self.most) {
            (least, MANY) => format!("{least} or more arguments"),
            (least, most) if least == most => format!("{least} {}", plural(least)),
            (least, most) => format!("{least} to {most} arguments"),
        }
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

pub(super) fn number(arguments: &[Value<'_>], index: usize) -> Option<f64> {
    arguments.get(index)?.as_number()
}

pub(super) fn integer(arguments: &[Value<'_>], index: usize) -> Option<i64> {
    arguments.get(index)?.as_integer()
}

pub(super) fn text<'v>(arguments: &'v [Value<'_>], index: usize) -> Option<&'v str> {
    arguments.get(index)?.as_text()
}

/// An optional boolean, false if it is not given.
pub(super) fn flag(arguments: &[Value<'_>], index: usize) -> Option<bool> {
    arguments.get(index).map_or(Some(false), Value::as_bool)
}
