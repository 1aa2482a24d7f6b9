"""Requirements of tables that say more than their names: lengths of texts, wider types, and management by a catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from tiered_stream.delta.schema.sql_types import arrow_schema, inner_fields, sql_name
from tiered_stream.formats.columns.conform import widens
from tiered_stream.formats.rows.table_rules import FieldPath, TextLimit

CLUSTERING = "clustering"
"""Name of the table feature of tables that `OPTIMIZE` clusters.

Writers of a table with this feature must add statistics of the clustering columns to each file.
"""
# Length limits of `VARCHAR(n)` and `CHAR(n)`, which Spark keeps in a column's metadata (Spark: `CharVarcharUtils`).
#
# In the log such a column has the type STRING, or a type that contains STRING. The column's metadata has the declared
# type as text, such as `struct<name:varchar(20),codes:array<char(3)>>`.

DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
CONSTRAINT_PREFIX = "delta.constraints."
_PLAIN = r"(?!(?i:varchar|char)\()[a-zA-Z_]+(?: [a-zA-Z_]+)*+(?:\([\d, ]+\))?+"
_TEXT = rf"(?:((?i:varchar|char))\((\d{{1,9}})\)|{_PLAIN})"
"""Pattern of the declared type of a STRING: group 1 is `varchar` or `char`, and group 2 is the length.

Both groups are empty if the type has no limit.
"""


class UnreadableTypeError(ValueError):
    """Error for a declared type that cannot be parsed, or that does not match the column's type."""


def text_limits(field: Mapping[str, Any], above: FieldPath = ()) -> Iterator[TextLimit]:
    """Yield the length limits of all strings in a column or struct field, at any depth.

    `field` is the column or field in Spark's JSON. `above` is the path of the struct that contains the field, and is
    empty for a column.

    Raises:
        UnreadableTypeError: a declared type cannot be parsed, or does not match the field's type.
    """
    path = (*above, field["name"])
    declared = field.get("metadata", {}).get(DECLARED_TYPE)
    if declared is None:
        for inner in inner_fields(field["type"]):
            yield from text_limits(inner, path)
        return
    texts: list[FieldPath] = []
    match = re.fullmatch(_pattern(path, field["type"], texts), str(declared))
    if match is None:
        raise UnreadableTypeError(f"{str(declared)[:100]!r} is not the type of the column")
    for text, name, length in zip(texts, match.groups()[::2], match.groups()[1::2], strict=True):
        if name:
            yield TextLimit(text, int(length), name.lower() == "char")


def _pattern(path: FieldPath, kind: Any, texts: list[FieldPath]) -> str:
    """Return the regular expression that matches the declared type of the column or field at `path`.

    `kind` is the type of the column or field in Spark's JSON. The function appends the path of each string in the type
    to `texts`, in the order of the expression's groups. Groups that repeat or have alternatives are atomic, so that the
    match is fast for any text.
    """
    if not isinstance(kind, dict):
        if kind == "string":
            texts.append(path)
        return _TEXT if kind == "string" else _PLAIN
    inner = [(field["name"], _pattern((*path, field["name"]), field["type"], texts)) for field in inner_fields(kind)]
    items = ",".join(pattern for _, pattern in inner)
    if kind["type"] == "struct":
        fields = (f"(?:{re.escape(name)}|{re.escape(sql_name([name]))}):{pattern}" for name, pattern in inner)
        # Fields that were added to a struct later, at its end, are not in the declared type.
        items = "".join(f"(?>{',' if number else ''}{field}|(?=>))" for number, field in enumerate(fields))
    return f"{re.escape(kind['type'])}<{items}>"


# Delta's type widening (protocol: "Type Widening"): a column gets a wider type without a rewrite of its files. Readers
# then accept files with the narrower type and files with the wider type. Only delta-spark can commit to a table with
# this feature; deltalake can only open it.

WIDENING_FEATURES = frozenset(("typeWidening", "typeWidening-preview"))


def is_wider(wide: DataType, narrow: DataType) -> bool:
    """Return whether a column of type `narrow` can become type `wide`; neither is a struct, an array or a map."""
    schema = arrow_schema(StructType().add("wide", wide).add("narrow", narrow))
    return widens(schema.field("narrow").type, schema.field("wide").type)


def is_wider_json(wide: Any, narrow: Any) -> bool:
    """Return whether a column of type `narrow` can become type `wide`, both in Spark's JSON; False for nested types."""
    return isinstance(wide, str) and isinstance(narrow, str) and is_wider(_type_of(wide), _type_of(narrow))


def _type_of(name: str) -> DataType:
    return StructField.fromJson({"name": "column", "type": name, "nullable": True, "metadata": {}}).dataType


# Table features by which a table's commits go through a catalog or a commit coordinator.
#
# A version of such a table exists once the catalog has accepted it. The log folder may lack the newest versions, and a
# file that a writer adds there by itself is no commit.

_PREFIXES = ("catalogmanaged", "catalogowned", "coordinatedcommits")
"""Beginnings of the features' names, in lower case: the present name, and the names in earlier previews of Delta."""


def managing_feature(features: Iterable[str]) -> str | None:
    """Return the name of the feature by which a catalog manages the table.

    The result is None if `features` have no such feature.
    """
    return next((name for name in sorted(features) if name.lower().startswith(_PREFIXES)), None)
