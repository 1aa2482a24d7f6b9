"""What the files are like inside."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.made_batches import ORDERS, decoded
from tests.stack.rows import Record
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.delta.parquet_properties import file_schema, open_parquet, with_topic_once
from tiered_stream.delta.table_writer import TableWriter

NOISE = random.Random(1).randbytes(100_000)
TEXT = b'{"id": 4711, "state": "shipped"}' * 3


def compressions(folder: Path, records: list[Record], compression: str) -> dict[str, str]:
    """Each column's codec in the file that has these records; they are read back, too."""
    writer = TableWriter(replace(TableFiles(folder.as_uri()), compression=compression), 0)
    batch = decoded(records)
    writer.add(ORDERS, batch)
    (file,) = writer.finish()
    parquet = pq.ParquetFile(folder / file.path)
    assert parquet.read().cast(batch.schema).equals(pa.Table.from_batches([batch]))
    group = parquet.metadata.row_group(0)
    return {group.column(at).path_in_schema: group.column(at).compression for at in range(group.num_columns)}


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_payload_that_does_not_get_smaller_is_stored_as_it_is(tmp_path: Path, compression: str) -> None:
    records = [Record(TEXT, NOISE[at : at + 100], ((str(at), TEXT),)) for at in range(0, 100_000, 100)]
    found = compressions(tmp_path, records, compression)
    assert found.pop("value") == "UNCOMPRESSED"
    assert len(found) == 8 and set(found.values()) == {compression.upper()}


def test_the_first_records_do_not_stand_for_all(tmp_path: Path) -> None:
    noise = [Record(None, random.Random(at).randbytes(100)) for at in range(10_000)]
    assert compressions(tmp_path, [Record(None, TEXT)] * 200 + noise, "snappy")["value"] == "UNCOMPRESSED"


def test_a_few_bytes_tell_nothing(tmp_path: Path) -> None:
    found = compressions(tmp_path, [Record(None, NOISE[:100]), Record(b"", None)], "snappy")
    assert set(found.values()) == {"SNAPPY"}


def test_nothing_is_compressed_when_that_is_not_wanted(tmp_path: Path) -> None:
    assert set(compressions(tmp_path, [Record(TEXT, TEXT)] * 1000, "none").values()) == {"UNCOMPRESSED"}


class Written(io.BytesIO):
    """A file that remembers the sizes of what was written to it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(self, data: Any) -> int:
        self.sizes.append(len(data))
        return super().write(data)


def test_a_page_of_large_records_has_about_a_mebibyte() -> None:
    batch = decoded([Record(None, NOISE[:10_000])] * 800)
    rows = with_topic_once(batch, ORDERS.topic, file_schema(batch.schema))
    file = Written()
    with open_parquet(pa.PythonFile(file, "w"), rows, "none") as parquet:
        parquet.write_batch(rows)
    assert 1 << 19 < max(file.sizes) < 1 << 21
    assert pq.read_table(io.BytesIO(file.getvalue())).column("value").to_pylist() == [NOISE[:10_000]] * 800
