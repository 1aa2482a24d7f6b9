"""Choice of the tests that the installed Spark has the classes for."""

from __future__ import annotations

from tests.spark.abilities import PUSHED_FILTERS

collect_ignore = [] if PUSHED_FILTERS.present else ["test_pushdown.py"]
