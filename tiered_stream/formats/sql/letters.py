"""Upper and lower case of texts as Spark has it, with any version of Python.

Spark 4.2 takes letters from ICU 78, which has Unicode 17. Python's own tables are older (Python 3.11: Unicode 14), so
this module has the letters that Unicode got later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PAIRS = (
    (0x1C89, 0x1C89, 0x1C8A), (0xA7CB, 0xA7CB, 0x264), (0xA7CC, 0xA7CC, 0xA7CD), (0xA7CE, 0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2, 0xA7D3), (0xA7D4, 0xA7D4, 0xA7D5), (0xA7DA, 0xA7DA, 0xA7DB), (0xA7DC, 0xA7DC, 0x19B),
    (0x10D50, 0x10D65, 0x10D70), (0x16EA0, 0x16EB8, 0x16EBB),
)  # fmt: skip
"""First and last upper case letter, and lower case of the first one, for letters that Unicode got in 15 to 17."""
_IGNORED = (
    "897 ECE 1ACF-1ADD 1AE0-1AEB A7F1 10D4E 10D69-10D6D 10D6F 10EC5 10EFA-10EFF 11241 113BB-113C0 113CE 113D0 113D2",
    "113E1-113E2 11B60 11B62-11B64 11B66 11DD9 11F00-11F01 11F36-11F3A 11F40 11F42 11F5A 13439-13440 13447-13455",
    "1611E-16129 1612D-1612F 16D40-16D42 16D6B-16D6C 16FF2-16FF3 1E030-1E06D 1E08F 1E4EB-1E4EF 1E5EE-1E5EF 1E6E3",
    "1E6E6 1E6EE-1E6EF 1E6F5 1E6FF",
)
"""Marks and the like of Unicode 15 to 17 (`Case_Ignorable`): a word goes on after them."""
_CASED = ("1C89-1C8A A7CB-A7CF A7D2 A7D4 A7DA-A7DC 10D50-10D65 10D70-10D85 16EA0-16EB8 16EBB-16ED3 1DF25-1DF2A",)
"""Letters of Unicode 15 to 17 that have a case (`Cased`)."""
_OTHERS = ("295", "1171E")
"""Characters that were a letter with a case and a mark in Unicode 14, and are neither in Unicode 17."""
_SIGMA, _MARK = "Σ", "\u0301"


def _code_points(ranges: Sequence[str]) -> list[int]:
    bounds = [(part.split("-")[0], part.split("-")[-1]) for part in " ".join(ranges).split()]
    return [point for first, last in bounds for point in range(int(first, 16), int(last, 16) + 1)]


_LOWER = {
    point: lower + point - first for first, last, lower in _PAIRS for point in range(first, last + 1)
}  # fmt: skip
_UPPER = {lower: upper for upper, lower in _LOWER.items()}
_STAND_INS = {
    **dict.fromkeys(_code_points(_IGNORED), _MARK),
    **dict.fromkeys(_code_points(_CASED), "a"),
    **dict.fromkeys(_code_points(_OTHERS), "-"),
    ord("İ"): "a",  # Python makes two characters of it
}
"""Characters that each Python knows, in place of newer characters, for the form of a sigma next to them."""
_NEWER = re.compile("[" + "".join(map(chr, _STAND_INS)) + "]")


def to_upper(text: str) -> str:
    """Return the text in upper case."""
    return text.upper().translate(_UPPER)


def to_lower(text: str) -> str:
    """Return the text in lower case; a Σ at the end of a word becomes ς."""
    if _SIGMA in text and _NEWER.search(text):
        forms = text.translate(_STAND_INS).lower()
        text = "".join(form if letter == _SIGMA else letter for letter, form in zip(text, forms, strict=True))
    return text.lower().translate(_LOWER)
