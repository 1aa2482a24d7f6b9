"""Spark's filters on the columns of a record, as what may be left out by them (Spark: `sources.Filter`).

Filters are joined by AND. Spark evaluates each again, so one that is not known here leaves out nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tiered_stream.options.positions import EPOCH
from tiered_stream.plan.pruning import EVERY, Numbers, Pruning

_MICROSECOND = timedelta(microseconds=1)

Bounds = tuple[int, int]
"""The first number at or after a value, and the last at or before it."""


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """What all rows have in common that pass every filter."""
    return reduce(Pruning.__and__, map(_pruning, filters), Pruning())


def _pruning(one: Filter) -> Pruning:
    match getattr(one, "attribute", None):
        case ("topic",):
            return Pruning(topics=_topics(one))
        case ("partition",):
            return Pruning(partitions=_numbers(one, _whole_number))
        case ("offset",):
            return Pruning(offsets=_numbers(one, _whole_number))
        case ("timestamp",):
            return Pruning(timestamps=_numbers(one, _milliseconds))
    return Pruning()


def _topics(one: Filter) -> frozenset[str] | None:
    """None: any."""
    match one:
        case EqualTo(value=str(topic)) | EqualNullSafe(value=str(topic)):
            return frozenset([topic])
        case In(value=topics) if all(topic is None or isinstance(topic, str) for topic in topics):
            return frozenset(topic for topic in topics if topic is not None)
    return None


def _numbers(one: Filter, bounds_of: Callable[[Any], Bounds | None]) -> Numbers:
    if isinstance(one, In):
        several = [bounds_of(value) for value in one.value if value is not None]  # nothing equals null
        exact = [bounds[0] for bounds in several if bounds is not None and bounds[0] == bounds[1]]
        return EVERY if None in several else Numbers.of(exact)
    bounds = bounds_of(getattr(one, "value", None))
    if bounds is None:
        return EVERY
    at_or_after, at_or_before = bounds
    match one:
        case EqualTo() | EqualNullSafe():
            return Numbers.between(at_or_after, at_or_before)
        case GreaterThanOrEqual():
            return Numbers.between(least=at_or_after)
        case GreaterThan():
            return Numbers.between(least=at_or_before + 1)
        case LessThanOrEqual():
            return Numbers.between(most=at_or_before)
        case LessThan():
            return Numbers.between(most=at_or_after - 1)
    return EVERY


def _whole_number(value: Any) -> Bounds | None:
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _milliseconds(value: Any) -> Bounds | None:
    """Spark's timestamps are in microseconds, those of records in milliseconds; one without a zone is no instant."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    micros = (value - EPOCH) // _MICROSECOND
    return -(-micros // 1000), micros // 1000
