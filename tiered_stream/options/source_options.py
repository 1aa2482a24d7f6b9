"""Tuples of the source's options: `OPTIONS` has all, `OPTIONS_WITHOUT_LIMITS` has all except limits on sizes."""

from __future__ import annotations

from typing import Any

from tiered_stream.options import remote_options, spark_options
from tiered_stream.options.limit_options import LIMIT_OPTIONS
from tiered_stream.options.types import Option, declared_in

OPTIONS_WITHOUT_LIMITS: tuple[Option[Any], ...] = (
    *declared_in(vars(spark_options)),
    *spark_options.REFUSED,
    *declared_in(vars(remote_options)),
)
OPTIONS = (*OPTIONS_WITHOUT_LIMITS, *LIMIT_OPTIONS.values())
