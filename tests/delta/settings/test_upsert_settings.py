"""Settings of tables of the latest state."""

from __future__ import annotations

import pytest

from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.delta.settings.query_settings import check_keys, check_settings
from tiered_stream.errors import ConfigurationError

SOURCE = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "remote.storage.uri": "s3://tier"}
UPSERT = {**SOURCE, "ingest.mode": "upsert", "ingest.keys": "country, id"}


def test_keys_and_their_order_are_settings_of_the_tables_files() -> None:
    check_settings(UPSERT, "auto")
    files = table_spec({**UPSERT, "Ingest.OrderBy": "at"})
    assert (files.keys, files.order_by) == (("country", "id"), "at")
    assert (table_spec(SOURCE).keys, table_spec(SOURCE).order_by) == ((), None)
    assert table_spec(UPSERT).is_upsert and not table_spec(SOURCE).is_upsert


def test_rows_are_deleted_only_in_tables_of_the_latest_state() -> None:
    value = {"ingest.value.format": "json", "ingest.value.schema": "id INT", "ingest.envelope": "flattened"}
    with pytest.raises(ConfigurationError, match="flattened deletes rows, but ingest.mode is append"):
        check_settings({**SOURCE, **value}, "auto")
    check_settings({**UPSERT, **value}, "auto")


@pytest.mark.parametrize(
    ("given", "lane", "said"),
    [
        ({"ingest.keys": "id,id"}, "auto", "ingest.keys: 'id,id' must name columns, separated by commas, each once"),
        ({"ingest.keys": ""}, "auto", "ingest.keys: '' must name columns"),
        ({"ingest.ownColumns": "note,ID"}, "auto", "ingest.ownColumns has id, which records must set"),
        ({"ingest.ownColumns": "at", "ingest.orderBy": "At"}, "auto", "ingest.ownColumns has At, which records must"),
        ({"ingest.unavailableValue": "hex:0x"}, "auto", "ingest.unavailableValue: 'hex:0x' non-hexadecimal number"),
        ({"ingest.unavailableValue": ""}, "auto", "ingest.unavailableValue: '' must not be empty"),
        ({"ingest.mode": "merge"}, "auto", "ingest.mode"),
        ({"ingest.mode": "append"}, "auto", "ingest.keys is set, but ingest.mode is append: set ingest.mode=upsert"),
        ({"ingest.dayColumn": "day"}, "auto", "ingest.dayColumn does not go with ingest.mode=upsert: an update would"),
        ({"ingest.transform": "a:b"}, "auto", "ingest.transform does not go with ingest.mode=upsert"),
        ({"ingest.value.format": "string", "ingest.onDecodeError": "null"}, "auto", "onDecodeError=null does not go"),
        ({"ingest.tableProperty.Delta.appendOnly": "TRUE"}, "auto", "delta.appendOnly does not go with .*: a MERGE"),
        (
            {
                "ingest.value.format": "json",
                "ingest.value.schema": "id INT",
                "ingest.envelope": "flattened",
                "ingest.value.columns": "payload",
            },
            "auto",
            "ingest.envelope=flattened needs ingest.value.columns=flat",
        ),
        (
            {"ingest.unavailableValue": "?", "ingest.value.columns": "payload"},
            "auto",
            "ingest.value.columns does not go with ingest.mode=upsert: an update would land placeholders",
        ),
        ({}, "spark", "the Spark lane does not go with ingest.mode=upsert"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_name(given: dict[str, str], lane: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_settings({**UPSERT, **given}, lane)


@pytest.mark.parametrize(
    "name", ["ingest.orderBy", "ingest.mergeOn", "ingest.keys", "ingest.ownColumns", "ingest.unavailableValue"]
)
def test_a_setting_of_upserts_without_the_mode_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} .*ingest\.mode is append"):
        check_settings({**SOURCE, name: "x"}, "auto")


def test_debeziums_placeholder_is_the_default_if_there_is_an_envelope() -> None:
    assert table_spec(UPSERT).placeholder == ""
    assert table_spec({**UPSERT, "ingest.unavailableValue": "??"}).placeholder == "??"
    for envelope in ("debezium", "flattened"):
        values = {"ingest.value.format": "json", "ingest.value.schema": "id INT"}
        given = {**UPSERT, **values, "ingest.envelope": envelope}
        assert table_spec(given).placeholder == "__debezium_unavailable_value"
        assert table_spec({**given, "ingest.unavailableValue": "??"}).placeholder == "??"


def test_upserts_need_keys() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest\.mode is upsert.*ingest\.keys"):
        check_settings({**SOURCE, "ingest.mode": "upsert"}, "auto")


def test_topics_may_all_have_keys_of_their_own() -> None:
    given = {**SOURCE, "ingest.mode": "upsert"}
    check_settings({**given, "ingest.topic.orders.keys": "id"}, "auto")
    with pytest.raises(ConfigurationError, match=r"set ingest\.keys "):
        check_settings({**given, "ingest.topic.orders.compression": "snappy"}, "auto")
    with pytest.raises(ConfigurationError, match=r"ingest\.keys, .*ingest\.topic\.visits\.keys"):
        check_keys(table_spec(given), "visits")
    check_keys(table_spec(SOURCE), "visits")
