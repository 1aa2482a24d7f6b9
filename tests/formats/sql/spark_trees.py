"""Trees of our parser and trees of Spark's own parser (`ParserInterface.parseExpression`) in one form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tiered_stream.formats.sql import parser as sql
from tiered_stream.formats.sql.casts import kind_of
from tiered_stream.formats.sql.functions import ALIASES
from tiered_stream.formats.sql.parser import Tree
from tiered_stream.formats.sql.sql_reader import sql_name

Form = tuple[Any, ...]
_TYPES = {
    "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "void": "NULL",
    **{name: name.upper() for name in ("boolean", "float", "double", "string", "binary", "date", "timestamp")},
}  # fmt: skip
_CLASSES = {
    "And": "and", "Or": "or", "Not": "not", "EqualTo": "=", "EqualNullSafe": "<=>", "LessThan": "<",
    "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "Add": "+", "Subtract": "-",
    "Multiply": "*", "Divide": "/", "Remainder": "%", "UnaryMinus": "negative", "Concat": "concat", "In": "in",
    "Like": "like", "IsNull": "isnull", "CaseWhen": "case",
}  # fmt: skip
_TRUE, _FALSE = (("literal", "BOOLEAN", text) for text in ("true", "false"))


def of_tree(tree: Tree) -> Form:
    """Return the form of our parser's tree.

    Raises:
        SqlTypeError: a cast's type is not on the list.
    """
    match tree:
        case Tree(sql.COLUMN):
            return ("column", tree.text)
        case Tree(sql.FIELD, (inner,)):
            return (*of_tree(inner), tree.text)
        case Tree(sql.CAST | sql.TRY_CAST, (inner,)):
            return _cast(of_tree(inner), sql_name(kind_of(tree.text)))
        case Tree("<>", (left, right)):
            return ("not", ("=", of_tree(left), of_tree(right)))
        case Tree("istrue" | "isfalse", (inner,)):
            return ("<=>", of_tree(inner), _TRUE if tree.op == "istrue" else _FALSE)
        case Tree("and" | "or", args):
            return _chain(tree.op, list(map(of_tree, args)))
    if tree.op not in sql.LITERALS:
        return (tree.op, *map(of_tree, tree.args))
    kind = tree.op.upper()
    if tree.op == sql.INTEGER:
        bits = (int(tree.text) if int(tree.text) >= 0 else ~int(tree.text)).bit_length()
        kind = "INT" if bits < 32 else "BIGINT" if bits < 64 else "DECIMAL"
    if kind == "DECIMAL":
        number = Decimal(tree.text)
        scale = max(-int(number.as_tuple().exponent), 0)
        kind = sql_name(pa.decimal128(max(len(number.as_tuple().digits), scale), scale))
    return _literal(kind, tree.text)


def _chain(op: str, args: list[Form]) -> Form:
    """Return the form of a chain of AND or of OR, which Spark turns into a balanced tree."""
    return (op, *(inner for arg in args for inner in (arg[1:] if arg[0] == op else (arg,))))


def _cast(inner: Form, kind: str) -> Form:
    """Return the form of a cast; a literal of a time or of a small type is a cast of a literal in our trees."""
    if inner[0] == "literal" and (inner[1], kind) in (("STRING", "DATE"), ("STRING", "TIMESTAMP")):
        return _literal(kind, inner[2])
    if inner[:2] == ("literal", "INT") and kind in ("TINYINT", "SMALLINT", "BIGINT"):
        return _literal(kind, str(inner[2]))
    return ("cast", inner, kind)


def _literal(kind: str, text: str | None) -> Form:
    match kind:
        case "NULL":
            return ("literal", kind)
        case "DOUBLE":
            return ("literal", kind, repr(float(text or "")))
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return ("literal", kind, int(text or ""))
        case "TIMESTAMP":
            moment = datetime.fromisoformat(text or "")
            return ("literal", kind, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    return ("literal", kind, Decimal(text or "") if kind.startswith("DECIMAL") else text)


def named(name: str, form: Form) -> Form:
    """Return the form of an expression with a name, which is nothing new for a column with this name."""
    return form if form[0] == "column" and form[-1] == name else ("alias", name, form)


class SparkParser:
    """Spark's own parser, in the session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._parser = spark._jsparkSession.sessionState().sqlParser()

    def form(self, text: str) -> Form | None:
        """Return the form of Spark's tree, or None if Spark refuses the text."""
        try:
            nodes = json.loads(self._parser.parseExpression(text).toJSON())
        except Py4JJavaError:
            return None
        except Exception as error:  # pyspark's conversions of Java's errors have no common class for all versions
            if "Exception" not in type(error).__name__ and "Error" not in type(error).__name__:
                raise
            return None
        return _of_nodes(iter(nodes))


def _of_nodes(nodes: Iterator[dict[str, Any]]) -> Form:
    node = next(nodes)
    name = node["class"].rpartition(".")[2]
    args = [_of_nodes(nodes) for _ in range(node["num-children"])]
    kind = _spark_type(node.get("dataType"))
    if name == "UnresolvedAttribute":
        return ("column", *node["nameParts"][1:-1].split(", "))
    if name == "Alias":
        return named(node["name"], args[0])
    if name == "Literal":
        return _literal(kind, node["value"])
    if name == "Cast":
        return _cast(args[0], kind)
    if name == "IsNotNull":
        return ("not", ("isnull", *args))
    if name == "UnresolvedFunction":
        if node["isDistinct"]:
            return ("distinct", *args)
        name = node["nameParts"][1:-1].lower()
        return (ALIASES.get(name, name), *args)
    if node.get("escapeChar") not in (None, "\\"):
        return ("escape", *args)
    op = _CLASSES.get(name, name)
    return _chain(op, args) if op in ("and", "or") else (op, *args)


def _spark_type(kind: Any) -> str:
    return _TYPES.get(str(kind), str(kind).upper())
