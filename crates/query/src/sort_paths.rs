//! By which paths of an item a query sorts, for stores that must have an index for them.

use crate::ast::{Expr, Source};
use crate::query::Bound;
use crate::value::Value;

/// One expression of an ORDER BY clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPath {
    /// The names of the members from the item down; none if it is something else than a path of the item.
    pub path: Option<Vec<String>>,
    /// From the last to the first.
    pub descending: bool,
}

impl Bound {
    /// The expressions of the ORDER BY clause; empty if there is none.
    #[must_use]
    pub fn sort_paths(&self) -> Vec<SortPath> {
        let select = &self.inner.select;
        let item = select.from.first().filter(|item| !item.iterate);
        let alias = item.filter(|item| matches!(&item.source, Source::Path(Expr::Root(_)))).map(|item| &*item.alias);
        let sorted = select.order_by.iter().map(|item| {
            let mut path = Vec::new();
            let whole = alias.is_some_and(|alias| collect(&item.expr, alias, &mut path));
            SortPath { path: whole.then_some(path), descending: item.descending }
        });
        sorted.collect()
    }
}

/// Collects the members of a path, outermost first; false if it is none.
fn collect(expr: &Expr, alias: &str, path: &mut Vec<String>) -> bool {
    match expr {
        Expr::Name(name, _) => name == alias,
        Expr::Member(base, key) => match &**key {
            Expr::Const(Value::Text(name, _)) => {
                let whole = collect(base, alias, path);
                path.push(name.clone().into_owned());
                whole
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::query::Query;

    fn sorted(text: &str) -> Vec<(Option<String>, bool)> {
        let bound = Query::parse(text).unwrap().bind(&[]).unwrap();
        bound.sort_paths().into_iter().map(|one| (one.path.map(|path| path.join("/")), one.descending)).collect()
    }

    #[test]
    fn paths_and_directions_are_those_of_the_order_by_clause() {
        assert_eq!(sorted("SELECT * FROM c"), []);
        let path = |path: &str, descending| (Some(path.to_owned()), descending);
        assert_eq!(sorted("SELECT c.x FROM c ORDER BY c.a, c['b'].c DESC"), [path("a", false), path("b/c", true)]);
        assert_eq!(sorted("SELECT * FROM root r ORDER BY r.a"), [path("a", false)]);
        assert_eq!(sorted("SELECT * FROM c ORDER BY c.a + 1, c.b"), [(None, false), path("b", false)]);
    }
}
