"""Parser of SQL conditions and select lists to trees (`Tree`), with the operator precedence of Spark's grammar.

The grammar is the part of Spark's `SqlBaseParser.g4` for the functions and operators in `functions.py`. A text outside
this grammar is refused before any row is written. The driver parses each text once, and tasks get the trees as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.sql.functions import ALIASES, FUNCTIONS
from tiered_stream.formats.sql.sql_reader import SqlError, SqlReader, T, TokenKind, sql_name, unquoted

LIST_PAGE = "docs/guides/typed-tables.md#sql"
MAX_LENGTH = 10_000
"""Maximum number of characters of one SQL text."""
MAX_DEPTH = 50
"""Maximum depth of an expression."""
COLUMN, FIELD, CASE, CAST, TRY_CAST = "column", "field", "case", "cast", "try_cast"
NULL, BOOLEAN, INTEGER, DECIMAL, DOUBLE, STRING = (
    "null", "boolean", "integer", "decimal", "double", "string"
)  # fmt: skip
"""Operations (`Tree.op`) of literals. As in Spark, an `INTEGER` is INT or, if it does not fit, BIGINT or DECIMAL."""
LITERALS = frozenset({NULL, BOOLEAN, INTEGER, DECIMAL, DOUBLE, STRING})


@dataclass(frozen=True, slots=True)
class Tree:
    """Parsed SQL expression: an operation, its arguments, and a text.

    `op` is a constant of this module such as `COLUMN`, or an operator or function in lower case. `text` is the name of
    a column or field, the value of a literal, or the type of a cast, and otherwise ''. The arguments of `CASE` are
    pairs of condition and value, and perhaps one value for ELSE.
    """

    op: str
    args: tuple[Tree, ...] = ()
    text: str = ""

    def all(self) -> Iterator[Tree]:
        """Yield this tree and, at any depth, the trees of its arguments."""
        yield self
        for arg in self.args:
            yield from arg.all()


@dataclass(frozen=True, slots=True)
class SelectItem:
    """Item of a select list: its text as the user wrote it, the column's name, and the expression.

    If the item is `*`, the name is '' and there is no expression.
    """

    text: str
    name: str = ""
    tree: Tree | None = None


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """Parsed select list and condition. Without items, all columns are selected. Without `where`, all rows are kept."""

    select: tuple[SelectItem, ...] = ()
    where: Tree | None = None
    where_text: str = ""
    """Condition as the user wrote it."""


_RESERVED = frozenset(
    (
        "all", "and", "any", "as", "between", "case", "cast", "current_catalog", "current_database", "current_date",
        "current_path", "current_role", "current_schema", "current_time", "current_timestamp", "current_user",
        "distinct", "div", "else", "end", "escape", "exists", "false", "from", "ilike", "in", "interval", "is",
        "like", "localtime", "localtimestamp", "not", "null", "or", "regexp", "rlike", "select", "session_user",
        "some", "system_user", "then", "true", "try_cast", "user", "when",
    )
)  # fmt: skip
"""Words that are names only in back quotes. For some of them, Spark's settings decide whether quotes are needed."""
_POWERS = {
    **dict.fromkeys(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"), 1), **dict.fromkeys(("+", "-", "||"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}  # fmt: skip
"""Precedence of binary operators: a larger number binds tighter, and equal numbers bind from left to right."""
_OPERATIONS = {"==": "=", "!=": "<>", "||": "concat"}
_INTEGERS = {"L": "BIGINT", "S": "SMALLINT", "Y": "TINYINT"}
"""Type of an integer literal, by the letter that ends the literal, as in `3L`."""
_TIMES = ("DATE", "TIMESTAMP")


def parse_query(select: str | None, where: str | None) -> SqlQuery | None:
    """Parse a select list and a condition. The result is None if both are None.

    `select` None means all columns, and `where` None means all rows.

    Raises:
        ConfigurationError: a text is not SQL, or has a function or operator that is not supported.
    """
    if select is None and where is None:
        return None
    items = () if select is None else _parsed(select, _Parser.items)
    return SqlQuery(items) if where is None else SqlQuery(items, parse_condition(where), where.strip())


def parse_condition(text: str) -> Tree:
    """Parse a condition, or any other SQL expression, and return its tree.

    Raises:
        ConfigurationError: the text is not SQL, or has a function or operator that is not supported.
    """
    return _parsed(text, _Parser.expression)


def _parsed(text: str, parse: Callable[[_Parser], T]) -> T:
    try:
        parser = _Parser(text)
        found = parse(parser)
        parser.expect_end()
    except SqlError as error:
        raise ConfigurationError(f"{text!r:.300} is no SQL of the list ({LIST_PAGE}): {error}") from error
    return found


class _Parser(SqlReader):
    """Recursive descent parser. A method that returns a `Tree` parses one part of SQL and consumes its tokens."""

    MAX_DEPTH = MAX_DEPTH
    HAS_COMMENTS = False

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise SqlError(f"it has {len(text):,} characters, and may have {MAX_LENGTH:,}")
        for mark, what in {"\\": "a backslash", "${": "${ for a variable"}.items():
            if mark in text:
                raise SqlError(f"it has {what}, which Spark reads by its settings: write it without")
        super().__init__(text)
        if any(token.kind == TokenKind.TEXT and token.text[0] == '"' for token in self.tokens):
            raise SqlError("it has a text in double quotes, which Spark reads by its settings: use '…'")
        self._text = text

    def items(self) -> tuple[SelectItem, ...]:
        """Parse a select list, and return its items. An item is `*`, or an expression with its name."""
        return tuple(self.separated(self._item))

    def _item(self) -> SelectItem:
        start = self.now.start
        if self.now.text == "*" and self.ahead.text in (",", ""):
            return SelectItem(self.next().text)
        tree, named = self.expression(), self.takes("as")
        name = self._name() if named or self.now.text not in (",", "") else None
        text = self._text[start : self.now.start].strip()
        if name is None and tree.op not in (COLUMN, FIELD):
            raise SqlError(f"{text!r:.300} has no name: add AS and a name")
        return SelectItem(text, name or tree.text, tree)

    def expression(self) -> Tree:
        tree, depth = self._either(), 0
        level = [tree]
        while level:
            depth, level = depth + 1, [arg for each in level for arg in each.args]
        if depth > MAX_DEPTH:
            raise SqlError(f"it is nested more than {MAX_DEPTH} levels deep")
        return tree

    # Conditions (Spark: booleanExpression, predicate)

    def _either(self) -> Tree:
        return self._chain("or", lambda: self._chain("and", self._negated))

    def _chain(self, word: str, operand: Callable[[], Tree]) -> Tree:
        trees = self.separated(operand, word)
        return Tree(word, tuple(trees)) if len(trees) > 1 else trees[0]

    def _negated(self) -> Tree:
        if self.takes("not") or self.takes("!"):
            with self.within():
                return Tree("not", (self._negated(),))
        return self._predicated()

    def _predicated(self) -> Tree:
        value = self._value()
        if self.takes("is"):
            negated = self.takes("not")
            if self.takes("distinct"):
                self.expect("from")
                tree, negated = Tree("<=>", (value, self._value())), not negated
            else:
                word = self.now.text.lower()
                if word not in ("null", "true", "false"):
                    raise self.unexpected()
                self.next()
                tree = Tree(f"is{word}", (value,))
            return Tree("not", (tree,)) if negated else tree
        negated = self.takes("not")
        if self.takes("between"):
            low = self._value()
            self.expect("and")
            tree = Tree("between", (value, low, self._value()))
        elif self.takes("in"):
            self.expect("(")
            tree = Tree("in", (value, *self._arguments()))
        elif self.takes("like"):
            tree = Tree("like", (value, self._value()))
        elif negated:
            raise self.unexpected()
        else:
            return value
        return Tree("not", (tree,)) if negated else tree

    # Values (Spark: valueExpression, primaryExpression)

    def _value(self, least: int = 1) -> Tree:
        """Parse an expression without conditions, whose binary operators have at least the precedence `least`.

        `_POWERS` has the precedence of each operator.
        """
        tree = self._signed()
        while self.now.kind == TokenKind.MARK and (power := _POWERS.get(self.now.text, 0)) >= least:
            op = self.next().text
            tree = Tree(_OPERATIONS.get(op, op), (tree, self._value(power + 1)))
        return tree

    def _signed(self) -> Tree:
        if self.now.text == "-" and self.ahead.kind != TokenKind.NUMBER:
            self.next()
            with self.within():
                return Tree("negative", (self._signed(),))
        tree = self._primary()
        while self.takes("::"):
            tree = Tree(CAST, (tree,), sql_name(self.type()))
        return tree

    def _primary(self) -> Tree:
        token, ahead = self.now, self.ahead
        word = token.text.lower() if token.kind == TokenKind.NAME else ""
        if token.kind == TokenKind.TEXT:
            return Tree(STRING, text=self._plain_text())
        if token.kind == TokenKind.NUMBER or token.text == "-":
            return self._number()
        if word in ("null", "true", "false"):
            self.next()
            return Tree(NULL) if word == "null" else Tree(BOOLEAN, text=word)
        if word.upper() in _TIMES and ahead.kind == TokenKind.TEXT:
            self.next()
            return Tree(CAST, (Tree(STRING, text=self._plain_text()),), word.upper())
        with self.within():
            if self.takes("("):
                tree = self._either()
                self.expect(")")
                return tree
            if self.takes("case"):
                return self._case()
            if word in ("cast", "try_cast"):
                return self._cast()
            if word and ahead.text == "(":
                return self._call()
        return self._column()

    def _plain_text(self) -> str:
        return self.next().text[1:-1].replace("''", "'")

    def _number(self) -> Tree:
        sign = "-" if self.takes("-") else ""
        text = self.next().text.upper()
        digits = text.rstrip("BDLSY")
        suffix, has_exponent = text[len(digits) :], "E" in digits
        if suffix in _INTEGERS and digits.isdecimal():
            return Tree(CAST, (Tree(INTEGER, text=sign + digits),), _INTEGERS[suffix])
        if suffix == "D" or (has_exponent and not suffix):
            if math.isinf(float(digits)):
                raise SqlError(f"{text!r:.40} is too large for DOUBLE")
            return Tree(DOUBLE, text=sign + digits)
        if (suffix not in ("", "BD")) or has_exponent:
            raise SqlError(f"{text!r:.40} is not expected")
        return Tree(INTEGER if digits.isdecimal() and not suffix else DECIMAL, text=sign + digits)

    def _case(self) -> Tree:
        value = None if self.now.text.lower() == "when" else self._either()
        args: list[Tree] = []
        while not args or self.now.text.lower() == "when":
            self.expect("when")
            condition = self._either()
            self.expect("then")
            args += [condition if value is None else Tree("=", (value, condition)), self._either()]
        if self.takes("else"):
            args.append(self._either())
        self.expect("end")
        return Tree(CASE, tuple(args))

    def _cast(self) -> Tree:
        op = self.next().text.lower()
        self.expect("(")
        tree = self._either()
        self.expect("as")
        kind = sql_name(self.type())
        self.expect(")")
        return Tree(CAST if op == "cast" else TRY_CAST, (tree,), kind)

    def _call(self) -> Tree:
        name = self.next().text.lower()
        name = ALIASES.get(name, name)
        function = FUNCTIONS.get(name)
        if function is None or f"`{name}(" not in function.forms:
            raise SqlError(f"the function {name:.100} is not on the list, which has what all engines compute alike")
        self.expect("(")
        args = self._arguments()
        if len(args) < function.least or (function.most is not None and len(args) > function.most):
            raise SqlError(f"{name} has {len(args)} arguments: write {function.forms}")
        return Tree(name, tuple(args))

    def _arguments(self) -> list[Tree]:
        """Parse at least one expression, separated by commas, and the closing parenthesis; return the expressions."""
        trees = self.separated(self._either)
        self.expect(")")
        return trees

    def _column(self) -> Tree:
        tree = Tree(COLUMN, text=self._name())
        while self.takes("."):
            tree = Tree(FIELD, (tree,), self._name())
        return tree

    def _name(self) -> str:
        kind, text, _ = self.now
        if kind not in (TokenKind.NAME, TokenKind.QUOTED) or (kind == TokenKind.NAME and text.lower() in _RESERVED):
            raise self.unexpected()
        return unquoted(self.next())

    def unexpected(self, fix: str = "") -> SqlError:
        if self.now.kind == TokenKind.NAME and self.now.text.lower() in _RESERVED:
            fix = ". Write a name in back quotes if it is a word of SQL"
        return super().unexpected(fix)
