"""Which archives are taken for an environment in which tasks run."""

from __future__ import annotations

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.executor_python import environment_folder
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


def test_a_source_without_options_names_the_statement_that_keeps_them() -> None:
    source = TieredStreamDataSource({})
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW … USING tiered_stream OPTIONS"):
        source.reader(source.schema())
