"""Checks of a query's settings that need neither Spark nor the table."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.delta.settings.ingest_settings import COMMIT, check_names, source_options, table_files
from tiered_stream.delta.settings.row_settings import row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given import GivenOptions
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
    table_files(options)
    row_settings(options)
    GivenOptions(options).read(COMMIT)
    return parsed


def check_all_columns(options: Options) -> None:
    """Raise ConfigurationError if the option `columns` is set, because the tables get whole records."""
    if options.columns is not None:
        raise ConfigurationError("option columns is for queries of your own: take it away, all columns are written")
