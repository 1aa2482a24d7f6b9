"""Exact half of the JSON decoder. It decodes single values in Python, by the rules of Spark's `JacksonParser`."""

from __future__ import annotations

import base64
import decimal
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import CorruptDataError
from tiered_stream.formats.json.json_text import Fields, Integer, Real, parse_json, write_json
from tiered_stream.formats.json.spark_texts import days_of_text, decimal_of_text, fitted, microseconds_of_text

# Jackson: Base64Variants.MIME_NO_LINEFEEDS. Blanks and control characters may stand between units of four characters.
_UNIT = r"[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)"
_BASE64 = re.compile(rf"(?:[\0- ]*{_UNIT})*[\0- ]*")
_BLANKS = re.compile(r"[\0- ]+")
_AFTER_PADDING = re.compile(r"(?<==)(?!=)")
_INFINITIES = {"+INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf, "-INF": -math.inf, "-Infinity": -math.inf}


class ExactJson:
    """Converter of JSON documents to rows of the struct type `kind`. `zone` is for timestamps without a time zone."""

    def __init__(self, kind: pa.StructType, zone: str) -> None:
        self._zone = zone
        self._convert = self._converter(kind)

    def row(self, data: bytes) -> dict[str, Any]:
        """Return the document `data` as a dict that pyarrow converts to a struct.

        Raises CorruptDataError, whose text is the reason, if `data` is not a JSON object, or if a field does not fit
        its type.
        """
        document = parse_json(data)
        if type(document) is not Fields:
            raise CorruptDataError(f"the value is {_describe(document)}, not an object")
        row: dict[str, Any] = self._convert(document)
        return row

    def _converter(self, kind: pa.DataType) -> Callable[[Any], Any]:
        convert = self._value_converter(kind)

        def or_null(value: Any) -> Any:
            converted = None if value is None else convert(value)
            if converted is None and value is not None:
                raise CorruptDataError(f"{_describe(value)} is no {kind}")
            return converted

        return or_null

    def _value_converter(self, kind: pa.DataType) -> Callable[[Any], Any]:
        """Return a function that converts a parsed value to `kind`, and returns None for a value that does not fit."""
        if types.is_struct(kind):
            fields = {field.name: self._converter(field.type) for field in kind}
            return _only(Fields, lambda members: {
                name: _convert_at(f".{name}", fields[name], member) for name, member in members if name in fields
            })  # fmt: skip
        if types.is_map(kind):
            item = self._converter(kind.item_type)
            return _only(Fields, lambda members: [
                (_string(key), _convert_at(f".{key}", item, member)) for key, member in members
            ])  # fmt: skip
        if types.is_list(kind):
            item = self._converter(kind.value_type)
            return _only(list, lambda elements: [
                _convert_at(f"[{at}]", item, element) for at, element in enumerate(elements)
            ])  # fmt: skip
        if types.is_signed_integer(kind):
            half = 1 << kind.bit_width - 1
            return _only(Integer, lambda number: _in_range(int(number), half))
        if types.is_decimal(kind):
            return lambda value: _decimal(value, kind.precision, kind.scale)
        if types.is_timestamp(kind):
            return self._timestamp if kind.tz else _only(str, lambda text: microseconds_of_text(text, None))
        return {
            pa.bool_(): _only(bool, lambda value: value),
            pa.float32(): lambda value: _real(value, kind),
            pa.float64(): lambda value: _real(value, kind),
            pa.string(): _string,
            pa.binary(): _only(str, _base64),
            pa.date32(): _only(str, days_of_text),
            pa.null(): lambda value: None,
        }[kind]

    def _timestamp(self, value: Any) -> int | None:
        if type(value) is Integer:
            return _in_range(int(value) * 1_000_000, 1 << 63)
        return microseconds_of_text(value, self._zone) if type(value) is str else None


def _convert_at(step: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except CorruptDataError as error:
        text = str(error)
        # The text begins with the path of the field: `.a[3].b: ...`
        raise CorruptDataError(f"{_shorten(step)}{'' if text[:1] in '.[' else ': '}{text}") from error


def _shorten(text: str) -> str:
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 40 else f"{text[:39]}…"


def _describe(value: Any) -> str:
    """Return a short text that names a value, for use in a reason."""
    match value:
        case None:
            return "null"
        case Integer() | Real():
            return f"the number {_shorten(value)}"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {_shorten(repr(value))}"
    return "an object" if type(value) is Fields else "an array"


def _in_range(number: int, half: int) -> int | None:
    return number if -half <= number < half else None


def _only(json_type: type, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that converts values of one JSON type, and returns None for other values."""
    return lambda value: convert(value) if type(value) is json_type else None


def _real(value: Any, kind: pa.DataType) -> float | None:
    if isinstance(value, Integer | Real):
        # Jackson reads the integer -0 as zero without a sign.
        return _nearest(value, kind) + 0.0 if type(value) is Integer else _nearest(value, kind)
    return _INFINITIES.get(value, math.nan if value == "NaN" else None) if type(value) is str else None


def _nearest(text: str, kind: pa.DataType) -> float:
    number = float(text)
    if kind == pa.float64() or not 1e-44 < abs(number) < 3e38:
        with np.errstate(over="ignore"):
            return number if kind == pa.float64() else float(np.float32(number))
    # Converted directly, because the way through a double would round twice.
    nearest: float = pa.scalar(str(text)).cast(pa.float32()).as_py()
    return nearest


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal | None:
    number = decimal_of_text(value) if isinstance(value, str) else None
    return None if number is None else fitted(number, precision, scale)


def _string(value: Any) -> str:
    text: str = value if type(value) is str else write_json(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorruptDataError("half a surrogate pair") from error
    return text


def _base64(text: str) -> bytes | None:
    if not _BASE64.fullmatch(text):
        return None
    return b"".join(map(base64.b64decode, _AFTER_PADDING.split(_BLANKS.sub("", text))))
