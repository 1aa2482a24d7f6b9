"""Translation of Spark's pushed filters (`sources.Filter`) into the topics, partitions, offsets and times to read.

Spark joins the filters by AND, and evaluates every filter again on the rows that are read. So a filter that this module
does not know excludes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import datasource as spark

from tiered_stream.options.positions import EPOCH
from tiered_stream.plan.pruning import EVERY, Numbers, Pruning

_MICROSECOND = timedelta(microseconds=1)

Bounds = tuple[int, int]
"""Pair of integers around a value: the smallest integer not below the value, and the largest integer not above it."""


def pruning_of(filters: Iterable[spark.Filter]) -> Pruning:
    """Return the topics, partitions, offsets and timestamps that a row may have if it passes all filters."""
    return reduce(Pruning.__and__, map(_pruning, filters), Pruning())


def _pruning(pushed: spark.Filter) -> Pruning:
    """Return the topics, partitions, offsets or timestamps that one filter allows.

    A filter on another column, or of an unknown kind, allows everything.
    """
    match getattr(pushed, "attribute", None):
        case ("topic",):
            return Pruning(topics=_topics(pushed))
        case ("partition",):
            return Pruning(partitions=_numbers(pushed, _whole_number))
        case ("offset",):
            return Pruning(offsets=_numbers(pushed, _whole_number))
        case ("timestamp",):
            return Pruning(timestamps=_numbers(pushed, _milliseconds))
    return Pruning()


def _topics(pushed: spark.Filter) -> frozenset[str] | None:
    """Return the topics that a filter on `topic` allows; None: any topic, because the filter is of an unknown kind."""
    match pushed:
        case spark.EqualTo(value=str(topic)) | spark.EqualNullSafe(value=str(topic)):
            return frozenset([topic])
        case spark.In(value=topics) if all(topic is None or isinstance(topic, str) for topic in topics):
            return frozenset(topic for topic in topics if topic is not None)
    return None


def _numbers(pushed: spark.Filter, to_bounds: Callable[[Any], Bounds | None]) -> Numbers:
    """Return the integers that a filter allows; all integers if the filter is of an unknown kind.

    Args:
        pushed: filter on a number or on a timestamp.
        to_bounds: returns the `Bounds` of a value in the filter. If it returns None, the value has an unexpected type,
            and all integers are allowed.
    """
    if isinstance(pushed, spark.In):
        value_bounds = [to_bounds(value) for value in pushed.value if value is not None]  # nothing equals null
        exact = [bounds[0] for bounds in value_bounds if bounds is not None and bounds[0] == bounds[1]]
        return EVERY if None in value_bounds else Numbers.of(exact)
    bounds = to_bounds(getattr(pushed, "value", None))
    if bounds is None:
        return EVERY
    at_or_after, at_or_before = bounds
    match pushed:
        case spark.EqualTo() | spark.EqualNullSafe():
            return Numbers.between(at_or_after, at_or_before)
        case spark.GreaterThanOrEqual():
            return Numbers.between(first=at_or_after)
        case spark.GreaterThan():
            return Numbers.between(first=at_or_before + 1)
        case spark.LessThanOrEqual():
            return Numbers.between(last=at_or_before)
        case spark.LessThan():
            return Numbers.between(last=at_or_after - 1)
    return EVERY


def _whole_number(value: Any) -> Bounds | None:
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _milliseconds(value: Any) -> Bounds | None:
    """Return the `Bounds` of a timestamp in milliseconds since the epoch; the timestamp itself has microseconds.

    The result is None if the value is not a timestamp, or has no time zone and so is not an instant.
    """
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    micros = (value - EPOCH) // _MICROSECOND
    return -(-micros // 1000), micros // 1000
