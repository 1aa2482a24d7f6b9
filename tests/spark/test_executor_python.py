"""Which archives are taken for an environment in which tasks run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.executor_python import FORK_SERVER, _fork_program, environment_folder
from tiered_stream.spark.session import boolean
from tiered_stream.spark.source import TieredStreamDataSource

PACKED = "tiered-stream-0.1.0-python3.11-x86_64.tar.gz"


@pytest.mark.parametrize(
    ("archive", "folder"),
    [
        ("/home/me/env.tar.gz#environment", "environment"),
        (f"hdfs://lake/{PACKED}", PACKED),
        (f" file:/dist/{PACKED}#packed", "packed"),
        ("models.tar.gz#models", None),
        ("", None),
    ],
)
def test_an_environment_is_known_by_its_folder_or_by_its_name(archive: str, folder: str | None) -> None:
    assert environment_folder(archive) == folder


@pytest.mark.parametrize("text", ["false", "False", " FALSE "])
def test_the_fork_server_is_off_for_every_spelling_of_false_that_spark_takes(text: str) -> None:
    session: Any = SimpleNamespace(conf=SimpleNamespace(get={FORK_SERVER: text}.get))
    assert _fork_program(session) is None


@pytest.mark.parametrize(
    ("text", "value"), [(None, None), ("", None), ("no", None), (" True", True), ("true", True), ("FALSE\n", False)]
)
@pytest.mark.parametrize("default", [True, False])
def test_a_boolean_of_sparks_is_its_default_if_it_is_neither_true_nor_false(
    text: str | None, value: bool | None, default: bool
) -> None:
    assert boolean(text, default=default) is (default if value is None else value)


def test_a_source_without_options_names_the_statement_that_keeps_them() -> None:
    source = TieredStreamDataSource({})
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW … USING tiered_stream OPTIONS"):
        source.reader(source.schema())
