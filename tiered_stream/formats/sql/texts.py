"""SQL's functions of texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.letters import to_lower, to_upper
from tiered_stream.formats.sql.sql_values import (
    BINARY,
    BOOLEAN,
    INT,
    STRING,
    Bound,
    SqlTypeError,
    Values,
    call,
    is_integer,
    sql_name,
    type_names,
)

_MAX_INT = (1 << 31) - 1
"""Length of a substring without a length in Spark."""
_WILD = re.compile(r"%+|_|[^%_]+", re.DOTALL)


def text(arg: Bound, what: str) -> Bound:
    """Return `arg` if it is a STRING.

    Raises:
        SqlTypeError: it is no STRING.
    """
    if arg.kind != STRING:
        binary = ", or decode it by ingest.value.format=string or ingest.key.format=string"
        hint = binary if arg.kind == BINARY else ""
        raise SqlTypeError(f"{what} needs STRING, but has {sql_name(arg.kind)}: CAST it{hint}")
    return arg


def literal_text(arg: Bound, what: str) -> str:
    """Return the text of a literal; raise SqlTypeError if `arg` is no literal text."""
    if arg.kind != STRING or not arg.is_literal:
        raise SqlTypeError(f"{what} needs a literal text there")
    return str(arg.literal)


def _of_letters(ascii_form: Callable[[Values], Values], any_form: Callable[[str], str]) -> Callable[[Values], Values]:
    """Return a function that changes the case of texts; other texts than ASCII are changed one by one.

    Arrow changes single letters only, but Unicode makes `SS` of `ß`.
    """

    def one(value: str | None) -> str | None:
        return value if value is None else any_form(value)

    def values(texts: Values) -> Values:
        if isinstance(texts, pa.Scalar):
            return pa.scalar(one(texts.as_py()), STRING)
        is_ascii = pc.coalesce(pc.string_is_ascii(texts), pa.scalar(True))
        changed = ascii_form(texts)
        if is_ascii.false_count == 0:
            return changed
        others = pc.invert(is_ascii)
        return pc.replace_with_mask(changed, others, pa.array(map(one, texts.filter(others).to_pylist()), STRING))

    return values


_LOWER, _UPPER = _of_letters(pc.ascii_lower, to_lower), _of_letters(pc.ascii_upper, to_upper)


def lower(arg: Bound) -> Bound:
    return call(STRING, _LOWER, text(arg, "lower"))


def upper(arg: Bound) -> Bound:
    return call(STRING, _UPPER, text(arg, "upper"))


def trimmed(arg: Bound, what: str) -> Bound:
    """Return the text without blanks at both ends (`trim`), at its start (`ltrim`), or at its end (`rtrim`)."""
    function = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[what]
    return call(STRING, lambda texts: function(texts, characters=" "), text(arg, what))


def length(arg: Bound) -> Bound:
    """Return the number of characters of a text, or of bytes."""
    if arg.kind == BINARY:
        return call(INT, pc.binary_length, arg)
    return call(INT, pc.utf8_length, text(arg, "length"))


def concatenated(args: Sequence[Bound]) -> Bound:
    texts = [text(arg, "concat") for arg in args]
    # Typed, because a NULL literal has a type only here.
    return call(STRING, lambda *values: pc.binary_join_element_wise(*values, pa.scalar("")), *texts)


def _is_small(kind: pa.DataType) -> bool:
    return is_integer(kind) and kind.bit_width <= INT.bit_width


def part(args: Sequence[Bound]) -> Bound:
    """Return the characters of a text from a position on, which counts from 1, or from the end if it is below 0."""
    numbers = args[1:]
    if not all(_is_small(number.kind) and number.is_literal and number.literal is not None for number in numbers):
        raise SqlTypeError(f"substring needs literals for position and length that are INT, but has {type_names(args)}")
    first, size = (*(int(number.literal) for number in numbers), _MAX_INT)[:2]
    start = first - 1 if first > 0 else first
    stop: int | None = start + size
    if size <= 0:
        start = stop = 0
    elif start < 0 <= start + size:
        stop = None
    return call(STRING, lambda texts: pc.utf8_slice_codeunits(texts, start, stop), text(args[0], "substring"))


def replaced(args: Sequence[Bound]) -> Bound:
    old = literal_text(args[1], "replace")
    new = literal_text(args[2], "replace") if len(args) > 2 else ""
    of_text = text(args[0], "replace")
    if not old:
        return of_text
    return call(STRING, lambda texts: pc.replace_substring(texts, old, new), of_text)


def found(args: Sequence[Bound], what: str) -> Bound:
    """Return whether the text starts with (`startswith`), ends with (`endswith`) or has (`contains`) a literal."""
    function = {"startswith": pc.starts_with, "endswith": pc.ends_with, "contains": pc.match_substring}[what]
    wanted = literal_text(args[1], what)
    return call(BOOLEAN, lambda texts: function(texts, wanted), text(args[0], what))


def like(arg: Bound, pattern: Bound) -> Bound:
    """Return whether the text matches a literal pattern with `%` and `_`, as a whole."""
    of_text, wanted = text(arg, "LIKE"), literal_text(pattern, "LIKE")
    if "\\" in wanted:
        raise SqlTypeError("LIKE with a backslash in its pattern is not on the list")
    parts = _WILD.findall(wanted)
    plain = "".join(part for part in parts if "%" not in part)
    if "_" not in wanted and wanted in (plain + "%", "%" + plain, f"%{plain}%"):
        if wanted == plain + "%":
            return call(BOOLEAN, lambda texts: pc.starts_with(texts, plain), of_text)
        function = pc.ends_with if wanted == "%" + plain else pc.match_substring
        return call(BOOLEAN, lambda texts: function(texts, plain), of_text)
    forms = {"%": ".*", "_": "."}
    expression = r"(?s)\A" + "".join(forms.get(part[0], "") or re.escape(part) for part in parts) + r"\z"
    return call(BOOLEAN, lambda texts: pc.match_substring_regex(texts, expression), of_text)
