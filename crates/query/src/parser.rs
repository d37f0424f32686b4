//! Tokens to the tree: clauses. Expressions are in [`crate::expression`].

use crate::ast::{Count, Expr, FromItem, OrderItem, Pos, Projection, Select, SelectItem, Source};
use crate::error::SqlError;
use crate::lexer::{Kind, Token, tokens};
use crate::value::Value;

/// Longer texts are refused, as Cosmos DB does.
pub(crate) const MAX_TEXT: usize = 512 * 1024;
/// Subqueries inside subqueries: each level costs several frames of the stack.
const MAX_SUBQUERIES: usize = 16;
/// Inputs of one FROM clause: each multiplies the work.
const MAX_INPUTS: usize = 16;

/// Words that cannot be an alias or start an expression as a name.
const RESERVED: [&str; 25] = [
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "DESC",
    "DISTINCT",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "IN",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "TRUE",
    "UNDEFINED",
    "WHERE",
];

/// Parses one whole query.
pub(crate) fn query(text: &str) -> Result<Select, SqlError> {
    let mut parser = Parser::new(text)?;
    let select = parser.select()?;
    parser.end()?;
    Ok(select)
}

/// Parses `FROM c WHERE ...`, the condition of a patch.
pub(crate) fn condition(text: &str) -> Result<Select, SqlError> {
    let mut parser = Parser::new(text)?;
    let mut select = Select {
        distinct: false,
        top: None,
        projection: Projection::Value(Expr::Const(Value::Bool(true))),
        from: Vec::new(),
        filter: None,
        group_by: Vec::new(),
        order_by: Vec::new(),
        offset_limit: None,
        aggregates: Vec::new(),
    };
    parser.expect_word("FROM")?;
    select.from = parser.from()?;
    parser.expect_word("WHERE")?;
    select.filter = Some(parser.expr()?.expr);
    parser.end()?;
    Ok(select)
}

pub(crate) struct Parser<'t> {
    pub(crate) text: &'t str,
    tokens: Vec<Token>,
    at: usize,
    /// How deep the parser itself has descended.
    pub(crate) depth: usize,
    subqueries: usize,
    /// How deep the expressions of the current query nest.
    pub(crate) deepest: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Self, SqlError> {
        if text.len() > MAX_TEXT {
            return Err(SqlError::new(format!(
                "the query text has {} bytes; at most {MAX_TEXT} are allowed: pass long values as parameters",
                text.len()
            )));
        }
        Ok(Self { text, tokens: tokens(text)?, at: 0, depth: 0, subqueries: 0, deepest: 0 })
    }

    pub(crate) fn peek(&self) -> &Kind {
        self.peek_at(0)
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> &Kind {
        self.tokens.get(self.at + ahead).map_or(&Kind::End, |token| &token.kind)
    }

    pub(crate) fn pos(&self) -> Pos {
        Pos(self.tokens.get(self.at).map_or(self.text.len(), |token| token.start))
    }

    pub(crate) fn advance(&mut self) {
        self.at += 1;
    }

    pub(crate) fn error<T>(&self, pos: Pos, message: impl Into<String>) -> Result<T, SqlError> {
        Err(SqlError::at(self.text, pos.0, message))
    }

    /// An error with the expected and the actual token.
    pub(crate) fn wanted<T>(&self, what: &str) -> Result<T, SqlError> {
        let found = match self.peek() {
            Kind::Word(word) => format!("'{word}'"),
            Kind::Parameter(name) => name.clone(),
            Kind::Number(n) => n.to_string(),
            Kind::Text(_) => "a string".to_owned(),
            Kind::Sign(sign) => format!("'{sign}'"),
            Kind::End => "the end of the query".to_owned(),
        };
        self.error(self.pos(), format!("syntax error: expected {what}, found {found}"))
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word_at(0, word)
    }

    pub(crate) fn word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead), Kind::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), SqlError> {
        if self.take_word(word) { Ok(()) } else { self.wanted(word) }
    }

    pub(crate) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Kind::Sign(found) if *found == sign)
    }

    pub(crate) fn take_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect_sign(&mut self, sign: &str) -> Result<(), SqlError> {
        if self.take_sign(sign) { Ok(()) } else { self.wanted(&format!("'{sign}'")) }
    }

    /// A name that is no keyword.
    pub(crate) fn name(&mut self, what: &str) -> Result<String, SqlError> {
        match self.peek() {
            Kind::Word(word) if !is_reserved(word) => {
                let word = word.clone();
                self.advance();
                Ok(word)
            }
            _ => self.wanted(what),
        }
    }

    fn end(&mut self) -> Result<(), SqlError> {
        if *self.peek() == Kind::End { Ok(()) } else { self.wanted("the end of the query") }
    }

    /// A query in parentheses, at its first word, and how deep its expressions nest.
    pub(crate) fn subquery(&mut self) -> Result<(Box<Select>, usize), SqlError> {
        if self.subqueries == MAX_SUBQUERIES {
            return self.error(self.pos(), format!("subqueries are nested deeper than {MAX_SUBQUERIES} levels"));
        }
        self.subqueries += 1;
        let outside = std::mem::take(&mut self.deepest);
        let select = self.select()?;
        let depth = std::mem::replace(&mut self.deepest, 0) + 1;
        self.deepest = outside.max(depth);
        self.subqueries -= 1;
        self.check_depth(depth)?;
        self.expect_sign(")")?;
        Ok((Box::new(select), depth))
    }

    fn select(&mut self) -> Result<Select, SqlError> {
        self.expect_word("SELECT")?;
        let distinct = self.take_word("DISTINCT");
        let top = if self.is_word("TOP")
            && matches!(self.peek_at(1), Kind::Number(_) | Kind::Parameter(_) | Kind::Sign("-"))
        {
            self.advance();
            Some(self.count("TOP")?)
        } else {
            None
        };
        let projection = self.projection()?;
        let from = if self.take_word("FROM") { self.from()? } else { Vec::new() };
        let filter = if self.take_word("WHERE") { Some(self.expr()?.expr) } else { None };
        let group_by = if self.take_word("GROUP") {
            self.expect_word("BY")?;
            self.expr_list()?
        } else {
            Vec::new()
        };
        let order_by = self.order_by()?;
        let clause = self.pos();
        let offset_limit = if self.take_word("OFFSET") {
            let offset = self.count("OFFSET")?;
            self.expect_word("LIMIT")?;
            Some((offset, self.count("LIMIT")?))
        } else {
            None
        };
        if top.is_some() && offset_limit.is_some() {
            return self.error(clause, "TOP and OFFSET LIMIT cannot be used together: drop TOP");
        }
        Ok(Select { distinct, top, projection, from, filter, group_by, order_by, offset_limit, aggregates: Vec::new() })
    }

    fn count(&mut self, clause: &str) -> Result<Count, SqlError> {
        let pos = self.pos();
        let count = match self.peek() {
            Kind::Number(n) => match to_count(*n) {
                Some(count) => Count::Literal(count),
                None => return self.error(pos, count_error(clause)),
            },
            Kind::Parameter(name) => Count::Parameter(name.clone(), pos),
            _ => return self.wanted(&format!("a number or a parameter after {clause}")),
        };
        self.advance();
        Ok(count)
    }

    fn projection(&mut self) -> Result<Projection, SqlError> {
        if self.take_sign("*") {
            return Ok(Projection::Star);
        }
        // VALUE is a keyword unless it is itself used as a name.
        let is_name = match self.peek_at(1) {
            Kind::Sign(sign) => matches!(*sign, "." | ","),
            Kind::Word(word) => word.eq_ignore_ascii_case("FROM"),
            _ => false,
        };
        if self.is_word("VALUE") && !is_name {
            self.advance();
            return Ok(Projection::Value(self.expr()?.expr));
        }
        let mut items = Vec::new();
        let mut unnamed = 0;
        loop {
            items.push(self.select_item(&mut unnamed)?);
            if !self.take_sign(",") {
                return Ok(Projection::List(items));
            }
        }
    }

    fn select_item(&mut self, unnamed: &mut usize) -> Result<SelectItem, SqlError> {
        let expr = self.expr()?.expr;
        let named = self.take_word("AS") || matches!(self.peek(), Kind::Word(word) if !is_reserved(word));
        let alias = if named { Some(self.any_word()?) } else { None };
        let explicit = alias.is_some();
        let name = alias.or_else(|| inferred_name(&expr)).unwrap_or_else(|| {
            *unnamed += 1;
            format!("${unnamed}")
        });
        Ok(SelectItem { expr, name, explicit })
    }

    pub(crate) fn any_word(&mut self) -> Result<String, SqlError> {
        match self.peek() {
            Kind::Word(word) => {
                let word = word.clone();
                self.advance();
                Ok(word)
            }
            _ => self.wanted("a name"),
        }
    }

    fn from(&mut self) -> Result<Vec<FromItem>, SqlError> {
        let mut items = vec![self.input(0)?];
        while self.take_word("JOIN") {
            if items.len() == MAX_INPUTS {
                return self.error(self.pos(), format!("a FROM clause may join at most {MAX_INPUTS} inputs"));
            }
            let item = self.input(items.len())?;
            items.push(item);
        }
        Ok(items)
    }

    fn input(&mut self, index: usize) -> Result<FromItem, SqlError> {
        if !self.is_sign("(") && self.word_at(1, "IN") {
            let alias = self.name("an alias")?;
            self.advance();
            return Ok(FromItem { alias, source: self.source()?, iterate: true });
        }
        let source = self.source()?;
        let alias = if self.take_word("AS") || matches!(self.peek(), Kind::Word(word) if !is_reserved(word)) {
            self.name("an alias")?
        } else {
            match &source {
                Source::Path(path) => inferred_name(path).unwrap_or_else(|| format!("${index}")),
                Source::Subquery(_) => format!("${index}"),
            }
        };
        Ok(FromItem { alias, source, iterate: false })
    }

    fn source(&mut self) -> Result<Source, SqlError> {
        if self.take_sign("(") {
            return Ok(Source::Subquery(self.subquery()?.0));
        }
        let pos = self.pos();
        let mut path = Expr::Name(self.name("the name of the container or an alias")?, pos);
        let mut depth = 1;
        while let Some(key) = self.path_key()? {
            depth += 1;
            self.check_depth(depth)?;
            path = Expr::Member(Box::new(path), Box::new(key));
        }
        Ok(Source::Path(path))
    }

    /// `.name`, `["name"]` or `[0]`.
    fn path_key(&mut self) -> Result<Option<Expr>, SqlError> {
        if self.take_sign(".") {
            return Ok(Some(Expr::text(self.any_word()?)));
        }
        if !self.take_sign("[") {
            return Ok(None);
        }
        let key = match self.peek() {
            Kind::Text(name) => Expr::text(name.clone()),
            Kind::Number(n) => Expr::Const(Value::number(*n)),
            _ => return self.wanted("a property name in quotes or an index"),
        };
        self.advance();
        self.expect_sign("]")?;
        Ok(Some(key))
    }

    fn order_by(&mut self) -> Result<Vec<OrderItem>, SqlError> {
        let mut items = Vec::new();
        if !self.take_word("ORDER") {
            return Ok(items);
        }
        self.expect_word("BY")?;
        if self.is_word("RANK") && matches!(self.peek_at(1), Kind::Word(_)) {
            let refused = self.error(self.pos(), "ORDER BY RANK (full text and vector search) is not supported");
            return refused.map_err(SqlError::unsupported);
        }
        loop {
            let expr = self.expr()?.expr;
            let descending = self.take_word("DESC");
            if !descending {
                self.take_word("ASC");
            }
            items.push(OrderItem { expr, descending });
            if !self.take_sign(",") {
                return Ok(items);
            }
        }
    }
}

/// The name a projected expression has without AS: that of the alias or of the last property.
fn inferred_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Name(name, _) => Some(name.clone()),
        Expr::Member(_, key) => match &**key {
            Expr::Const(Value::Text(name, _)) => Some(name.clone().into_owned()),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// A number of rows: integral and not negative.
pub(crate) fn to_count(n: f64) -> Option<u64> {
    (n >= 0.0 && n.fract() == 0.0 && n <= f64::from(i32::MAX)).then_some(n as u64)
}

pub(crate) fn count_error(clause: &str) -> String {
    format!("{clause} takes an integer from 0 to {}", i32::MAX)
}
