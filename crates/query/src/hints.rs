//! Hints about the items that a query can match, so that a listing can be narrowed. Sound, not complete: an item
//! outside of the hints never matches; one inside may not match either.

use std::collections::BTreeSet;

use crate::ast::{Binary, Expr, Source};
use crate::query::Bound;
use crate::value::Value;

/// Constraints that every matching item satisfies; none means nothing is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hints {
    /// The item's id is one of these; empty: nothing matches.
    pub ids: Option<Vec<String>>,
    /// The item's id starts with this.
    pub id_prefix: Option<String>,
    /// The value at each partition key path, in the order of the paths.
    pub partition_key: Option<Vec<serde_json::Value>>,
}

impl Bound {
    /// Derives hints from the WHERE clause. Paths are written as container definitions write them: `/pk`, `/a/b`.
    #[must_use]
    pub fn hints(&self, partition_key_paths: &[&str]) -> Hints {
        let Some(item) = self.inner.select.from.first() else { return Hints::default() };
        let is_item = !item.iterate && matches!(&item.source, Source::Path(Expr::Root(_)));
        let Some(filter) = self.inner.select.filter.as_ref().filter(|_| is_item) else { return Hints::default() };
        let root = Root { alias: &item.alias };
        let terms: Vec<&Expr> = match filter {
            Expr::And(list) => list.iter().collect(),
            other => vec![other],
        };
        let keys: Option<Vec<_>> = partition_key_paths
            .iter()
            .map(|path| {
                let path: Vec<&str> = path.trim_start_matches('/').split('/').map(unquoted).collect();
                terms.iter().find_map(|term| root.fixed(term, &path))
            })
            .collect();
        Hints {
            ids: root.ids(filter).map(|ids| ids.into_iter().collect()),
            id_prefix: terms.iter().find_map(|term| root.id_prefix(term)),
            partition_key: keys.filter(|keys| !keys.is_empty()),
        }
    }
}

/// A path segment may be written in quotes: `/"a b"`.
fn unquoted(segment: &str) -> &str {
    segment.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(segment)
}

struct Root<'q> {
    alias: &'q str,
}

impl Root<'_> {
    /// Returns `true` if `expr` is the property at `path` of the item.
    fn is_path(&self, expr: &Expr, path: &[&str]) -> bool {
        match (expr, path) {
            (Expr::Name(name, _), []) => name == self.alias,
            (Expr::Member(base, key), [outer @ .., last]) => {
                matches!(&**key, Expr::Const(Value::Text(name, _)) if name == last) && self.is_path(base, outer)
            }
            _ => false,
        }
    }

    /// The constant that `path` must equal for `term` to be true.
    fn equals<'e>(&self, term: &'e Expr, path: &[&str]) -> Option<&'e Value<'static>> {
        match term {
            Expr::Binary(Binary::Equal, a, b) => match (&**a, &**b) {
                (Expr::Const(value), other) | (other, Expr::Const(value)) if self.is_path(other, path) => Some(value),
                _ => None,
            },
            _ => None,
        }
    }

    fn fixed(&self, term: &Expr, path: &[&str]) -> Option<serde_json::Value> {
        match self.equals(term, path)? {
            Value::Undefined | Value::RawArray(_) | Value::RawObject(_) => None,
            value => serde_json::from_str(&value.json()).ok(),
        }
    }

    /// The ids for which `term` can be true.
    fn ids(&self, term: &Expr) -> Option<BTreeSet<String>> {
        match term {
            Expr::And(list) => {
                list.iter().filter_map(|term| self.ids(term)).reduce(|a, b| a.intersection(&b).cloned().collect())
            }
            Expr::Or(list) => {
                let all: Option<Vec<_>> = list.iter().map(|term| self.ids(term)).collect();
                Some(all?.into_iter().flatten().collect())
            }
            Expr::In(subject, list, false) if self.is_path(subject, &["id"]) => {
                let constant = |expr: &Expr| match expr {
                    Expr::Const(value) => Some(value.as_text().map(str::to_owned)),
                    _ => None,
                };
                // Ids are strings: other constants match none.
                let all: Option<Vec<_>> = list.iter().map(constant).collect();
                Some(all?.into_iter().flatten().collect())
            }
            _ => self.equals(term, &["id"]).map(|value| value.as_text().map(str::to_owned).into_iter().collect()),
        }
    }

    fn id_prefix(&self, term: &Expr) -> Option<String> {
        let Expr::Call(function, list) = term else { return None };
        let exact = match list.get(2) {
            None => true,
            Some(Expr::Const(Value::Bool(ignore_case))) => !ignore_case,
            Some(_) => false,
        };
        match (function.name, list.first(), list.get(1)) {
            ("STARTSWITH", Some(subject), Some(Expr::Const(Value::Text(prefix, _))))
                if exact && self.is_path(subject, &["id"]) =>
            {
                Some(prefix.clone().into_owned())
            }
            _ => None,
        }
    }
}
