"""Formats in which `tiered-stream cat` prints a record: a template like kcat's, or a line of JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_text import plain_json

Record = Mapping[str, Any]
"""Record of a topic: the source's columns by name, with the timestamp in milliseconds since the epoch."""

_TOKENS: dict[str, Callable[[Record], bytes]] = {
    "t": lambda record: record["topic"].encode(),
    "p": lambda record: b"%d" % record["partition"],
    "o": lambda record: b"%d" % record["offset"],
    "T": lambda record: b"%d" % record["timestamp"],
    "k": lambda record: _or_null(record["key"]),
    "K": lambda record: _length(record["key"]),
    "s": lambda record: _or_null(record["value"]),
    "S": lambda record: _length(record["value"]),
    "h": lambda record: b",".join(
        header["key"].encode() + b"=" + _or_null(header["value"]) for header in record.get("headers") or ()
    ),
    "%": lambda record: b"%",
}
TOKENS = (
    "%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %K its length, %s value, %S its length, %h headers"
)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(r"%(?P<token>.?)|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)


def by_template(template: str) -> Callable[[Record], bytes]:
    """Return a function that formats a record by a template like kcat's, and returns the bytes to print.

    `template` has tokens (`TOKENS`), escapes such as a backslash with `n`, and other text. A key or value that is null
    is printed as NULL, and its length as -1.

    Raises:
        ConfigurationError: the template has an unknown token or escape. The message names the token or escape.
    """
    parts: list[bytes | Callable[[Record], bytes]] = []
    for match in _PARTS.finditer(template):
        token, escape, text = match["token"], match["escape"], match["text"]
        if token is not None and token in _TOKENS:
            parts.append(_TOKENS[token])
        elif escape is not None and escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        elif text is not None:
            parts.append(text.encode())
        else:
            raise ConfigurationError(f"the format says {match[0]!r}; there are {TOKENS}, %%, and \\n \\r \\t \\0 \\\\")
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def as_json(record: Record) -> bytes:
    """Return the record as a line of JSON in UTF-8. Keys, values and header values become texts.

    A key, value or header value that is not UTF-8 becomes `{"base64": …}`.
    """
    return plain_json(record) + b"\n"


def _or_null(value: bytes | None) -> bytes:
    return b"NULL" if value is None else value


def _length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))
