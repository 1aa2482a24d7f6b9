"""Which archives are taken for an environment in which tasks run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.executor_python import FORK_SERVER, _fork_program, environment_folder
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


def test_a_source_without_options_names_the_statement_that_keeps_them() -> None:
    source = TieredStreamDataSource({})
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW … USING tiered_stream OPTIONS"):
        source.reader(source.schema())
