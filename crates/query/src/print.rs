//! The tree back to text, for rewritten queries. Operators are parenthesised, so precedence never matters.

use crate::ast::{Count, Expr, FromItem, Projection, Select, Source, Unary};
use crate::parser::is_reserved;
use crate::value::{Value, write_text};

/// The text of an expression.
pub(crate) fn expr(expr: &Expr) -> String {
    let mut out = String::new();
    write(expr, &mut out);
    out
}

/// `FROM ...`, or nothing.
pub(crate) fn from(items: &[FromItem]) -> String {
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index == 0 { "FROM " } else { " JOIN " });
        if item.iterate {
            out.push_str(&item.alias);
            out.push_str(" IN ");
        }
        let inferred = match &item.source {
            Source::Path(path) => {
                write(path, &mut out);
                matches!(path, Expr::Root(name) | Expr::Name(name, _) if *name == item.alias)
            }
            Source::Subquery(inner) => {
                out.push('(');
                out.push_str(&select(inner));
                out.push(')');
                // Inputs without an alias got one that cannot be written.
                item.alias.starts_with('$')
            }
        };
        if !item.iterate && !inferred && !item.alias.starts_with('$') {
            out.push_str(" AS ");
            out.push_str(&item.alias);
        }
    }
    out
}

/// Prints a projection, after SELECT and TOP.
pub(crate) fn projection(projection: &Projection) -> String {
    match projection {
        Projection::Star => "*".to_owned(),
        Projection::Value(value) => format!("VALUE {}", expr(value)),
        Projection::List(items) => {
            let items = items.iter().map(|item| {
                let text = expr(&item.expr);
                if item.explicit { format!("{text} AS {}", item.name) } else { text }
            });
            items.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The text of a whole query.
pub(crate) fn select(select: &Select) -> String {
    let mut out = "SELECT ".to_owned();
    if select.distinct {
        out.push_str("DISTINCT ");
    }
    if let Some(top) = &select.top {
        out.push_str(&format!("TOP {} ", count(top)));
    }
    out.push_str(&projection(&select.projection));
    let mut clause = |word: &str, text: String| {
        if !text.is_empty() {
            out.push(' ');
            out.push_str(word);
            out.push_str(&text);
        }
    };
    clause("", from(&select.from));
    clause("WHERE ", select.filter.as_ref().map(expr).unwrap_or_default());
    clause("GROUP BY ", list(&select.group_by));
    clause("ORDER BY ", order_by(select));
    if let Some((offset, limit)) = &select.offset_limit {
        clause("OFFSET ", format!("{} LIMIT {}", count(offset), count(limit)));
    }
    out
}

/// The items of ORDER BY.
pub(crate) fn order_by(select: &Select) -> String {
    let items = select.order_by.iter().map(|item| {
        let direction = if item.descending { "DESC" } else { "ASC" };
        format!("{} {direction}", expr(&item.expr))
    });
    items.collect::<Vec<_>>().join(", ")
}

/// Expressions with commas.
pub(crate) fn list(list: &[Expr]) -> String {
    list.iter().map(expr).collect::<Vec<_>>().join(", ")
}

fn count(count: &Count) -> String {
    match count {
        Count::Literal(n) => n.to_string(),
        Count::Parameter(name, _) => name.clone(),
    }
}

fn write(expr: &Expr, out: &mut String) {
    let not = |negated: &bool| if *negated { " NOT" } else { "" };
    match expr {
        Expr::Const(Value::Undefined) => out.push_str("undefined"),
        Expr::Const(value) => value.write(out),
        Expr::Parameter(name, _) | Expr::Name(name, _) | Expr::Root(name) => out.push_str(name),
        Expr::Member(base, key) => member(base, key, out),
        Expr::Unary(operator, operand) => {
            out.push_str(match operator {
                Unary::Not => "(NOT (",
                Unary::Minus => "(-(",
                Unary::Plus => "(+(",
                Unary::BitNot => "(~(",
            });
            write(operand, out);
            out.push_str("))");
        }
        Expr::Binary(operator, a, b) => parts(&[a, b], &format!(" {} ", operator.sign()), out),
        Expr::And(list) => parts(&list.iter().collect::<Vec<_>>(), " AND ", out),
        Expr::Or(list) => parts(&list.iter().collect::<Vec<_>>(), " OR ", out),
        Expr::Coalesce(a, b) => parts(&[a, b], " ?? ", out),
        Expr::Conditional(test, yes, no) => {
            out.push('(');
            write(test, out);
            out.push_str(" ? ");
            write(yes, out);
            out.push_str(" : ");
            write(no, out);
            out.push(')');
        }
        Expr::In(subject, items, negated) => {
            out.push('(');
            write(subject, out);
            out.push_str(&format!("{} IN ({}))", not(negated), list(items)));
        }
        Expr::Between(subject, low, high, negated) => {
            out.push('(');
            write(subject, out);
            out.push_str(&format!("{} BETWEEN ", not(negated)));
            write(low, out);
            out.push_str(" AND ");
            write(high, out);
            out.push(')');
        }
        Expr::Like(subject, pattern, escape, negated) => {
            out.push('(');
            write(subject, out);
            out.push_str(&format!("{} LIKE ", not(negated)));
            write(pattern, out);
            if let Some(escape) = escape {
                out.push_str(" ESCAPE ");
                write_text(&escape.to_string(), out);
            }
            out.push(')');
        }
        Expr::Call(function, arguments) => out.push_str(&format!("{}({})", function.name, list(arguments))),
        Expr::Aggregate(kind, argument, ..) => {
            out.push_str(kind.name());
            out.push('(');
            write(argument, out);
            out.push(')');
        }
        Expr::GroupKey(_) => {}
        Expr::Array(items) => out.push_str(&format!("[{}]", list(items))),
        Expr::Object(members) => {
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_text(name, out);
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
        Expr::Exists(inner) => out.push_str(&format!("EXISTS({})", select(inner))),
        Expr::ArrayOf(inner) => out.push_str(&format!("ARRAY({})", select(inner))),
        Expr::Scalar(inner) => out.push_str(&format!("({})", select(inner))),
    }
}

fn parts(list: &[&Expr], between: &str, out: &mut String) {
    out.push('(');
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            out.push_str(between);
        }
        write(item, out);
    }
    out.push(')');
}

fn member(base: &Expr, key: &Expr, out: &mut String) {
    write(base, out);
    match key {
        Expr::Const(Value::Text(name, _)) if is_plain(name) => {
            out.push('.');
            out.push_str(name);
        }
        _ => {
            out.push('[');
            write(key, out);
            out.push(']');
        }
    }
}

/// A name that can follow a dot in any SDK's eyes.
fn is_plain(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !is_reserved(name)
}
