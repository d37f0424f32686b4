//! A query from its text to something that runs: parse, then bind parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::ast::Select;
use crate::context::Context;
use crate::error::SqlError;
use crate::eval::{self, Env};
use crate::value::Value;
use crate::{json, order, parser, print, resolve};

/// A parsed query.
#[derive(Debug, Clone)]
pub struct Query {
    text: String,
    pub(crate) select: Select,
}

impl Query {
    /// Parses the text of a query. Names, functions and the number of arguments are checked here, parameters in
    /// [`Query::bind`].
    ///
    /// # Errors
    /// The text is longer than 512 KiB, nests deeper than 128 levels, or is not a query this crate can run; the error
    /// says where.
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let mut select = parser::query(text)?;
        resolve::names(&mut select, text)?;
        Ok(Self { text: text.to_owned(), select })
    }

    /// Gives the parameters their values. Parameters that the text does not use are allowed.
    ///
    /// # Errors
    /// The text uses a parameter that is not given, a parameter is given twice, its name does not start with `@`, or
    /// its value nests deeper than 128 levels.
    pub fn bind(&self, parameters: &[(String, serde_json::Value)]) -> Result<Bound, SqlError> {
        let given = parameters.iter().map(|(name, value)| (name.as_str(), Some(value)));
        self.bind_with(given.collect(), None)
    }

    fn bind_with(
        &self,
        parameters: Vec<(&str, Option<&serde_json::Value>)>,
        resume: Option<Resume>,
    ) -> Result<Bound, SqlError> {
        let mut values = BTreeMap::new();
        for (name, value) in parameters {
            if !name.starts_with('@') {
                return Err(SqlError::new(format!("the name of the parameter '{name}' must start with @")));
            }
            let value = value.map_or(Value::Undefined, Value::from_json);
            if let Value::RawArray(text) | Value::RawObject(text) = &value {
                json::check(text.as_bytes())
                    .map_err(|why| SqlError::new(format!("the parameter {name} cannot be used: {why}")))?;
            }
            if values.insert(name, value).is_some() {
                return Err(SqlError::new(format!("the parameter {name} is given twice")));
            }
        }
        let mut select = self.select.clone();
        resolve::bind(&mut select, &values, &self.text)?;
        if let Some(resume) = &resume {
            resume.check(&select)?;
        }
        let fingerprint = fingerprint(self, &values, resume.as_ref());
        Ok(Bound { inner: Arc::new(Parts { query: self.clone(), select, fingerprint, resume }) })
    }
}

/// Continuations work only with the query they came from. For a sorted query its filter does not count: the continuation
/// names a place in the order, and SDKs that resume add a condition to the filter.
fn fingerprint(query: &Query, values: &BTreeMap<&str, Value<'static>>, resume: Option<&Resume>) -> String {
    let mut all = match query.select.order_by.is_empty() {
        true => query.text.as_bytes().to_vec(),
        false => print::select(&Select { filter: None, ..query.select.clone() }).into_bytes(),
    };
    for (name, value) in values {
        all.push(0);
        all.extend_from_slice(name.as_bytes());
        all.push(0);
        all.extend_from_slice(value.json().as_bytes());
    }
    if let Some(resume) = resume {
        all.extend_from_slice(format!("\0{resume:?}").as_bytes());
    }
    let hash = order::fnv1a_128(&all);
    format!("{:016x}", (hash >> 64) as u64 ^ hash as u64)
}

/// A query whose parameters have values, ready to run. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bound {
    pub(crate) inner: Arc<Parts>,
}

/// The parts of a bound query.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) query: Query,
    pub(crate) select: Select,
    pub(crate) fingerprint: String,
    pub(crate) resume: Option<Resume>,
}

impl Bound {
    /// Reads the body of a query request: `{"query": "...", "parameters": [{"name": "@a", "value": 1}]}`, with the
    /// `resumeFilter` that the Rust and .NET SDKs add when they resume an ORDER BY query. Other members are ignored.
    ///
    /// # Errors
    /// The body is not such an object, or its query cannot be used.
    pub fn from_body(body: &[u8]) -> Result<Self, SqlError> {
        let body: Body = serde_json::from_slice(body).map_err(|e| {
            SqlError::new(format!(
                "the body of a query must be {{\"query\": \"SELECT ...\", \"parameters\": [{{\"name\": \"@a\", \
                 \"value\": 1}}]}}: {e}"
            ))
        })?;
        let parameters = body.parameters.as_deref().unwrap_or_default();
        let parameters = parameters.iter().map(|p| (p.name.as_str(), p.value.as_ref()));
        Query::parse(&body.query)?.bind_with(parameters.collect(), body.resume_filter)
    }

    /// Returns `true` if the query reads items at all; `SELECT VALUE 1` does not.
    #[must_use]
    pub fn reads_items(&self) -> bool {
        self.inner.select.reads_items()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    query: String,
    #[serde(default)]
    parameters: Option<Vec<Parameter>>,
    #[serde(default)]
    resume_filter: Option<Resume>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    /// JavaScript drops members that are undefined.
    #[serde(default, deserialize_with = "present")]
    value: Option<serde_json::Value>,
}

/// Distinguishes `"value": null` from a missing value.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}

/// Where an SDK resumes an ORDER BY query: the sort values of the last row it has seen, and its rid.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    pub(crate) value: Vec<serde_json::Value>,
    #[serde(default)]
    pub(crate) rid: Option<String>,
    #[serde(default)]
    pub(crate) exclude: bool,
}

impl Resume {
    fn check(&self, select: &Select) -> Result<(), SqlError> {
        if select.order_by.len() != self.value.len() {
            return Err(SqlError::new(format!(
                "resumeFilter has {} values, but the query orders by {}: send one for each",
                self.value.len(),
                select.order_by.len()
            )));
        }
        if self.value.iter().any(|value| scalar(value).is_none()) {
            return Err(SqlError::new("resumeFilter can hold null, booleans, numbers, strings and [] for undefined"));
        }
        Ok(())
    }

    /// The key of the row to resume at, without its rid.
    pub(crate) fn key(&self, select: &Select) -> Vec<u8> {
        let mut key = Vec::new();
        for (value, item) in self.value.iter().zip(&select.order_by) {
            let start = key.len();
            order::encode(&scalar(value).unwrap_or(Value::Undefined), &mut key);
            if item.descending {
                key[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        key
    }
}

/// A sort value as SDKs write it: an empty array stands for undefined.
fn scalar(value: &serde_json::Value) -> Option<Value<'static>> {
    match value {
        serde_json::Value::Array(list) => list.is_empty().then_some(Value::Undefined),
        serde_json::Value::Object(_) => None,
        other => Some(Value::from_json(other)),
    }
}

/// The condition of a patch: `FROM c WHERE ...`, true or not for one item.
#[derive(Debug, Clone)]
pub struct Condition {
    select: Select,
}

impl Condition {
    /// Parses `FROM c WHERE ...`.
    ///
    /// # Errors
    /// The text is not such a condition, or uses parameters (a patch has none).
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let mut select = parser::condition(text)?;
        resolve::names(&mut select, text)?;
        resolve::bind(&mut select, &BTreeMap::new(), text)?;
        Ok(Self { select })
    }

    /// Returns `true` if the condition is true for the item; undefined is not true. `stop` is asked now and then.
    ///
    /// # Errors
    /// `body` is not JSON, `stop` returned true, or the condition takes more than an item may take in a query.
    pub fn holds(&self, body: &[u8], now_millis: i64, stop: &dyn Fn() -> bool) -> Result<bool, SqlError> {
        let text = json::check(body).map_err(|why| SqlError::new(format!("the item is not usable JSON: {why}")))?;
        let cx = Context::new(Value::raw(text), now_millis, stop);
        let holds = !eval::rows(&self.select, &Env::Empty, &cx, 1).is_empty();
        match cx.halted() {
            Some(halt) => Err(SqlError::new(format!("the condition cannot be checked: {}", halt.message()))),
            None => Ok(holds),
        }
    }
}
