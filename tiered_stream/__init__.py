"""Read Kafka topics with Spark straight from tiered storage (KIP-405)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiered_stream.delta.landing.land import land as land
    from tiered_stream.delta.settings.ingest_settings import read_options as read_options
    from tiered_stream.read.scanner import scan as scan
    from tiered_stream.replays.run_replay import replay as replay
    from tiered_stream.spark.reporting import report_queries as report_queries
    from tiered_stream.spark.source import register as register
    from tiered_stream.verification.verify_table import verify as verify

__version__ = "0.1.0"
__all__ = ["__version__", "land", "read_options", "register", "replay", "report_queries", "scan", "verify"]

_DEFINED_IN = {
    "land": "tiered_stream.delta.landing.land",
    "read_options": "tiered_stream.delta.settings.ingest_settings",
    "register": "tiered_stream.spark.source",
    "replay": "tiered_stream.replays.run_replay",
    "report_queries": "tiered_stream.spark.reporting",
    "scan": "tiered_stream.read.scanner",
    "verify": "tiered_stream.verification.verify_table",
}


def __getattr__(name: str) -> Any:
    # Imports are lazy, because a task that only reads needs neither Spark's streaming API nor Arrow's Parquet writer.
    if name in _DEFINED_IN:
        from tiered_stream.extras import naming_extras

        with naming_extras(f"tiered_stream.{name}"):
            return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
