"""Length limits of `VARCHAR(n)` and `CHAR(n)`, which Spark keeps in a column's metadata (Spark: `CharVarcharUtils`).

In the log such a column has the type STRING, or a type that contains STRING. The column's metadata has the declared
type as text, such as `struct<name:varchar(20),codes:array<char(3)>>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tiered_stream.delta.schema.json_types import inner_fields
from tiered_stream.formats.rows.nested_columns import FieldPath
from tiered_stream.formats.rows.nested_rules import TextLimit

DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITED = re.compile(r"(varchar|char)\((\d{1,9})\)", re.IGNORECASE)
_PLAIN = re.compile(r"[a-z_]+(?: [a-z_]+)*(?:\([\d, ]+\))?", re.IGNORECASE)
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class UnreadableTypeError(ValueError):
    """Error for a declared type that cannot be parsed, or that does not match the column's type."""


def text_limits(field: Mapping[str, Any], above: FieldPath = ()) -> Iterator[TextLimit]:
    """Yield the length limits in a column, or in a field of the struct at path `above`; `field` is in Spark's JSON.

    Raises:
        UnreadableTypeError: a declared type cannot be read.
    """
    path = (*above, field["name"])
    declared = field.get("metadata", {}).get(DECLARED_TYPE)
    if declared is not None:
        yield from _Reader(str(declared)).limits(path, field["type"])
    else:
        yield from _within(path, field["type"])


def _within(path: FieldPath, kind: Any) -> Iterator[TextLimit]:
    for field in inner_fields(kind):
        yield from text_limits(field, path)


class _Reader:
    """Parser of a declared type, guided by the column's own type, which has the fields' names."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def limits(self, path: FieldPath, kind: Any) -> list[TextLimit]:
        limits = list(self._type(path, kind))
        if self._at < len(self._text):
            raise self._error()
        return limits

    def _type(self, path: FieldPath, kind: Any) -> Iterator[TextLimit]:
        if not isinstance(kind, dict):
            yield from self._leaf(path, kind)
        elif kind["type"] == "struct":
            self._expect("struct<")
            yield from self._fields(path, kind["fields"])
            self._expect(">")
        else:
            self._expect(f"{kind['type']}<")
            for number, item in enumerate(inner_fields(kind)):
                if number:
                    self._expect(",")
                yield from self._type((*path, item["name"]), item["type"])
            self._expect(">")

    def _fields(self, path: FieldPath, fields: list[Mapping[str, Any]]) -> Iterator[TextLimit]:
        """Yield the limits of a struct's fields; fields that were added later, at its end, have no limit."""
        for number, inner in enumerate(fields):
            if self._text.startswith(">", self._at):
                break
            if number:
                self._expect(",")
            self._name(inner["name"])
            yield from self._type((*path, inner["name"]), inner["type"])

    def _leaf(self, path: FieldPath, kind: str) -> Iterator[TextLimit]:
        if match := _LIMITED.match(self._text, self._at):
            if kind != "string":
                raise self._error()
            yield TextLimit(path, int(match[2]), match[1].lower() == "char")
        else:
            match = _PLAIN.match(self._text, self._at)
        if match is None:
            raise self._error()
        self._at = match.end()

    def _name(self, name: str) -> None:
        quoted = _QUOTED.match(self._text, self._at)
        if quoted and quoted[1].replace("``", "`") == name:
            self._at = quoted.end()
        else:
            self._expect(name)
        self._expect(":")

    def _expect(self, text: str) -> None:
        if not self._text.startswith(text, self._at):
            raise self._error()
        self._at += len(text)

    def _error(self) -> UnreadableTypeError:
        return UnreadableTypeError(f"{self._text[:100]!r} is not the type of the column, from character {self._at} on")
