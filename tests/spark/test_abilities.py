"""The record of each version's abilities, from which the documentation's table is made."""

from __future__ import annotations

import json

from tests.rigs.stack.jars import SPARK
from tests.spark.abilities import RECORDS, abilities_here


def test_the_record_of_the_installed_spark_is_right() -> None:
    assert json.loads(RECORDS.read_text("utf-8"))[SPARK]["abilities"] == abilities_here()
