"""Read Kafka topics with Spark straight from tiered storage (KIP-405)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiered_stream.delta.landing import land as land
    from tiered_stream.replay.run_replay import replay as replay
    from tiered_stream.replay.verification import verify as verify
    from tiered_stream.reporting import report_queries as report_queries
    from tiered_stream.scanner import scan as scan
    from tiered_stream.source import register as register

__version__ = "0.1.0"
__all__ = ["__version__", "land", "register", "replay", "report_queries", "scan", "verify"]

_DEFINED_IN = {
    "land": "tiered_stream.delta.landing",
    "register": "tiered_stream.source",
    "report_queries": "tiered_stream.reporting",
    "scan": "tiered_stream.scanner",
    "verify": "tiered_stream.replay.verification",
}


def __getattr__(name: str) -> Any:
    # Imports are lazy, because a task that only reads needs neither Spark's streaming API nor Arrow's Parquet writer.
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    if name == "replay":
        return importlib.import_module("tiered_stream.replay")  # the module itself is callable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
