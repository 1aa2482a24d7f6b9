from __future__ import annotations

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.landing.storage import delta_storage_options
from tiered_stream.landing.target import TableStorage, as_options, check_names, table_files, table_properties
from tiered_stream.options import StorageOptions

SEGMENTS = StorageOptions(
    s3_endpoint_url="http://tier:9000", s3_region="eu-west-1", s3_path_style=True, access_key_id="id",
    secret_access_key="secret",
)  # fmt: skip


def test_a_table_is_reached_as_the_segments_are() -> None:
    storage = table_files({}, SEGMENTS).storage
    assert storage == TableStorage("http://tier:9000", "eu-west-1", True, "id", "secret", None)
    assert "secret" not in repr(storage).replace("secret_access_key", "")


def test_a_table_with_a_storage_of_its_own_takes_nothing_from_the_segments() -> None:
    storage = table_files({"ingest.storage.s3.region": "us-west-2"}, SEGMENTS).storage
    assert storage == TableStorage(s3_region="us-west-2")


def test_an_unknown_storage_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest\.storage\.s3\.regoin is unknown; known are aws"):
        table_files({"ingest.storage.s3.regoin": "x"}, SEGMENTS)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ingest.targetFileSiez", "ingest.targetFileSize"),
        ("ingest.daycolum", "ingest.dayColumn"),
        ("ingets.dayColumn", "ingest.dayColumn"),
        ("ingestCompression", "ingest.compression"),
        ("ingest.storag.s3.region", "ingest.storage.s3.region"),
        ("ingest.tableProperties.delta.appendOnly", "ingest.tableProperty.…"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(name: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^setting {name} is unknown; the nearest known one is {nearest}$"):
        check_names({name: "1", "subscribe": "t"})


def test_options_of_the_source_and_names_like_nothing_are_left_to_it() -> None:
    check_names(
        {
            "startingOffset": "x",
            "mergeSchema": "x",
            "kafka.x": "x",
            "INGEST.dayColumn": "d",
            "ingest.storage.s3.region": "x",
        }
    )


def test_what_the_tasks_must_know_travels_as_options() -> None:
    settings = {"ingest.dayColumn": "day", "ingest.targetFileSize": "64m", "ingest.compression": "zstd"}
    files = table_files(as_options(settings, "s3://lake/orders", 8), SEGMENTS)
    assert (files.uri, files.tasks, files.day_column) == ("s3://lake/orders", 8, "day")
    assert (files.target_bytes, files.compression) == (64 << 20, "zstd")


def test_table_properties_keep_their_case() -> None:
    settings = {"ingest.tableProperty.delta.appendOnly": "true", "ingest.compression": "zstd"}
    assert table_properties(settings) == {"delta.appendOnly": "true"}


def test_deltalake_gets_what_was_given_and_no_more() -> None:
    assert delta_storage_options(TableStorage()) == {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    given = delta_storage_options(table_files({}, SEGMENTS).storage)
    assert given["AWS_ENDPOINT_URL"] == "http://tier:9000" and given["AWS_ALLOW_HTTP"] == "true"
    assert "AWS_VIRTUAL_HOSTED_STYLE_REQUEST" not in given
