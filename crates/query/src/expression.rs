//! Tokens to the tree: expressions, by precedence climbing.

use crate::aggregate::Aggregate;
use crate::ast::{Binary, Expr, MAX_DEPTH, Unary};
use crate::error::SqlError;
use crate::functions;
use crate::lexer::Kind;
use crate::parser::{Parser, is_reserved};
use crate::value::Value;

/// OR and AND bind loosest, then NOT, then the operators of [`Binary::of`].
const OR: u8 = 1;
const AND: u8 = 2;
const FIRST_OPERATOR: u8 = 3;
/// IN, BETWEEN and LIKE bind as `=` does.
const EQUALITY: u8 = 6;

/// An expression and how deep it nests.
pub(crate) struct Sub {
    pub(crate) expr: Expr,
    pub(crate) depth: usize,
}

impl Parser<'_> {
    pub(crate) fn check_depth(&self, depth: usize) -> Result<(), SqlError> {
        if depth > MAX_DEPTH {
            return self.error(self.pos(), format!("the query nests deeper than {MAX_DEPTH} levels: simplify it"));
        }
        Ok(())
    }

    fn sub(&self, expr: Expr, inner: usize) -> Result<Sub, SqlError> {
        self.check_depth(inner + 1)?;
        Ok(Sub { expr, depth: inner + 1 })
    }

    /// A whole expression: `a ? b : c` and `a ?? b` bind loosest.
    pub(crate) fn expr(&mut self) -> Result<Sub, SqlError> {
        self.depth += 1;
        self.check_depth(self.depth)?;
        let mut left = self.binary(OR)?;
        while self.take_sign("??") {
            let right = self.binary(OR)?;
            let depth = left.depth.max(right.depth);
            left = self.sub(Expr::Coalesce(Box::new(left.expr), Box::new(right.expr)), depth)?;
        }
        if self.take_sign("?") {
            let yes = self.expr()?;
            self.expect_sign(":")?;
            let no = self.expr()?;
            let depth = left.depth.max(yes.depth).max(no.depth);
            let expr = Expr::Conditional(Box::new(left.expr), Box::new(yes.expr), Box::new(no.expr));
            left = self.sub(expr, depth)?;
        }
        self.depth -= 1;
        self.deepest = self.deepest.max(left.depth);
        Ok(left)
    }

    pub(crate) fn expr_list(&mut self) -> Result<Vec<Expr>, SqlError> {
        Ok(self.list()?.0)
    }

    /// One or more expressions, and how deep the deepest nests.
    fn list(&mut self) -> Result<(Vec<Expr>, usize), SqlError> {
        let mut list = Vec::new();
        let mut depth = 0;
        loop {
            let item = self.expr()?;
            depth = depth.max(item.depth);
            list.push(item.expr);
            if !self.take_sign(",") {
                return Ok((list, depth));
            }
        }
    }

    fn binary(&mut self, level: u8) -> Result<Sub, SqlError> {
        match level {
            OR => self.chain("OR", AND, Expr::Or),
            AND => self.chain("AND", FIRST_OPERATOR, Expr::And),
            _ => self.operators(level),
        }
    }

    /// `a AND b AND c` as one flat list, however long.
    fn chain(&mut self, word: &str, next: u8, build: fn(Vec<Expr>) -> Expr) -> Result<Sub, SqlError> {
        let first = self.binary(next)?;
        if !self.is_word(word) {
            return Ok(first);
        }
        let mut depth = first.depth;
        let mut list = vec![first.expr];
        while self.take_word(word) {
            let item = self.binary(next)?;
            depth = depth.max(item.depth);
            list.push(item.expr);
        }
        self.sub(build(list), depth)
    }

    fn operators(&mut self, level: u8) -> Result<Sub, SqlError> {
        let mut left = self.unary()?;
        loop {
            if let Kind::Sign(sign) = *self.peek() {
                let Some((operator, binding)) = Binary::of(sign).filter(|(_, binding)| *binding >= level) else {
                    return Ok(left);
                };
                self.advance();
                let right = self.operators(binding + 1)?;
                let depth = left.depth.max(right.depth);
                left = self.sub(Expr::Binary(operator, Box::new(left.expr), Box::new(right.expr)), depth)?;
            } else if level <= EQUALITY && self.at_membership() {
                left = self.membership(left)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn at_membership(&self) -> bool {
        let ahead = usize::from(self.is_word("NOT"));
        ["IN", "BETWEEN", "LIKE"].iter().any(|word| self.word_at(ahead, word))
    }

    /// `[NOT] IN (..)`, `[NOT] BETWEEN a AND b`, `[NOT] LIKE p [ESCAPE c]`, after their left operand.
    fn membership(&mut self, left: Sub) -> Result<Sub, SqlError> {
        let negated = self.take_word("NOT");
        let subject = Box::new(left.expr);
        if self.take_word("IN") {
            self.expect_sign("(")?;
            let (list, depth) = self.list()?;
            self.expect_sign(")")?;
            return self.sub(Expr::In(subject, list, negated), left.depth.max(depth));
        }
        if self.take_word("BETWEEN") {
            let low = self.operators(EQUALITY + 1)?;
            if !self.take_word("AND") {
                return self.wanted("AND of BETWEEN");
            }
            let high = self.operators(EQUALITY + 1)?;
            let depth = left.depth.max(low.depth).max(high.depth);
            return self.sub(Expr::Between(subject, Box::new(low.expr), Box::new(high.expr), negated), depth);
        }
        self.advance();
        let pattern = self.operators(EQUALITY + 1)?;
        let escape = if self.take_word("ESCAPE") { Some(self.escape()?) } else { None };
        let depth = left.depth.max(pattern.depth);
        self.sub(Expr::Like(subject, Box::new(pattern.expr), escape, negated), depth)
    }

    fn escape(&mut self) -> Result<char, SqlError> {
        if let Kind::Text(text) = self.peek() {
            let mut chars = text.chars();
            if let (Some(c), None) = (chars.next(), chars.next()) {
                self.advance();
                return Ok(c);
            }
        }
        self.wanted("one character in quotes after ESCAPE")
    }

    /// Prefix operators. NOT applies to the comparison that follows, so that `NOT c.a = 1` means `NOT (c.a = 1)`.
    fn unary(&mut self) -> Result<Sub, SqlError> {
        if !self.is_word("NOT") && !["-", "+", "~"].iter().any(|sign| self.is_sign(sign)) {
            return self.postfix();
        }
        self.depth += 1;
        self.check_depth(self.depth)?;
        let found = if self.take_word("NOT") {
            let operand = self.operators(FIRST_OPERATOR)?;
            self.sub(Expr::Unary(Unary::Not, Box::new(operand.expr)), operand.depth)?
        } else if let Some(operator) = self.prefix() {
            let operand = self.unary()?;
            match (operator, operand.expr) {
                (Unary::Minus, Expr::Const(Value::Number(n, _))) => {
                    Sub { expr: Expr::Const(Value::number(-n)), depth: operand.depth }
                }
                (_, expr) => self.sub(Expr::Unary(operator, Box::new(expr)), operand.depth)?,
            }
        } else {
            self.postfix()?
        };
        self.depth -= 1;
        Ok(found)
    }

    fn prefix(&mut self) -> Option<Unary> {
        [("-", Unary::Minus), ("+", Unary::Plus), ("~", Unary::BitNot)]
            .into_iter()
            .find(|(sign, _)| self.take_sign(sign))
            .map(|(_, operator)| operator)
    }

    /// A primary expression with `.name` and `[expr]` after it.
    fn postfix(&mut self) -> Result<Sub, SqlError> {
        let mut base = self.primary()?;
        loop {
            let (key, depth) = if self.take_sign(".") {
                (Expr::text(self.any_word()?), 1)
            } else if self.take_sign("[") {
                let key = self.expr()?;
                self.expect_sign("]")?;
                (key.expr, key.depth)
            } else {
                return Ok(base);
            };
            let depth = base.depth.max(depth);
            base = self.sub(Expr::Member(Box::new(base.expr), Box::new(key)), depth)?;
        }
    }

    fn primary(&mut self) -> Result<Sub, SqlError> {
        let pos = self.pos();
        let leaf = match self.peek() {
            Kind::Number(n) => Expr::Const(Value::number(*n)),
            Kind::Text(text) => Expr::text(text.clone()),
            Kind::Parameter(name) => Expr::Parameter(name.clone(), pos),
            Kind::Word(word) => {
                let word = word.clone();
                return self.word(&word);
            }
            Kind::Sign("(") => return self.parenthesis(),
            Kind::Sign("[") => return self.array(),
            Kind::Sign("{") => return self.object(),
            _ => return self.wanted("an expression"),
        };
        self.advance();
        Ok(Sub { expr: leaf, depth: 1 })
    }

    fn parenthesis(&mut self) -> Result<Sub, SqlError> {
        self.advance();
        if self.is_word("SELECT") {
            let (select, depth) = self.subquery()?;
            return self.sub(Expr::Scalar(select), depth);
        }
        let inner = self.expr()?;
        self.expect_sign(")")?;
        Ok(inner)
    }

    fn array(&mut self) -> Result<Sub, SqlError> {
        self.advance();
        if self.take_sign("]") {
            return Ok(Sub { expr: Expr::Array(Vec::new()), depth: 1 });
        }
        let (list, depth) = self.list()?;
        self.expect_sign("]")?;
        self.sub(Expr::Array(list), depth)
    }

    fn object(&mut self) -> Result<Sub, SqlError> {
        self.advance();
        let mut members = Vec::new();
        let mut depth = 0;
        if self.take_sign("}") {
            return Ok(Sub { expr: Expr::Object(members), depth: 1 });
        }
        loop {
            let key = match self.peek() {
                Kind::Text(text) => text.clone(),
                Kind::Word(word) => word.clone(),
                _ => return self.wanted("a property name"),
            };
            self.advance();
            self.expect_sign(":")?;
            let value = self.expr()?;
            depth = depth.max(value.depth);
            members.push((key, value.expr));
            if !self.take_sign(",") {
                break;
            }
        }
        self.expect_sign("}")?;
        self.sub(Expr::Object(members), depth)
    }

    /// A literal, EXISTS or ARRAY of a subquery, a call or an alias.
    fn word(&mut self, word: &str) -> Result<Sub, SqlError> {
        let pos = self.pos();
        let upper = word.to_ascii_uppercase();
        let called = *self.peek_at(1) == Kind::Sign("(");
        if called && matches!(upper.as_str(), "EXISTS" | "ARRAY") {
            self.advance();
            self.advance();
            let (select, depth) = self.subquery()?;
            let expr = if upper == "EXISTS" { Expr::Exists(select) } else { Expr::ArrayOf(select) };
            return self.sub(expr, depth);
        }
        let literal = match upper.as_str() {
            "TRUE" => Some(Value::Bool(true)),
            "FALSE" => Some(Value::Bool(false)),
            "NULL" => Some(Value::Null),
            "UNDEFINED" => Some(Value::Undefined),
            _ => None,
        };
        if let Some(value) = literal {
            self.advance();
            return Ok(Sub { expr: Expr::Const(value), depth: 1 });
        }
        if is_reserved(word) && !(called && functions::find(word).is_some()) {
            return self.wanted("an expression");
        }
        if upper == "UDF" && *self.peek_at(1) == Kind::Sign(".") {
            let refused: Result<Sub, SqlError> = self.error(pos, "user-defined functions (udf.) are not supported");
            return refused.map_err(SqlError::unsupported);
        }
        self.advance();
        if called { self.call(word) } else { Ok(Sub { expr: Expr::Name(word.to_owned(), pos), depth: 1 }) }
    }

    /// The arguments of a call, and whether its function exists and takes that many.
    fn call(&mut self, word: &str) -> Result<Sub, SqlError> {
        let pos = crate::ast::Pos(self.pos().0.saturating_sub(word.len()));
        self.advance();
        let (mut list, depth) = if self.is_sign(")") { (Vec::new(), 0) } else { self.list()? };
        self.expect_sign(")")?;
        if let Some(aggregate) = Aggregate::of(word) {
            let Some(argument) = list.pop().filter(|_| list.is_empty()) else {
                return self.error(pos, format!("{} takes one argument", aggregate.name()));
            };
            return self.sub(Expr::Aggregate(aggregate, Box::new(argument), 0, pos), depth);
        }
        let Some(function) = functions::find(word) else {
            let refused: Result<Sub, SqlError> = self.error(pos, functions::unknown(word));
            return if functions::is_absent(word) { refused.map_err(SqlError::unsupported) } else { refused };
        };
        if !function.takes(list.len()) {
            return self.error(pos, format!("{} takes {}, not {}", function.name, function.arity(), list.len()));
        }
        self.sub(Expr::Call(function, list), depth)
    }
}
