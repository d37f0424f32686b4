//! The syntax tree of a query. Chains of AND and OR are flat, everything else nests at most [`MAX_DEPTH`] deep.

use crate::aggregate::Aggregate;
use crate::functions::Function;
use crate::value::Value;

/// Deeper expressions are refused: evaluation is recursive and must not exhaust the stack.
pub(crate) const MAX_DEPTH: usize = 128;

/// A byte offset in the text. All are equal, so that the comparison of expressions ignores positions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pos(pub(crate) usize);

impl PartialEq for Pos {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Select {
    pub(crate) distinct: bool,
    pub(crate) top: Option<Count>,
    pub(crate) projection: Projection,
    pub(crate) from: Vec<FromItem>,
    pub(crate) filter: Option<Expr>,
    pub(crate) group_by: Vec<Expr>,
    pub(crate) order_by: Vec<OrderItem>,
    pub(crate) offset_limit: Option<(Count, Count)>,
    /// The aggregates of the projection with their arguments; those in the tree name their slot here.
    pub(crate) aggregates: Vec<(Aggregate, Expr)>,
}

impl Select {
    pub(crate) fn is_grouped(&self) -> bool {
        !self.aggregates.is_empty() || !self.group_by.is_empty()
    }

    /// Returns `true` if the query runs over items at all: `SELECT VALUE 1` does not.
    pub(crate) fn reads_items(&self) -> bool {
        self.from.first().is_some_and(|item| match &item.source {
            Source::Subquery(inner) => inner.reads_items(),
            Source::Path(path) => {
                let mut base = path;
                while let Expr::Member(inner, _) = base {
                    base = inner;
                }
                matches!(base, Expr::Root(_))
            }
        })
    }

    /// Returns `true` if each row depends on a single item.
    pub(crate) fn is_item_by_item(&self) -> bool {
        let windowed = self.top.is_some() || self.offset_limit.is_some();
        !self.reads_items() || !(self.distinct || windowed || self.is_grouped() || !self.order_by.is_empty())
    }
}

/// A number of rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Count {
    Literal(u64),
    Parameter(String, Pos),
}

impl Count {
    /// The number, once parameters are bound.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Literal(n) => *n,
            Self::Parameter(..) => 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Projection {
    Star,
    Value(Expr),
    List(Vec<SelectItem>),
}

impl Projection {
    pub(crate) fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Self::Star => Vec::new(),
            Self::Value(expr) => vec![expr],
            Self::List(items) => items.iter_mut().map(|item| &mut item.expr).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SelectItem {
    pub(crate) expr: Expr,
    /// The name of the member in the result.
    pub(crate) name: String,
    /// The name was written with AS.
    pub(crate) explicit: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FromItem {
    pub(crate) alias: String,
    pub(crate) source: Source,
    /// `alias IN source`: one row per element instead of one row.
    pub(crate) iterate: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// An alias in scope or the container, with a path.
    Path(Expr),
    Subquery(Box<Select>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrderItem {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Const(Value<'static>),
    Parameter(String, Pos),
    /// An alias of a FROM clause.
    Name(String, Pos),
    /// The item the query runs over; the text calls it by the name given.
    Root(String),
    Member(Box<Expr>, Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Coalesce(Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Expr>, Negated),
    Between(Box<Expr>, Box<Expr>, Box<Expr>, Negated),
    Like(Box<Expr>, Box<Expr>, Option<char>, Negated),
    Call(&'static Function, Vec<Expr>),
    Aggregate(Aggregate, Box<Expr>, usize, Pos),
    /// The value of a GROUP BY expression.
    GroupKey(usize),
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Exists(Box<Select>),
    ArrayOf(Box<Select>),
    Scalar(Box<Select>),
}

/// Whether NOT precedes IN, BETWEEN or LIKE.
pub(crate) type Negated = bool;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Minus,
    Plus,
    BitNot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Concat,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl Binary {
    /// The operator of a sign, and how tightly it binds.
    pub(crate) fn of(sign: &str) -> Option<(Self, u8)> {
        Some(match sign {
            "|" => (Self::BitOr, 3),
            "^" => (Self::BitXor, 4),
            "&" => (Self::BitAnd, 5),
            "=" => (Self::Equal, 6),
            "!=" | "<>" => (Self::NotEqual, 6),
            "<" => (Self::Less, 7),
            "<=" => (Self::LessEqual, 7),
            ">" => (Self::Greater, 7),
            ">=" => (Self::GreaterEqual, 7),
            "<<" => (Self::ShiftLeft, 8),
            ">>" => (Self::ShiftRight, 8),
            "+" => (Self::Add, 9),
            "-" => (Self::Subtract, 9),
            "||" => (Self::Concat, 9),
            "*" => (Self::Multiply, 10),
            "/" => (Self::Divide, 10),
            "%" => (Self::Remainder, 10),
            _ => return None,
        })
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Concat => "||",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
        }
    }
}

impl Expr {
    pub(crate) fn text(value: impl Into<String>) -> Self {
        Self::Const(Value::text(value.into()))
    }

    /// The expressions directly inside, without those of subqueries.
    pub(crate) fn children_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Self::Const(_) | Self::Parameter(..) | Self::Name(..) | Self::Root(_) | Self::GroupKey(_) => Vec::new(),
            Self::Exists(_) | Self::ArrayOf(_) | Self::Scalar(_) => Vec::new(),
            Self::Unary(_, a) | Self::Aggregate(_, a, ..) => vec![a],
            Self::Member(a, b) | Self::Binary(_, a, b) | Self::Coalesce(a, b) | Self::Like(a, b, ..) => vec![a, b],
            Self::Conditional(a, b, c) | Self::Between(a, b, c, _) => vec![a, b, c],
            Self::And(list) | Self::Or(list) | Self::Call(_, list) | Self::Array(list) => list.iter_mut().collect(),
            Self::In(a, list, _) => std::iter::once(&mut **a).chain(list.iter_mut()).collect(),
            Self::Object(list) => list.iter_mut().map(|(_, value)| value).collect(),
        }
    }

    pub(crate) fn subquery_mut(&mut self) -> Option<&mut Select> {
        match self {
            Self::Exists(select) | Self::ArrayOf(select) | Self::Scalar(select) => Some(select),
            _ => None,
        }
    }
}

impl Select {
    /// Every expression of this query's own clauses; subqueries of the FROM clause are apart.
    pub(crate) fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        let mut found = self.projection.expressions_mut();
        for item in &mut self.from {
            if let Source::Path(expr) = &mut item.source {
                found.push(expr);
            }
        }
        found.extend(&mut self.filter);
        found.extend(&mut self.group_by);
        found.extend(self.order_by.iter_mut().map(|item| &mut item.expr));
        found.extend(self.aggregates.iter_mut().map(|(_, expr)| expr));
        found
    }

    pub(crate) fn counts_mut(&mut self) -> Vec<&mut Count> {
        let mut found: Vec<&mut Count> = self.top.iter_mut().collect();
        if let Some((offset, limit)) = &mut self.offset_limit {
            found.push(offset);
            found.push(limit);
        }
        found
    }
}
