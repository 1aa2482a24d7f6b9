"""Tables by `ingest.select` and `ingest.where`, in both lanes, with Spark and Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.delta.test_typed_tables import Typed
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import configured
from tests.tier.topics import topic_options, write_topic
from tiered_stream import verify
from tiered_stream.errors import ConfigurationError

pytestmark = pytest.mark.stack

LANES = ("direct", "spark")
JSON = {
    "ingest.value.format": "json",
    "ingest.value.schema": "id BIGINT, kind STRING, amount DOUBLE, `unit price` STRING, "
    "place STRUCT<city: STRING, n: INT>",
    "ingest.select": "id AS order_id, lower(kind) AS kind, TRY_CAST(`unit price` AS BIGINT) AS price, place.city, "
    "amount * 100 AS cents, topic, partition, offset AS kafka_offset",
    "ingest.where": "kind <> 'PING' AND amount > 0 AND offset >= 2",
}


def document(number: int) -> bytes | None:
    whole: dict[str, Any] = {
        "id": number, "kind": ("Order", "PING", "Straße", None)[number % 4], "amount": number - 3.5,
        "unit price": ("12", "-", None)[number % 3], "place": {"city": f"city {number}"} if number % 2 else None,
    }  # fmt: skip
    return None if number == 11 else orjson.dumps(whole)


class Sql(Typed):
    """Lands a topic whose first 20 offsets have documents, of which the ninth is garbage."""

    def __init__(self, spark: SparkSession, folder: Path, lane: str) -> None:
        super().__init__(spark, folder / lane)
        self.lane = lane
        values = [document(number) for number in range(20)]
        values[8] = b"garbage"
        write_topic(self.bucket, "orders", [[Record(b"k", value) for value in values]])

    def land(self, **given: str) -> StreamingQuery:
        return self.run(self.lane, **{**JSON, **self.aside, **given})

    def rows(self) -> list[Row]:
        return self.read().orderBy("kafka_offset").collect()


def test_both_lanes_land_the_same_selected_rows_and_keep_garbage_aside(spark: SparkSession, tmp_path: Path) -> None:
    direct, by_spark = (Sql(spark, tmp_path, lane) for lane in LANES)
    query = direct.land()
    by_spark.land()
    assert direct.rows() == by_spark.rows()
    assert [(row.order_id, row.kind, row.price, row.city, row.cents) for row in direct.rows()[:3]] == [
        (4, "order", None, None, 50.0),
        (6, "straße", 12, None, 250.0),
        (10, "straße", None, None, 650.0),
    ]
    assert direct.rows()[0].__fields__ == [
        "order_id", "kind", "price", "city", "cents", "topic", "partition", "kafka_offset",
    ]  # fmt: skip
    assert [row.kafka_offset for row in direct.rows()] == [4, 6, 10, 12, 14, 16, 18]
    for each in (direct, by_spark):
        assert [row.offset for row in each.read(each.dead).collect()] == [8]
    observed = [each.observedMetrics.get("tiered_stream") for each in query.recentProgress]
    assert sum(each.filtered_records or 0 for each in observed if each is not None) == 12


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
def test_a_batch_without_rows_and_a_day_column_are_landed_like_others(
    spark: SparkSession, tmp_path: Path, lane: str
) -> None:
    sql = Sql(spark, tmp_path, lane)
    day = {"ingest.dayColumn": "day", "ingest.select": "*, upper(kind) AS loud, offset AS kafka_offset",
           "ingest.value.schema": "id BIGINT, kind STRING"}  # fmt: skip
    sql.land(**day, **{"ingest.where": "id < 0"})
    assert sql.rows() == []
    write_topic(sql.bucket, "orders", [[Record(b"k", document(number), (), 86_400_000) for number in range(3)]], 20)
    sql.land(**day, **{"ingest.where": "id > 0"})
    assert [(row.id, row.kind, row.loud, str(row.day), row.kafka_offset) for row in sql.rows()] == [
        (1, "PING", "PING", "1970-01-02", 21),
        (2, "Straße", "STRASSE", "1970-01-02", 22),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ingest.where": "rlike(kind, 'a')"}, "the function rlike is not on the list"),
        ({"ingest.select": "id, ID"}, "two columns 'id'"),
        ({"ingest.select": "`unit price`"}, "cannot be a column of a Delta table"),
        ({"ingest.where": "kind"}, "must be BOOLEAN"),
    ],
)
def test_sql_that_is_not_listed_is_refused_by_name_before_a_table_is_made(
    spark: SparkSession, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    sql = Sql(spark, tmp_path, "spark")
    with pytest.raises(ConfigurationError, match=said):
        sql.land(**given)
    assert not sql.table.exists()


def test_two_quotes_in_a_text_are_refused_if_a_setting_of_the_session_gives_them_another_meaning(
    spark: SparkSession, tmp_path: Path
) -> None:
    setting, sql = "spark.sql.legacy.consecutiveStringLiterals.enabled", Sql(spark, tmp_path, "spark")
    with configured(spark, {setting: "true"}), pytest.raises(ConfigurationError, match=f"{setting}=false"):
        sql.land(**{"ingest.where": "kind = 'it''s'"})


@pytest.mark.slow
def test_verify_compares_selected_columns_and_refuses_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    sql = Sql(spark, tmp_path, "direct")
    given = {"ingest.kafkaColumns": "key, topic, partition, offset", "ingest.select": "key, topic, partition AS p, "
             "offset AS kafka_offset, id", "ingest.where": "TRUE", "ingest.onDecodeError": "null"}  # fmt: skip
    given |= {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT"}
    sql.run("auto", **given)
    options = topic_options(sql.bucket, "orders", given)
    with pytest.raises(ConfigurationError, match=r"ingest\.where is set"):
        verify(spark, options=options, table=str(sql.table))
    del options["ingest.where"]
    report = verify(spark, options=options, table=str(sql.table))
    assert (report.equal, report.columns) == (True, ("key",))
