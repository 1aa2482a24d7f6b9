"""All values that `tiered_stream` takes otherwise than Spark's `kafka` source on purpose, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.values.cases import KINDS, Case


@dataclass(frozen=True, slots=True)
class Difference:
    """`value`, `spark` and `ours` are for readers; `given` are the options of the cases, in queries of `kinds`."""

    option: str
    value: str
    spark: str
    ours: str
    why: str
    given: tuple[dict[str, str], ...]
    kinds: tuple[str, ...] = KINDS


def _of(option: str, *values: str) -> tuple[dict[str, str], ...]:
    return tuple({option: value} for value in values)


_OFFSETS = '{"option-values":{"0":0,"1":0}}'
_SECOND = '{"option-values":{"0":1,"1":%s}}'
_ASSIGNED = '{"option-values":[%s]}'
_DROPPED = "Spark silently drops text that the user meant"

DIFFERENCES = (
    Difference(
        "maxOffsetsPerTrigger", "0 and less", "taken: nothing is ever read", "refused",
        "a stream that does not progress loses records to retention",
        _of("maxOffsetsPerTrigger", "0", "-1"), ("stream",),
    ),
    Difference(
        "startingOffsets", "text behind the object", "taken without it", "refused", _DROPPED,
        _of("startingOffsets", f"{_OFFSETS}x", f"{_OFFSETS} {{}}"),
    ),
    Difference(
        "startingOffsets", "a word, an age or a time for a whole topic: `{\"t\":\"earliest\"}`", "refused",
        "taken for all partitions of the topic", "otherwise a user must list a topic's partitions to set its start",
        _of("startingOffsets", '{"option-values":"earliest"}'),
    ),
    Difference(
        "endingOffsets", "text behind the object", "taken without it", "refused", _DROPPED,
        _of("endingOffsets", f"{_OFFSETS}x"), ("batch",),
    ),
    Difference(
        "assign", "text behind the object", "taken without it", "refused", _DROPPED,
        _of("assign", f"{_ASSIGNED % 0}x", f"{_ASSIGNED % 0} {{}}"),
    ),
    Difference(
        "startingOffsets", "numbers beyond 64 bits", "taken as others: 2^64 as 0", "refused",
        "a query would start at another offset than the user gave, or read nothing of the partition",
        _of("startingOffsets", _SECOND % 2**64),
    ),
    Difference(
        "startingOffsets", "2^63, -1e300", "taken: nothing of the partition is read", "refused",
        "a query would read nothing of the partition",
        _of("startingOffsets", _SECOND % 2**63, _SECOND % "-1e300"), ("stream",),
    ),
    Difference(
        "endingOffsets", "numbers beyond 64 bits", "taken as others: 2^64 + 1 as 1", "refused",
        "a query would end at another offset than the user gave",
        _of("endingOffsets", _SECOND % (2**64 + 1)), ("batch",),
    ),
    Difference(
        "assign", "numbers beyond 32 bits", "taken as others: 2^32 as 0", "refused",
        "another partition would be read, or none",
        _of("assign", *(_ASSIGNED % number for number in ("1e10", "2147483648", "4294967296", "1.5e300"))),
    ),
    Difference(
        "subscribePattern", "forms that only Java has: sets within sets, `\\p{…}`, `\\Q…\\E`, `(?<name>…)`", "taken",
        "refused", "Python reads the pattern, and it must mean the same there",
        _of(
            "subscribePattern", r"\p{Alpha}+-values", "[a-z&&[^q]]ption-values", "[o[p]]ption-values",
            r"\Qoption\E-values", "(?<name>option)-values",
        ),
    ),
)  # fmt: skip


def differing() -> Iterator[tuple[str, str]]:
    """The cases, by their text, and the kinds of queries."""
    for difference in DIFFERENCES:
        for given in difference.given:
            for kind in difference.kinds:
                yield str(Case(given)), kind


def agree(sparks: str, ours: str) -> bool:
    """Whether both took it, with as many rows, or both refused it."""
    took = [answer.startswith("rows") for answer in (sparks, ours)]
    return sparks == ours if all(took) else not any(took)
