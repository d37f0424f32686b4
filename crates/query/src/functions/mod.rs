//! The built-in functions. Arguments of a wrong type make the result undefined.

mod array;
mod math;
mod signature;
mod text;
mod time;
mod types;

pub(crate) use self::signature::{Function, LONGEST};

/// Finds a function by its name in any case.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    [types::FUNCTIONS, text::FUNCTIONS, time::FUNCTIONS, math::FUNCTIONS, array::FUNCTIONS]
        .into_iter()
        .flatten()
        .find(|function| function.name.eq_ignore_ascii_case(name))
}

/// Functions of Cosmos DB that are not supported, by feature.
const ABSENT: [(&str, &[&str]); 4] = [
    (
        "spatial functions",
        &["ST_AREA", "ST_DISTANCE", "ST_INTERSECTS", "ST_ISVALID", "ST_ISVALIDDETAILED", "ST_WITHIN"],
    ),
    ("full text search", &["FULLTEXTCONTAINS", "FULLTEXTCONTAINSALL", "FULLTEXTCONTAINSANY", "FULLTEXTSCORE", "RRF"]),
    ("vector search", &["VECTORDISTANCE"]),
    ("random numbers", &["RAND"]),
];

/// Returns `true` if `name` is a function of Cosmos DB that is absent here.
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
