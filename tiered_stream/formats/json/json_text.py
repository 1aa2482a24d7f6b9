"""Parser of JSON to Python values that keep the text of numbers, and writers of JSON.

`write_json` writes JSON as Jackson does, and `plain_json` writes JSON for users.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from decimal import Decimal
from functools import partial
from typing import Any

import orjson

from tiered_stream.errors import ConfigurationError, CorruptDataError

MAX_NESTING = 200
_MAX_SCHEMA = 4 << 20
_LONGEST_NUMBER = 1000  # Jackson: StreamReadConstraints.DEFAULT_MAX_NUM_LEN


class Integer(str):
    """JSON number without a fraction or an exponent, as its text."""


class Real(str):
    """JSON number with a fraction or an exponent, or `NaN`, `Infinity` or `-Infinity`, as its text."""


class Fields(list[tuple[str, Any]]):
    """JSON object as a list of (key, value), in the order of the document and with duplicate keys."""


# A string without an end matches, too. Otherwise each later quote in it would be tried as the start of a string.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def parse_json(data: bytes) -> Any:
    """Parse one JSON document; return it as None, bool, str, list, `Integer`, `Real` and `Fields`, at any depth.

    Raises:
        CorruptDataError: the bytes are not a JSON document in UTF-8, have more than `MAX_NESTING` levels, or have a
            number of more than 1000 characters.
    """
    depth = 0
    for bracket in _BRACKETS.finditer(data):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(bracket[0], 0)
        if depth > MAX_NESTING:
            raise CorruptDataError(f"more than {MAX_NESTING} levels of nesting")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"byte {error.start} is not UTF-8") from error
    if not text.strip(" \t\r\n"):
        raise CorruptDataError("the value is empty")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise CorruptDataError(f"no JSON: {error.msg} at character {error.pos}") from error


def _number(kind: type[Integer | Real], text: str) -> Integer | Real:
    if len(text) > _LONGEST_NUMBER:
        raise CorruptDataError(f"a number of {len(text)} characters")
    return kind(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=Fields, parse_int=partial(_number, Integer), parse_float=partial(_number, Real),
    parse_constant=Real, strict=True,
)  # fmt: skip


def double_text(number: float) -> str:
    """Return the text of a double as Java writes it: `Double.toString` since JDK 19, which writes the fewest digits."""
    if not math.isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    shortest = Decimal(repr(number)).normalize()
    # Java takes the nearest number of at least two digits: 4.9E-324, not 5.0E-324.
    text = f"{shortest:e}" if len(shortest.as_tuple().digits) > 1 else f"{number:.1e}"
    mantissa, exponent = text.split("e")
    return f"{mantissa}E{int(exponent)}"


def write_json(value: Any) -> str:
    """Return a value from `parse_json` as JSON text in Jackson's form: no blanks, and numbers as Java writes them."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Integer():
            return "0" if value == "-0" else value
        case Real():
            text = double_text(float(value))
            return text if text[-1].isdigit() else f'"{text}"'
        case str():
            return _string(value)
        case Fields():
            return "{" + ",".join(f"{_string(key)}:{write_json(member)}" for key, member in value) + "}"
    return "[" + ",".join(map(write_json, value)) + "]"


def _string(text: str) -> str:
    escaped = json.dumps(text, ensure_ascii=False)
    return re.sub(r"\\u00[01][0-9a-f]", lambda escape: "\\u" + escape[0][2:].upper(), escaped)


def schema_json(text: bytes | str, what: str) -> Any:
    """Return the parsed JSON of a schema. `what` names the schema in errors, such as `an Avro schema`.

    Raises:
        ConfigurationError: the text is not JSON, or has more than 4 MiB.
    """
    if len(text) > _MAX_SCHEMA:
        raise ConfigurationError(f"{what} of {len(text)} characters; no more than {_MAX_SCHEMA} are read")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"{what} is no JSON: {error}") from error


def plain_json(value: Any) -> bytes:
    """Return Python values, such as dicts and lists, as JSON in UTF-8, with decimals and bytes as strings.

    Bytes that are not UTF-8 become `{"base64": …}`.
    """
    return orjson.dumps(value, default=plain)


def plain(value: Any) -> Any:
    """Return a decimal or bytes as a string, because JSON has neither; return any other value unchanged.

    Bytes that are not UTF-8 become `{"base64": …}`.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    return str(value) if isinstance(value, Decimal) else value
