"""Parser of `ingest.select` and `ingest.where`, on the driver: sqlglot reads Spark's SQL, and the list decides.

Nothing of the text reaches a table or a file before each of its functions and operators was found in the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from sqlglot import exp, parse
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows import sql_query as sql
from tiered_stream.formats.rows.sql_query import SelectItem, SqlQuery, Tree
from tiered_stream.formats.sql.functions import ALIASES, FUNCTIONS
from tiered_stream.formats.sql.row_query import SELECT_SETTING, WHERE_SETTING

LIST_PAGE = "docs/guides/typed-tables.md#sql"
MAX_LENGTH = 10_000
"""Maximum number of characters of a setting."""
MAX_DEPTH = 50
"""Maximum depth of an expression."""
_WHOLE = re.compile(r"\d+", re.ASCII)
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.And: "and", exp.Or: "or", exp.Not: "not", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">",
    exp.GTE: ">=", exp.NullSafeEQ: "<=>", exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
    exp.Neg: "negative", exp.DPipe: "concat",
}  # fmt: skip


class _NamesKept(SparkParser):
    """Parser that leaves calls of functions as they are written, because the list knows Spark's names."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


class _Dialect(Spark):
    Parser = _NamesKept


def parse_query(select: str | None, where: str | None) -> SqlQuery | None:
    """Return the parsed settings, or None if neither is set.

    Raises:
        ConfigurationError: a text is no SQL, or has a function or operator that is not on the list.
    """
    if select is None and where is None:
        return None
    items = () if select is None else tuple(_item(text) for text in _items(select))
    if where is None:
        return SqlQuery(items)
    tree = _Trees(WHERE_SETTING, where).parsed(lambda found: not isinstance(found, exp.Alias | exp.Star))
    return SqlQuery(items, tree, where.strip())


def _item(text: str) -> SelectItem:
    trees = _Trees(SELECT_SETTING, text)
    found = trees.expression()
    if isinstance(found, exp.Star) and not any(found.args.values()):
        return SelectItem(text)
    alias = found.args.get("alias") if isinstance(found, exp.Alias) else None
    if isinstance(found, exp.Alias) and not isinstance(alias, exp.Identifier):
        raise trees.refused(found)
    tree = trees.tree(found.this if alias is not None else found)
    if alias is None and tree.op not in (sql.COLUMN, sql.FIELD):
        raise ConfigurationError(f"{SELECT_SETTING} has {text!r:.300} without a name: add AS and a name")
    return SelectItem(text, tree.text if alias is None else str(alias.this), tree)


def _items(select: str) -> list[str]:
    """Split the setting at its commas that are in no parentheses."""
    depth, start, items = 0, 0, []
    for token in _tokens(SELECT_SETTING, select):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.COMMA and depth == 0:
            items.append(select[start : token.start].strip())
            start = token.end + 1
    return [*items, select[start:].strip()]


def _tokens(setting: str, text: str) -> list[Token]:
    """Return the tokens of the text.

    Raises:
        ConfigurationError: the text is too long, or has text literals that Spark reads by its settings.
    """
    if len(text) > MAX_LENGTH:
        raise ConfigurationError(f"{setting} has {len(text):,} characters: it may have {MAX_LENGTH:,}")
    if "\\" in text:
        raise ConfigurationError(f"{setting} has a backslash, which Spark reads by its settings: write it without one")
    try:
        tokens: list[Token] = _Dialect().tokenize(text)
    except SqlglotError as error:
        raise _no_sql(setting, text, error) from error
    if any(token.comments for token in tokens):
        raise ConfigurationError(f"{setting} has a comment: remove it")
    if any(token.token_type == TokenType.STRING and text[token.start] != "'" for token in tokens):
        raise ConfigurationError(f"{setting} has a text in double quotes, which Spark reads by its settings: use '…'")
    return tokens


def _no_sql(setting: str, text: str, error: Exception) -> ConfigurationError:
    line = re.sub(r"\x1b\[\d*m", "", str(error)).partition("\n")[0]
    return ConfigurationError(f"{setting} has {text!r:.300}, which is no SQL expression: {line:.300}")


class _Trees:
    """Conversion of sqlglot's expressions to trees, for one text of a setting."""

    def __init__(self, setting: str, text: str) -> None:
        self._setting, self._text = setting, text

    def expression(self) -> exp.Expr:
        """Return the one expression in the text.

        Raises:
            ConfigurationError: the text is no SQL expression, or has more than one.
        """
        _tokens(self._setting, self._text)
        try:
            statements = parse("SELECT " + self._text, read=_Dialect)
        except (SqlglotError, RecursionError) as error:
            raise _no_sql(self._setting, self._text, error) from error
        (statement, *others) = statements
        given = {name for name, value in statement.args.items() if value} if statement is not None else set()
        found = statement.args.get("expressions", []) if statement is not None else []
        if others or given != {"expressions"} or len(found) != 1 or not isinstance(statement, exp.Select):
            raise ConfigurationError(f"{self._setting} has {self._text!r:.300}, which is not one SQL expression")
        only: exp.Expr = found[0]
        return only

    def parsed(self, allowed: Callable[[exp.Expr], bool]) -> Tree:
        found = self.expression()
        if not allowed(found):
            raise self.refused(found)
        return self.tree(found)

    def refused(self, found: exp.Expr) -> ConfigurationError:
        """Return the error for an expression that is not on the list, which it names."""
        if isinstance(found, exp.Anonymous):
            name = f"the function {str(found.this).lower()}"
        else:
            name = f"{type(found).__name__.upper()} ({found.sql(dialect='spark')!r:.100})"
        return ConfigurationError(
            f"{self._setting} has {name}, which is not on the list of SQL that both lanes give the same result for "
            f"({LIST_PAGE}). Use a function of the list, or ingest.transform"
        )

    def tree(self, found: exp.Expr, depth: int = 0) -> Tree:
        """Return the tree of an expression.

        Raises:
            ConfigurationError: the expression has a function or operator that is not on the list, or is too deep.
        """
        if depth > MAX_DEPTH:
            raise ConfigurationError(f"{self._setting} is nested more than {MAX_DEPTH} levels deep")

        def tree(inner: exp.Expr) -> Tree:
            return self.tree(inner, depth + 1)

        match found:
            case exp.Paren():
                return tree(found.this)
            case exp.Column() | exp.Dot():
                return self._named(found)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return _literal(found)
            case exp.Neg(args={"this": exp.Literal(is_string=False) as number}):
                positive = _literal(number)
                return replace(positive, text="-" + positive.text)
            case exp.Anonymous():
                return self._call(found, [tree(arg) for arg in found.expressions])
            case exp.Cast() | exp.Case():
                return _cast(found, tree) if isinstance(found, exp.Cast) else _case(found, tree)
        if (op := _OPERATORS.get(type(found))) is not None:
            sides = [found.this] if isinstance(found, exp.Unary) else [found.this, found.expression]
            return Tree(op, tuple(map(tree, sides)))
        return self._predicate(found, tree)

    def _predicate(self, found: exp.Expr, tree: Callable[[exp.Expr], Tree]) -> Tree:
        match found:
            case exp.Is(args={"this": value, "expression": exp.Null()}):
                return Tree("isnull", (tree(value),))
            case exp.Is(args={"this": value, "expression": exp.Boolean() as wanted}):
                return Tree("istrue" if wanted.this else "isfalse", (tree(value),))
            case exp.In() if found.expressions and not any(found.args.get(key) for key in ("query", "unnest", "field")):
                return Tree("in", tuple(map(tree, [found.this, *found.expressions])))
            case exp.Between() if not found.args.get("symmetric"):
                return Tree("between", tuple(map(tree, [found.this, found.args["low"], found.args["high"]])))
            case exp.Like():
                like = Tree("like", (tree(found.this), tree(found.expression)))
                return Tree("not", (like,)) if found.args.get("negate") else like
            case exp.NullSafeNEQ():
                return Tree("not", (Tree("<=>", (tree(found.this), tree(found.expression))),))
        raise self.refused(found)

    def _named(self, found: exp.Column | exp.Dot) -> Tree:
        parts = list(found.parts)
        if not all(isinstance(part, exp.Identifier) for part in parts):
            raise self.refused(found)
        first, *others = (str(part.this) for part in parts)
        tree = Tree(sql.COLUMN, text=first)
        for name in others:
            tree = Tree(sql.FIELD, (tree,), name)
        return tree

    def _call(self, found: exp.Anonymous, args: list[Tree]) -> Tree:
        name = str(found.this).lower()
        name = ALIASES.get(name, name)
        function = FUNCTIONS.get(name)
        if function is None or not name[0].isalpha() or f"`{name}(" not in function.forms:
            raise self.refused(found)
        if len(args) < function.least or (function.most is not None and len(args) > function.most):
            raise ConfigurationError(f"{self._setting} has {name} with {len(args)} arguments: write {function.forms}")
        return Tree(name, tuple(args))


def _cast(found: exp.Cast, tree: Callable[[exp.Expr], Tree]) -> Tree:
    # A TryCast is a Cast, and Spark's CAST is a TryCast that is not safe.
    op = sql.TRY_CAST if found.args.get("safe") else sql.CAST
    return Tree(op, (tree(found.this),), found.to.sql(dialect="spark"))


def _case(found: exp.Case, tree: Callable[[exp.Expr], Tree]) -> Tree:
    value = None if found.this is None else tree(found.this)
    args: list[Tree] = []
    for branch in found.args["ifs"]:
        condition = tree(branch.this)
        args += [condition if value is None else Tree("=", (value, condition)), tree(branch.args["true"])]
    default = found.args.get("default")
    return Tree(sql.CASE, (*args, *([] if default is None else [tree(default)])))


def _literal(found: exp.Literal | exp.Boolean | exp.Null) -> Tree:
    if isinstance(found, exp.Null):
        return Tree(sql.NULL)
    if isinstance(found, exp.Boolean):
        return Tree(sql.BOOLEAN, text="true" if found.this else "false")
    text = str(found.this)
    if found.is_string:
        return Tree(sql.STRING, text=text)
    kind = sql.INTEGER if _WHOLE.fullmatch(text) else sql.DOUBLE if "e" in text.lower() else sql.DECIMAL
    return Tree(kind, text=text)
