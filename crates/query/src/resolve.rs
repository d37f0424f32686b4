//! Resolves names (aliases, the container, aggregates) and replaces parameters by their values.

use std::collections::BTreeMap;

use crate::ast::{Count, Expr, Pos, Projection, Select, Source};
use crate::error::SqlError;
use crate::parser::{count_error, to_count};
use crate::value::Value;

/// Checks that every name is known and gives aggregates their slots.
pub(crate) fn names(select: &mut Select, text: &str) -> Result<(), SqlError> {
    Names { text, scope: Vec::new() }.select(select, true)
}

struct Names<'t> {
    text: &'t str,
    scope: Vec<String>,
}

impl Names<'_> {
    fn error<T>(&self, pos: Pos, message: impl Into<String>) -> Result<T, SqlError> {
        Err(SqlError::at(self.text, pos.0, message))
    }

    fn select(&mut self, select: &mut Select, outermost: bool) -> Result<(), SqlError> {
        let outside = self.scope.len();
        for index in 0..select.from.len() {
            self.input(select, index, outermost)?;
        }
        if select.projection == Projection::Star && select.from.len() != 1 {
            return Err(SqlError::new("SELECT * needs a FROM clause with one input: name what to select instead"));
        }
        if let Some(filter) = &mut select.filter {
            self.expr(filter, Place::NoAggregate("WHERE"), &mut Vec::new())?;
        }
        for expr in &mut select.group_by {
            self.expr(expr, Place::NoAggregate("GROUP BY"), &mut Vec::new())?;
        }
        for item in &mut select.order_by {
            self.expr(&mut item.expr, Place::NoAggregate("ORDER BY"), &mut Vec::new())?;
        }
        let mut found = Vec::new();
        for expr in select.projection.expressions_mut() {
            self.expr(expr, Place::Projection, &mut found)?;
        }
        select.aggregates = found;
        self.scope.truncate(outside);
        check_grouping(select)
    }

    fn input(&mut self, select: &mut Select, index: usize, outermost: bool) -> Result<(), SqlError> {
        let item = &mut select.from[index];
        match &mut item.source {
            Source::Subquery(inner) => {
                // Item by item, a subquery over the container is the same query, unless it looks at several items.
                let over_container = outermost && index == 0;
                self.select(inner, over_container)?;
                if over_container && !inner.is_item_by_item() {
                    return Err(SqlError::new(
                        "DISTINCT, TOP, GROUP BY, ORDER BY, OFFSET and aggregates of a subquery in FROM would need all \
                         items at once: move them to the outer query",
                    ));
                }
            }
            Source::Path(path) => {
                let mut base = path;
                while let Expr::Member(inner, _) = base {
                    base = inner;
                }
                if let Expr::Name(name, pos) = &base
                    && !self.scope.contains(name)
                {
                    if index > 0 || !outermost {
                        return self.error(*pos, unknown_name(name));
                    }
                    *base = Expr::Root(name.clone());
                }
            }
        }
        if select.from[..index].iter().any(|other| other.alias == select.from[index].alias) {
            return Err(SqlError::new(format!("the alias '{}' is used twice: rename one", select.from[index].alias)));
        }
        self.scope.push(select.from[index].alias.clone());
        Ok(())
    }

    fn expr(
        &mut self,
        expr: &mut Expr,
        place: Place,
        found: &mut Vec<(crate::aggregate::Aggregate, Expr)>,
    ) -> Result<(), SqlError> {
        if let Expr::Name(name, pos) = expr {
            return if self.scope.contains(name) { Ok(()) } else { self.error(*pos, unknown_name(name)) };
        }
        if let Some(inner) = expr.subquery_mut() {
            return self.select(inner, false);
        }
        let mut inside = place;
        if let Expr::Aggregate(kind, _, _, pos) = expr {
            match place {
                Place::Projection => inside = Place::NoAggregate("an aggregate"),
                Place::NoAggregate(clause) => {
                    return self.error(*pos, format!("{} cannot be used in {clause}", kind.name()));
                }
            }
        }
        for child in expr.children_mut() {
            self.expr(child, inside, found)?;
        }
        if let Expr::Aggregate(kind, argument, slot, _) = expr {
            *slot = found.len();
            found.push((*kind, (**argument).clone()));
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Place {
    Projection,
    NoAggregate(&'static str),
}

fn unknown_name(name: &str) -> String {
    format!("'{name}' is not an alias of the FROM clause: write alias.{name}, or quotes for a string")
}

fn check_grouping(select: &Select) -> Result<(), SqlError> {
    if !select.is_grouped() {
        return Ok(());
    }
    let problem = if select.projection == Projection::Star {
        "SELECT * cannot be used with GROUP BY: select the grouped expressions and aggregates"
    } else if !select.order_by.is_empty() {
        "ORDER BY cannot be used with GROUP BY or aggregates: order the result in the client"
    } else if select.distinct && !select.group_by.is_empty() {
        "DISTINCT cannot be used with GROUP BY: groups differ already"
    } else {
        return Ok(());
    };
    Err(SqlError::new(problem))
}

/// Puts values in place of parameters and group keys in place of grouped expressions.
pub(crate) fn bind(select: &mut Select, values: &BTreeMap<&str, Value<'static>>, text: &str) -> Result<(), SqlError> {
    let unknown = |name: &str, pos: Pos| {
        SqlError::at(text, pos.0, format!("the parameter {name} has no value: add it to \"parameters\""))
    };
    for count in select.counts_mut() {
        if let Count::Parameter(name, pos) = count {
            let value = values.get(name.as_str()).ok_or_else(|| unknown(name, *pos))?;
            match value.as_number().and_then(to_count) {
                Some(number) => *count = Count::Literal(number),
                None => return Err(SqlError::at(text, pos.0, count_error(name))),
            }
        }
    }
    for item in &mut select.from {
        if let Source::Subquery(inner) = &mut item.source {
            bind(inner, values, text)?;
        }
    }
    for expr in select.expressions_mut() {
        bind_expr(expr, values, text, &unknown)?;
    }
    if select.is_grouped() {
        let keys = select.group_by.clone();
        for expr in select.projection.expressions_mut() {
            group_keys(expr, &keys, text)?;
        }
    }
    Ok(())
}

fn bind_expr(
    expr: &mut Expr,
    values: &BTreeMap<&str, Value<'static>>,
    text: &str,
    unknown: &dyn Fn(&str, Pos) -> SqlError,
) -> Result<(), SqlError> {
    if let Expr::Parameter(name, pos) = expr {
        let value = values.get(name.as_str()).ok_or_else(|| unknown(name, *pos))?;
        *expr = Expr::Const(value.clone());
        return Ok(());
    }
    if let Some(inner) = expr.subquery_mut() {
        return bind(inner, values, text);
    }
    expr.children_mut().into_iter().try_for_each(|child| bind_expr(child, values, text, unknown))
}

/// Replaces expressions of GROUP BY by group keys. Expressions that are neither grouped nor aggregated are refused.
fn group_keys(expr: &mut Expr, keys: &[Expr], text: &str) -> Result<(), SqlError> {
    if let Some(index) = keys.iter().position(|key| key == expr) {
        *expr = Expr::GroupKey(index);
        return Ok(());
    }
    match expr {
        Expr::Aggregate(..) => Ok(()),
        Expr::Name(name, pos) => Err(SqlError::at(
            text,
            pos.0,
            format!("'{name}' is used outside of an aggregate: add the expression to GROUP BY"),
        )),
        Expr::Exists(_) | Expr::ArrayOf(_) | Expr::Scalar(_) => {
            Err(SqlError::new("a subquery cannot be projected together with GROUP BY or aggregates"))
        }
        _ => expr.children_mut().into_iter().try_for_each(|child| group_keys(child, keys, text)),
    }
}
