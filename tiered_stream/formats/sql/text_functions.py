"""SQL's functions of texts.

Spark 4.2 takes upper and lower case from ICU 78, which has Unicode 17. Python's own tables are older (Python 3.11:
Unicode 14), so this module adds the letters of later versions.

The functions that return an expression (`Bound`) raise SqlTypeError if the SQL function does not support the argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_reader import BINARY, BOOLEAN, INT, STRING, SqlTypeError, sql_name
from tiered_stream.formats.sql.sql_values import Bound, Values, call, is_integer, of_arrays, type_names

_PAIRS = (
    (0x1C89, 0x1C89, 0x1C8A), (0xA7CB, 0xA7CB, 0x264), (0xA7CC, 0xA7CC, 0xA7CD), (0xA7CE, 0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2, 0xA7D3), (0xA7D4, 0xA7D4, 0xA7D5), (0xA7DA, 0xA7DA, 0xA7DB), (0xA7DC, 0xA7DC, 0x19B),
    (0x10D50, 0x10D65, 0x10D70), (0x16EA0, 0x16EB8, 0x16EBB),
)  # fmt: skip
"""Ranges of letters that Unicode 15 to 17 added: first and last upper case letter, and the first one's lower case."""
_IGNORED = (
    "897 ECE 1ACF-1ADD 1AE0-1AEB A7F1 10D4E 10D69-10D6D 10D6F 10EC5 10EFA-10EFF 11241 113BB-113C0 113CE 113D0 113D2",
    "113E1-113E2 11B60 11B62-11B64 11B66 11DD9 11F00-11F01 11F36-11F3A 11F40 11F42 11F5A 13439-13440 13447-13455",
    "1611E-16129 1612D-1612F 16D40-16D42 16D6B-16D6C 16FF2-16FF3 1E030-1E06D 1E08F 1E4EB-1E4EF 1E5EE-1E5EF 1E6E3",
    "1E6E6 1E6EE-1E6EF 1E6F5 1E6FF",
)
"""Ranges of marks that Unicode 15 to 17 added. A word continues after them (property `Case_Ignorable`)."""
_CASED = ("1C89-1C8A A7CB-A7CF A7D2 A7D4 A7DA-A7DC 10D50-10D65 10D70-10D85 16EA0-16EB8 16EBB-16ED3 1DF25-1DF2A",)
"""Ranges of letters with the property `Cased` that Unicode 15 to 17 added."""
_OTHERS = ("295", "1171E")
"""Two characters that were a `Cased` letter and a mark in Unicode 14, and are neither in Unicode 17."""
_SIGMA, _MARK = "Σ", "\u0301"


def _code_points(ranges: Sequence[str]) -> list[int]:
    bounds = [(part.split("-")[0], part.split("-")[-1]) for part in " ".join(ranges).split()]
    return [point for first, last in bounds for point in range(int(first, 16), int(last, 16) + 1)]


_NEWER_LOWER = {
    point: lower + point - first for first, last, lower in _PAIRS for point in range(first, last + 1)
}  # fmt: skip
_NEWER_UPPER = {lower: upper for upper, lower in _NEWER_LOWER.items()}
_STAND_INS = {
    **dict.fromkeys(_code_points(_IGNORED), _MARK),
    **dict.fromkeys(_code_points(_CASED), "a"),
    **dict.fromkeys(_code_points(_OTHERS), "-"),
    ord("İ"): "a",  # Python makes two characters of it
}
"""For characters that older Pythons do not know, a character of the same class that all Pythons know.

The lower case of a Σ depends on the classes of the characters around it.
"""
_NEWER = re.compile("[" + "".join(map(chr, _STAND_INS)) + "]")


def to_upper(text: str) -> str:
    """Return the text in upper case."""
    return text.upper().translate(_NEWER_UPPER)


def to_lower(text: str) -> str:
    """Return the text in lower case. A Σ at the end of a word becomes ς."""
    if _SIGMA in text and _NEWER.search(text):
        forms = text.translate(_STAND_INS).lower()
        text = "".join(form if letter == _SIGMA else letter for letter, form in zip(text, forms, strict=True))
    return text.lower().translate(_NEWER_LOWER)


_MAX_INT = (1 << 31) - 1
"""Length of a substring in Spark if the call gives no length."""


def text(arg: Bound, what: str) -> Bound:
    """Check that the expression `arg` is a STRING, and return it unchanged.

    Raises:
        SqlTypeError: `arg` is not a STRING. The message names the SQL function `what`.
    """
    if arg.kind != STRING:
        hint = ", or decode the bytes by the format string" if arg.kind == BINARY else ""
        raise SqlTypeError(f"{what} needs STRING, but has {sql_name(arg.kind)}: CAST it{hint}")
    return arg


def literal_text(arg: Bound, what: str) -> str:
    """Return the text of a literal; raise SqlTypeError if `arg` is not a literal STRING. `what` is for the message."""
    if arg.kind != STRING or not arg.is_literal:
        raise SqlTypeError(f"{what} needs a literal text there")
    return str(arg.literal)


def _of_letters(ascii_form: Callable[[Values], Values], any_form: Callable[[str], str]) -> Callable[[Values], Values]:
    """Return a function that changes the case of Arrow texts: by `ascii_form` if a text is ASCII, else by `any_form`.

    Arrow's own functions replace one letter by one letter, but in Unicode, for example, `ß` becomes `SS`.
    """

    def values(texts: pa.Array) -> pa.Array:
        is_ascii = pc.coalesce(pc.string_is_ascii(texts), pa.scalar(True))
        changed = ascii_form(texts)
        if is_ascii.false_count == 0:
            return changed
        others = pc.invert(is_ascii)
        forms = pa.array(map(any_form, texts.filter(others).to_pylist()), STRING)
        return pc.replace_with_mask(changed, others, forms)

    return of_arrays(values)


_CASES = {"lower": _of_letters(pc.ascii_lower, to_lower), "upper": _of_letters(pc.ascii_upper, to_upper)}


def changed_case(arg: Bound, what: str) -> Bound:
    """Return the expression `what(arg)`, where `what` is `lower` or `upper`."""
    return call(STRING, _CASES[what], text(arg, what))


def trimmed(arg: Bound, what: str) -> Bound:
    """Return the expression `what(arg)`, where `what` is `trim`, `ltrim` or `rtrim`."""
    function = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[what]
    return call(STRING, lambda texts: function(texts, characters=" "), text(arg, what))


def length(arg: Bound) -> Bound:
    """Return the expression `length(arg)`, the number of characters of a STRING or of bytes of a BINARY."""
    if arg.kind == BINARY:
        return call(INT, pc.binary_length, arg)
    return call(INT, pc.utf8_length, text(arg, "length"))


def concatenated(*args: Bound) -> Bound:
    texts = [text(arg, "concat") for arg in args]
    # Typed, because a NULL literal has a type only here.
    return call(STRING, lambda *values: pc.binary_join_element_wise(*values, pa.scalar("")), *texts)


def _is_small(kind: pa.DataType) -> bool:
    return is_integer(kind) and kind.bit_width <= INT.bit_width


def part(whole: Bound, *numbers: Bound) -> Bound:
    """Return the expression `substring(whole, position)` or `substring(whole, position, length)`.

    `numbers` are the position and perhaps the length, which must be literals. A position counts from 1, and a negative
    position counts from the end.
    """
    if not all(_is_small(number.kind) and number.is_literal and number.literal is not None for number in numbers):
        raise SqlTypeError(
            f"substring needs literals for position and length that are INT, but has {type_names([whole, *numbers])}"
        )
    first, size = (*(int(number.literal) for number in numbers), _MAX_INT)[:2]
    start = first - 1 if first > 0 else first
    stop: int | None = start + size
    if size <= 0:
        start = stop = 0
    elif start < 0 <= start + size:
        stop = None
    return call(STRING, lambda texts: pc.utf8_slice_codeunits(texts, start, stop), text(whole, "substring"))


def replaced(whole: Bound, *literals: Bound) -> Bound:
    old, new = (*(literal_text(each, "replace") for each in literals), "")[:2]
    of_text = text(whole, "replace")
    if not old:
        return of_text
    return call(STRING, lambda texts: pc.replace_substring(texts, old, new), of_text)


def found(whole: Bound, literal: Bound, what: str) -> Bound:
    """Return the expression `what(whole, literal)`, where `what` is `startswith`, `endswith` or `contains`."""
    function = {"startswith": pc.starts_with, "endswith": pc.ends_with, "contains": pc.match_substring}[what]
    wanted = literal_text(literal, what)
    return call(BOOLEAN, lambda texts: function(texts, wanted), text(whole, what))


def like(arg: Bound, pattern: Bound) -> Bound:
    """Return the expression `arg LIKE pattern`, where `pattern` is a literal without a backslash."""
    of_text, wanted = text(arg, "LIKE"), literal_text(pattern, "LIKE")
    if "\\" in wanted:
        raise SqlTypeError("LIKE with a backslash in its pattern is not on the list")
    return call(BOOLEAN, lambda texts: pc.match_like(texts, wanted), of_text)
