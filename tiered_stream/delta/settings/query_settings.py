"""Checks of a query's settings that need neither Spark nor the table."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.delta.settings.ingest_settings import (
    APPEND_ONLY,
    DAY_COLUMN,
    PROPERTY_PREFIX,
    check_names,
    is_append_only,
    shared_settings,
    source_options,
    table_spec,
    topic_overrides,
    with_overrides,
)
from tiered_stream.delta.settings.row_settings import FLAT, VALUE_COLUMNS
from tiered_stream.delta.settings.upsert_settings import KEYS, check_upsert, placeholder_of
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.parsing import Options, parse_options

LANES = ("auto", "direct", "spark")


def check_settings(options: Mapping[str, str], lane: str) -> Options:
    """Check all settings that can be checked without Spark and without the table; return the source's parsed options.

    `options` are the query's settings, and `lane` is the lane that the user has chosen.

    Raises:
        ConfigurationError: a setting is missing, unknown or malformed.
    """
    if lane not in LANES:
        raise ConfigurationError(f"the lane is {lane!r}; it may be {', '.join(LANES)}")
    check_names(options)
    parsed = parse_options(source_options(options), streaming=True)
    check_all_columns(parsed)
    table_spec(options)
    of_topics = _of_topics(options)
    for given in (options, *of_topics):
        # Topics may all have keys of their own; a topic without keys is refused when its table is looked up.
        needs_keys = given is not options or not any(GivenOptions(own).has(KEYS) for own in of_topics)
        check_upsert(given, _refused_with_upsert(given, lane), needs_keys=needs_keys)
    return parsed


def _of_topics(options: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the settings of each topic that has settings of its own."""
    shared = shared_settings(options)
    return [dict(with_overrides(shared, own)) for own in topic_overrides(options).values()]


def _refused_with_upsert(options: Mapping[str, str], lane: str) -> dict[str, str]:
    """Return the settings that are given and do not suit `ingest.mode=upsert`, with an advice for each."""
    given, refused = GivenOptions(options), {}
    if given.has(DAY_COLUMN):
        refused[DAY_COLUMN.name] = "an update would move rows from day to day. Set ingest.clusterBy in its place"
    if placeholder_of(options) and given.read(VALUE_COLUMNS).lower() != FLAT:
        refused[VALUE_COLUMNS.name] = (
            "an update would land placeholders of values that the database does not send. Land a column for each field"
        )
    if is_append_only(table_spec(options).properties):
        refused[f"{PROPERTY_PREFIX}{APPEND_ONLY}"] = "a MERGE changes rows. Remove the property"
    if lane == "spark":
        refused["the Spark lane"] = "tasks write the new rows, and the driver merges them. Use lane auto or direct"
    return refused


def check_all_columns(options: Options) -> None:
    """Raise ConfigurationError if the option `columns` is set, because the tables get whole records."""
    if options.columns is not None:
        raise ConfigurationError("option columns is for queries of your own: remove it, all columns are written")
