//! Query plans: how an SDK merges the rows of several ranges, and the query to send to each.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::ast::{Expr, Projection, Select, Source};
use crate::error::SqlError;
use crate::print;
use crate::query::Bound;
use crate::value::write_text;

/// SDKs put a filter here when they resume, `true` otherwise.
const PLACEHOLDER: &str = "({documentdb-formattableorderbyquery-filter})";

/// The answer to a query plan request; serialises to the JSON that SDKs read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The version of the format: 2.
    pub partitioned_query_execution_info_version: u32,
    /// How the SDK merges rows.
    pub query_info: QueryInfo,
    /// The ranges the query concerns; all of them, unless the caller narrows them.
    pub query_ranges: Vec<QueryRange>,
}

/// A range of effective partition keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryRange {
    /// The lower end.
    pub min: String,
    /// The upper end.
    pub max: String,
    /// Whether `min` belongs to the range.
    pub is_min_inclusive: bool,
    /// Whether `max` belongs to the range.
    pub is_max_inclusive: bool,
}

/// How the SDK merges the rows of the ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryInfo {
    /// `None`, `Ordered` (equal rows are neighbours) or `Unordered`.
    pub distinct_type: &'static str,
    /// Rows to return.
    pub top: Option<u64>,
    /// Rows to skip.
    pub offset: Option<u64>,
    /// Rows to return after those.
    pub limit: Option<u64>,
    /// `Ascending` or `Descending` for each sort expression.
    pub order_by: Vec<&'static str>,
    /// The sort expressions, as they may be used in a filter.
    pub order_by_expressions: Vec<String>,
    /// The expressions of GROUP BY.
    pub group_by_expressions: Vec<String>,
    /// The members of a grouped row, in order.
    pub group_by_aliases: Vec<String>,
    /// The aggregate of `SELECT VALUE`.
    pub aggregates: Vec<&'static str>,
    /// How to merge each member of a grouped row; null: any value will do.
    pub group_by_alias_to_aggregate_type: BTreeMap<String, Option<&'static str>>,
    /// The query for each range; empty: the original.
    pub rewritten_query: String,
    /// Rows are values, not objects.
    pub has_select_value: bool,
    /// Always null: counts of distinct rows are computed by the server.
    pub d_count_info: Option<()>,
    /// Always false.
    pub has_non_streaming_order_by: bool,
}

impl Bound {
    /// The features that an SDK needs to merge the rows of several ranges, in the words of the header
    /// `x-ms-cosmos-supported-query-features`. Empty: rows only need to be put one after the other.
    #[must_use]
    pub fn features(&self) -> Vec<&'static str> {
        let select = &self.inner.query.select;
        let value = matches!(select.projection, Projection::Value(_));
        let aggregates = select.aggregates.len();
        let all = [
            ("Aggregate", aggregates > 0 && value),
            ("NonValueAggregate", aggregates > 0 && !value && select.group_by.is_empty()),
            ("MultipleAggregates", aggregates > 1),
            ("GroupBy", !select.group_by.is_empty()),
            ("Distinct", select.distinct),
            ("OrderBy", select.order_by.len() == 1),
            ("MultipleOrderBy", select.order_by.len() > 1),
            ("OffsetAndLimit", select.offset_limit.is_some()),
            ("Top", select.top.is_some()),
        ];
        all.into_iter().filter(|(_, used)| *used).map(|(name, _)| name).collect()
    }

    /// The plan for running the query over several ranges. `query_ranges` covers everything: narrow it with
    /// [`Bound::hints`] if the partition key is known. `supported` is the header
    /// `x-ms-cosmos-supported-query-features`; without it, the SDK is trusted to do everything.
    ///
    /// # Errors
    /// The SDK lacks a feature, or no SDK can merge the rows: an aggregate inside a larger expression, or ORDER BY over
    /// an input that is not the item itself.
    pub fn plan(&self, supported: Option<&str>) -> Result<Plan, SqlError> {
        let select = &self.inner.query.select;
        self.check_features(supported)?;
        let window = &self.inner.select;
        let mut info = QueryInfo {
            distinct_type: distinct_type(select),
            top: window.top.as_ref().map(|count| count.number()),
            offset: window.offset_limit.as_ref().map(|(offset, _)| offset.number()),
            limit: window.offset_limit.as_ref().map(|(_, limit)| limit.number()),
            order_by: select.order_by.iter().map(|i| if i.descending { "Descending" } else { "Ascending" }).collect(),
            order_by_expressions: select.order_by.iter().map(|item| print::expr(&item.expr)).collect(),
            group_by_expressions: select.group_by.iter().map(print::expr).collect(),
            group_by_aliases: Vec::new(),
            aggregates: Vec::new(),
            group_by_alias_to_aggregate_type: BTreeMap::new(),
            rewritten_query: String::new(),
            has_select_value: matches!(select.projection, Projection::Value(_)),
            d_count_info: None,
            has_non_streaming_order_by: false,
        };
        // The number of rows of each range from which the SDK takes the first.
        let enough = info.top.or_else(|| Some(info.offset?.saturating_add(info.limit?)));
        if select.is_grouped() {
            rewrite_grouped(select, &mut info)?;
        } else if !select.order_by.is_empty() {
            info.rewritten_query = rewrite_ordered(select, enough)?;
        } else if select.offset_limit.is_some() {
            let mut rewritten = select.clone();
            rewritten.offset_limit = None;
            // DISTINCT is decided by the SDK, which must see all rows to know how many differ.
            rewritten.top = enough.filter(|_| !select.distinct).map(crate::ast::Count::Literal);
            info.rewritten_query = print::select(&rewritten);
        } else if select.distinct && select.top.is_some() {
            let mut rewritten = select.clone();
            rewritten.top = None;
            info.rewritten_query = print::select(&rewritten);
        }
        let everything =
            QueryRange { min: String::new(), max: "FF".to_owned(), is_min_inclusive: true, is_max_inclusive: false };
        Ok(Plan { partitioned_query_execution_info_version: 2, query_info: info, query_ranges: vec![everything] })
    }
}

impl Bound {
    fn check_features(&self, supported: Option<&str>) -> Result<(), SqlError> {
        let Some(supported) = supported else { return Ok(()) };
        let has = |feature: &&str| supported.split(',').any(|name| name.trim().eq_ignore_ascii_case(feature));
        let missing: Vec<_> = self.features().into_iter().filter(|feature| !has(feature)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // The Rust SDK recognises this answer by the words "unsupported features" and "Upgrade your SDK".
        Err(SqlError::new(format!(
            "the query has unsupported features for this SDK across partitions: {}. Upgrade your SDK, or query one \
             partition key",
            missing.join(", ")
        )))
    }
}

/// Ordered if equal rows are adjacent: the projection is the sort expression.
pub(crate) fn distinct_type(select: &Select) -> &'static str {
    let sorted = |expr: &Expr| select.order_by.iter().any(|item| item.expr == *expr);
    match &select.projection {
        _ if !select.distinct || select.is_grouped() => "None",
        Projection::Value(expr) if sorted(expr) => "Ordered",
        Projection::List(items)
            if items.len() == select.order_by.len() && items.iter().all(|item| sorted(&item.expr)) =>
        {
            "Ordered"
        }
        _ => "Unordered",
    }
}

fn clauses(select: &Select, filter: Option<String>) -> String {
    let mut out = format!("\n{}", print::from(&select.from));
    if let Some(filter) = filter {
        out.push_str(&format!("\nWHERE {filter}"));
    }
    out
}

fn rewrite_ordered(select: &Select, enough: Option<u64>) -> Result<String, SqlError> {
    let root = select
        .from
        .first()
        .filter(|item| !item.iterate && matches!(&item.source, Source::Path(Expr::Root(_))))
        .ok_or_else(|| {
            SqlError::new("ORDER BY across ranges needs FROM to name the container first: FROM c JOIN ...")
        })?;
    let top = enough.filter(|_| !select.distinct).map(|n| format!("TOP {n} ")).unwrap_or_default();
    let items = select.order_by.iter().map(|item| format!("{{\"item\": {}}}", print::expr(&item.expr)));
    let filter = match &select.filter {
        Some(filter) => format!("({}) AND {PLACEHOLDER}", print::expr(filter)),
        None => PLACEHOLDER.to_owned(),
    };
    Ok(format!(
        "SELECT {top}{}._rid, [{}] AS orderByItems, {} AS payload{}\nORDER BY {}",
        root.alias,
        items.collect::<Vec<_>>().join(", "),
        payload(select, &root.alias),
        clauses(select, Some(filter)),
        print::order_by(select),
    ))
}

/// The row of the original query as one expression.
fn payload(select: &Select, alias: &str) -> String {
    match &select.projection {
        Projection::Star => alias.to_owned(),
        Projection::Value(expr) => print::expr(expr),
        Projection::List(items) => object(items.iter().map(|item| (item.name.as_str(), print::expr(&item.expr)))),
    }
}

fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut out = "{".to_owned();
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_text(name, &mut out);
        out.push_str(": ");
        out.push_str(&value);
    }
    out.push('}');
    out
}

/// The partial result of an aggregate that one range returns for the SDK to merge.
fn partial(kind: Aggregate, argument: &Expr) -> String {
    let argument = print::expr(argument);
    match kind {
        Aggregate::Count | Aggregate::Sum => format!("{{\"item\": {}({argument})}}", kind.name()),
        Aggregate::Avg => format!("{{\"item\": {{\"sum\": SUM({argument}), \"count\": COUNT({argument})}}}}"),
        // Python reads "item"; JavaScript and Java read "item2", whose count is zero for an empty range.
        Aggregate::Min | Aggregate::Max => {
            let name = kind.name();
            let member = name.to_ascii_lowercase();
            format!(
                "{{\"item\": {name}({argument}), \
                 \"item2\": {{\"{member}\": {name}({argument}), \"count\": COUNT({argument})}}}}"
            )
        }
    }
}

/// The aggregate an expression is; none if it has none inside.
fn aggregate_of(expr: &Expr) -> Result<Option<(Aggregate, Expr)>, SqlError> {
    match expr {
        Expr::Aggregate(kind, argument, ..) => Ok(Some((*kind, (**argument).clone()))),
        _ if holds_aggregate(&mut expr.clone()) => Err(SqlError::new(format!(
            "{} cannot be merged across ranges: select the aggregate by itself and compute with it in the client",
            print::expr(expr)
        ))),
        _ => Ok(None),
    }
}

fn holds_aggregate(expr: &mut Expr) -> bool {
    matches!(expr, Expr::Aggregate(..)) || expr.children_mut().into_iter().any(holds_aggregate)
}

fn rewrite_grouped(select: &Select, info: &mut QueryInfo) -> Result<(), SqlError> {
    let tail = clauses(select, select.filter.as_ref().map(print::expr));
    let payload = match &select.projection {
        Projection::Value(expr) => match aggregate_of(expr)? {
            Some((kind, argument)) => {
                info.aggregates.push(kind.plan_name());
                format!("[{}]", partial(kind, &argument))
            }
            None => print::expr(expr),
        },
        Projection::List(items) => {
            let mut members = Vec::new();
            for item in items {
                let aggregate = aggregate_of(&item.expr)?;
                let value = match &aggregate {
                    Some((kind, argument)) => partial(*kind, argument),
                    None => print::expr(&item.expr),
                };
                info.group_by_aliases.push(item.name.clone());
                let merge = aggregate.map(|(kind, _)| kind.plan_name());
                info.group_by_alias_to_aggregate_type.insert(item.name.clone(), merge);
                members.push((item.name.as_str(), value));
            }
            object(members.into_iter())
        }
        Projection::Star => return Err(SqlError::new("SELECT * cannot be used with GROUP BY")),
    };
    info.rewritten_query = if !select.group_by.is_empty() {
        let keys = select.group_by.iter().map(|expr| format!("{{\"item\": {}}}", print::expr(expr)));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let groups = print::list(&select.group_by);
        format!("SELECT [{keys}] AS groupByItems, {payload} AS payload{tail}\nGROUP BY {groups}")
    } else if info.has_select_value {
        format!("SELECT VALUE {payload}{tail}")
    } else {
        format!("SELECT {payload} AS payload{tail}")
    };
    Ok(())
}
