//! The built-in functions. Arguments of a wrong type make the result undefined.

mod array;
mod math;
mod text;
mod time;
mod types;

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
const MANY: usize = usize::MAX;

impl Function {
    const fn new(name: &'static str, least: usize, most: usize, call: Call) -> Self {
        Self { name, least, most, call }
    }

    pub(crate) fn takes(&self, count: usize) -> bool {
        (self.least..=self.most).contains(&count)
    }

    /// How many arguments, in words.
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

/// Finds a function by its name in any case.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    [types::FUNCTIONS, text::FUNCTIONS, time::FUNCTIONS, math::FUNCTIONS, array::FUNCTIONS]
        .into_iter()
        .flatten()
        .find(|function| function.name.eq_ignore_ascii_case(name))
}

/// Functions of Cosmos DB that are deliberately absent, by what they would need.
const ABSENT: [(&str, &[&str]); 4] = [
    (
        "spatial functions",
        &["ST_AREA", "ST_DISTANCE", "ST_INTERSECTS", "ST_ISVALID", "ST_ISVALIDDETAILED", "ST_WITHIN"],
    ),
    ("full text search", &["FULLTEXTCONTAINS", "FULLTEXTCONTAINSALL", "FULLTEXTCONTAINSANY", "FULLTEXTSCORE", "RRF"]),
    ("vector search", &["VECTORDISTANCE"]),
    ("random numbers", &["RAND"]),
];

/// Whether `name` is a function of Cosmos DB that is absent here.
pub(crate) fn is_absent(name: &str) -> bool {
    ABSENT.iter().any(|(_, names)| names.contains(&name.to_ascii_uppercase().as_str()))
}

/// Why a call of `name` is refused.
pub(crate) fn unknown(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    match ABSENT.iter().find(|(_, names)| names.contains(&upper.as_str())) {
        Some((what, _)) => format!("the function {name} is not supported: {what} are not available"),
        None => format!("the function {name} does not exist or is not supported"),
    }
}

fn number(arguments: &[Value<'_>], index: usize) -> Option<f64> {
    arguments.get(index)?.as_number()
}

fn integer(arguments: &[Value<'_>], index: usize) -> Option<i64> {
    arguments.get(index)?.as_integer()
}

fn text<'v>(arguments: &'v [Value<'_>], index: usize) -> Option<&'v str> {
    arguments.get(index)?.as_text()
}

/// An optional boolean, false if it is not given.
fn flag(arguments: &[Value<'_>], index: usize) -> Option<bool> {
    arguments.get(index).map_or(Some(false), Value::as_bool)
}
