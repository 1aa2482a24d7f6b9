"""Parser of `ingest.select` and `ingest.where`, on the driver, by the precedence of Spark's own grammar.

The grammar is the part of Spark's `SqlBaseParser.g4` that the list needs. A text that is not of this part is refused.
So nothing reaches a table or a file before each of its functions and operators was found in the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

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
_NAME, _QUOTED, _TEXT, _NUMBER, _MARK, _END = "name", "quoted", "text", "number", "mark", "end"
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<comment>--|/\*)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Z_]\w*)|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?(?:BD|[DLSY])?)(?![\w.])"
    r"|(?P<mark><=>|<=|>=|<>|!=|==|\|\||::|[-+*/%=<>(),.!])|(?P<end>\Z))",
    re.ASCII | re.IGNORECASE,
)
_RESERVED = frozenset(
    (
        "all", "and", "any", "as", "between", "case", "cast", "current_catalog", "current_database", "current_date",
        "current_path", "current_role", "current_schema", "current_time", "current_timestamp", "current_user",
        "distinct", "div", "else", "end", "escape", "exists", "false", "from", "ilike", "in", "interval", "is",
        "like", "localtime", "localtimestamp", "not", "null", "or", "regexp", "rlike", "select", "session_user",
        "some", "system_user", "then", "true", "try_cast", "user", "when",
    )
)  # fmt: skip
"""Words that are no names unless they are in back quotes, because Spark reads some of them by its settings."""
_POWERS = {
    **dict.fromkeys(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"), 1), **dict.fromkeys(("+", "-", "||"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}  # fmt: skip
"""Operators by precedence: the larger number binds first. Operators of one precedence bind from left to right."""
_OPERATIONS = {"==": "=", "!=": "<>", "||": "concat"}
_TYPES = {
    "BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT", "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}  # fmt: skip
_INTEGERS = {"L": "BIGINT", "S": "SMALLINT", "Y": "TINYINT"}
"""Types of literal integers, by the letter at their ends."""
_TIMES = ("DATE", "TIMESTAMP")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


def parse_query(select: str | None, where: str | None) -> SqlQuery | None:
    """Return the parsed settings, or None if neither is set.

    Raises:
        ConfigurationError: a text is no SQL, or has a function or operator that is not on the list.
    """
    if select is None and where is None:
        return None
    items = () if select is None else tuple(_Parser(SELECT_SETTING, text).item() for text in _items(select))
    if where is None:
        return SqlQuery(items)
    return SqlQuery(items, _Parser(WHERE_SETTING, where).condition(), where.strip())


def _items(select: str) -> list[str]:
    """Split the setting at its commas that are in no parentheses."""
    depth, start, items = 0, 0, []
    for token in _tokens(SELECT_SETTING, select):
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            items.append(select[start : token.start].strip())
            start = token.start + 1
    return [*items, select[start:].strip()]


def _tokens(setting: str, text: str) -> list[_Token]:
    """Return the tokens of the text, of which the last one is its end.

    Raises:
        ConfigurationError: the text is too long, has characters of other SQL, or is read by Spark's settings.
    """
    if len(text) > MAX_LENGTH:
        raise ConfigurationError(f"{setting} has {len(text):,} characters: it may have {MAX_LENGTH:,}")
    for mark, what in {"\\": "a backslash", "${": "${ for a variable"}.items():
        if mark in text:
            raise ConfigurationError(f"{setting} has {what}, which Spark reads by its settings: write it without")
    found: list[_Token] = []
    at = 0
    while not found or found[-1].kind != _END:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            rest = text[at:].lstrip(" \t\r\n")
            if rest[0] == '"':
                raise ConfigurationError(
                    f"{setting} has a text in double quotes, which Spark reads by its settings: use '…'"
                )
            raise _no_sql(setting, text, f"{rest:.20}")
        if match.lastgroup == "comment":
            raise ConfigurationError(f"{setting} has a comment: remove it")
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    return found


def _no_sql(setting: str, text: str, found: str, fix: str = "") -> ConfigurationError:
    what = f"{found!r} is not expected" if found else "it ends too soon"
    return ConfigurationError(
        f"{setting} has {text!r:.300}, which is no SQL expression of the list ({LIST_PAGE}): {what}{fix}"
    )


class _Parser:
    """Recursive descent parser of one expression. A method that returns a `Tree` consumes the tokens of the tree."""

    def __init__(self, setting: str, text: str) -> None:
        self._setting, self._text = setting, text
        self._tokens = _tokens(setting, text)
        self._at = 0
        self._depth = 0

    def item(self) -> SelectItem:
        """Return the text as an item of `ingest.select`: `*`, or an expression with its name."""
        if [token.text for token in self._tokens] == ["*", ""]:
            return SelectItem(self._text)
        tree, named = self._tree(), self._takes("as")
        name = self._name() if named or self._now.kind != _END else None
        self._expect_end()
        if name is None and tree.op not in (sql.COLUMN, sql.FIELD):
            raise ConfigurationError(f"{self._setting} has {self._text!r:.300} without a name: add AS and a name")
        return SelectItem(self._text, name or tree.text, tree)

    def condition(self) -> Tree:
        """Return the text as the condition of `ingest.where`."""
        tree = self._tree()
        self._expect_end()
        return tree

    def _tree(self) -> Tree:
        tree = self._either()
        depth, level = 0, [tree]
        while level:
            depth, level = depth + 1, [arg for each in level for arg in each.args]
        if depth > MAX_DEPTH:
            raise self._too_deep()
        return tree

    def _too_deep(self) -> ConfigurationError:
        return ConfigurationError(f"{self._setting} is nested more than {MAX_DEPTH} levels deep")

    @contextmanager
    def _within(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep()
        yield
        self._depth -= 1

    # Conditions (Spark: booleanExpression, predicate)

    def _either(self) -> Tree:
        return self._chain("or", lambda: self._chain("and", self._negated))

    def _chain(self, word: str, operand: Callable[[], Tree]) -> Tree:
        trees = [operand()]
        while self._takes(word):
            trees.append(operand())
        return Tree(word, tuple(trees)) if len(trees) > 1 else trees[0]

    def _negated(self) -> Tree:
        if self._takes("not") or self._takes("!"):
            with self._within():
                return Tree("not", (self._negated(),))
        return self._predicated()

    def _predicated(self) -> Tree:
        value = self._value()
        if self._takes("is"):
            negated = self._takes("not")
            if self._takes("distinct"):
                self._expect("from")
                tree, negated = Tree("<=>", (value, self._value())), not negated
            else:
                word = self._one_of("null", "true", "false")
                tree = Tree(f"is{word}", (value,))
            return Tree("not", (tree,)) if negated else tree
        negated = self._takes("not")
        if self._takes("between"):
            low = self._value()
            self._expect("and")
            tree = Tree("between", (value, low, self._value()))
        elif self._takes("in"):
            self._expect("(")
            tree = Tree("in", (value, *self._arguments()))
        elif self._takes("like"):
            tree = Tree("like", (value, self._value()))
        elif negated:
            raise self._unexpected()
        else:
            return value
        return Tree("not", (tree,)) if negated else tree

    # Values (Spark: valueExpression, primaryExpression)

    def _value(self, least: int = 1) -> Tree:
        """Return the value of operators whose precedence is at least `least`."""
        tree = self._signed()
        while self._now.kind == _MARK and (power := _POWERS.get(self._now.text, 0)) >= least:
            op = self._next().text
            tree = Tree(_OPERATIONS.get(op, op), (tree, self._value(power + 1)))
        return tree

    def _signed(self) -> Tree:
        if self._now.text == "-" and self._tokens[self._at + 1].kind != _NUMBER:
            self._next()
            with self._within():
                return Tree("negative", (self._signed(),))
        tree = self._primary()
        while self._takes("::"):
            tree = Tree(sql.CAST, (tree,), self._type())
        return tree

    def _primary(self) -> Tree:
        token, ahead = self._now, self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        word = token.text.lower() if token.kind == _NAME else ""
        if token.kind == _TEXT:
            return Tree(sql.STRING, text=self._plain_text())
        if token.kind == _NUMBER or token.text == "-":
            return self._number()
        if word in ("null", "true", "false"):
            self._next()
            return Tree(sql.NULL) if word == "null" else Tree(sql.BOOLEAN, text=word)
        if word.upper() in _TIMES and ahead.kind == _TEXT:
            self._next()
            return Tree(sql.CAST, (Tree(sql.STRING, text=self._plain_text()),), word.upper())
        with self._within():
            if self._takes("("):
                tree = self._either()
                self._expect(")")
                return tree
            if self._takes("case"):
                return self._case()
            if word in ("cast", "try_cast"):
                return self._cast()
            if word and ahead.text == "(":
                return self._call()
        return self._column()

    def _plain_text(self) -> str:
        return self._next().text[1:-1].replace("''", "'")

    def _number(self) -> Tree:
        sign = "-" if self._takes("-") else ""
        text = self._next().text.upper()
        digits = text.rstrip("BDLSY")
        suffix, has_exponent = text[len(digits) :], "E" in digits
        if suffix in _INTEGERS and digits.isdecimal():
            return Tree(sql.CAST, (Tree(sql.INTEGER, text=sign + digits),), _INTEGERS[suffix])
        if suffix == "D" or (has_exponent and not suffix):
            return Tree(sql.DOUBLE, text=sign + digits)
        if (suffix not in ("", "BD")) or has_exponent:
            self._at -= 1
            raise self._unexpected()
        return Tree(sql.INTEGER if digits.isdecimal() and not suffix else sql.DECIMAL, text=sign + digits)

    def _case(self) -> Tree:
        value = None if self._now.text.lower() == "when" else self._either()
        args: list[Tree] = []
        self._expect("when")
        while True:
            condition = self._either()
            self._expect("then")
            args += [condition if value is None else Tree("=", (value, condition)), self._either()]
            if not self._takes("when"):
                break
        if self._takes("else"):
            args.append(self._either())
        self._expect("end")
        return Tree(sql.CASE, tuple(args))

    def _cast(self) -> Tree:
        op = self._next().text.lower()
        self._expect("(")
        tree = self._either()
        self._expect("as")
        kind = self._type()
        self._expect(")")
        return Tree(sql.CAST if op == "cast" else sql.TRY_CAST, (tree,), kind)

    def _type(self) -> str:
        if self._now.kind != _NAME:
            raise self._unexpected()
        name = self._next().text.upper()
        name, sizes = _TYPES.get(name, name), []
        if self._takes("("):
            sizes.append(self._size())
            while self._takes(","):
                sizes.append(self._size())
            self._expect(")")
        return f"{name}({','.join(sizes)})" if sizes else name

    def _size(self) -> str:
        if not self._now.text.isdecimal():
            raise self._unexpected()
        return self._next().text

    def _call(self) -> Tree:
        name = self._next().text.lower()
        name = ALIASES.get(name, name)
        function = FUNCTIONS.get(name)
        if function is None or f"`{name}(" not in function.forms:
            raise ConfigurationError(
                f"{self._setting} has the function {name:.100}, which is not on the list of SQL that both lanes give "
                f"the same result for ({LIST_PAGE}). Use a function of the list, or ingest.transform"
            )
        self._expect("(")
        args = self._arguments()
        if len(args) < function.least or (function.most is not None and len(args) > function.most):
            raise ConfigurationError(f"{self._setting} has {name} with {len(args)} arguments: write {function.forms}")
        return Tree(name, tuple(args))

    def _arguments(self) -> list[Tree]:
        """Return at least one expression, and consume the closing parenthesis after the last one."""
        trees = [self._either()]
        while self._takes(","):
            trees.append(self._either())
        self._expect(")")
        return trees

    def _column(self) -> Tree:
        tree = Tree(sql.COLUMN, text=self._name())
        while self._takes("."):
            tree = Tree(sql.FIELD, (tree,), self._name())
        return tree

    # Tokens

    def _name(self) -> str:
        kind, text, _ = self._now
        if kind == _QUOTED:
            return self._next().text[1:-1].replace("``", "`")
        if kind != _NAME or text.lower() in _RESERVED:
            raise self._unexpected()
        return self._next().text

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, word: str) -> bool:
        if self._now.kind in (_NAME, _MARK) and self._now.text.lower() == word:
            self._at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._unexpected()

    def _one_of(self, *words: str) -> str:
        word = self._now.text.lower()
        if word not in words:
            raise self._unexpected()
        self._expect(word)
        return word

    def _expect_end(self) -> None:
        if self._now.kind != _END:
            raise self._unexpected()

    def _unexpected(self) -> ConfigurationError:
        reserved = self._now.kind == _NAME and self._now.text.lower() in _RESERVED
        fix = ". Write a name in back quotes if it is a word of SQL" if reserved else ""
        return _no_sql(self._setting, self._text, self._now.text, fix)
