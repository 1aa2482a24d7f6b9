"""What the files are like inside."""

from __future__ import annotations

import io
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from tests.delta.made_batches import ORDERS, decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_folder import UploadThreads
from tiered_stream.delta.write.parquet_properties import file_schema, open_parquet, with_topic_dictionary
from tiered_stream.delta.write.table_writer import TableWriter

NOISE = random.Random(1).randbytes(100_000)
TEXT = b'{"id": 4711, "state": "shipped"}' * 3


def compressions(folder: Path, records: list[Record], compression: str) -> dict[str, str]:
    """Each column's codec in the file that has these records; they are read back, too."""
    writer = TableWriter(replace(TableSpec(folder.as_uri()), compression=compression), 0, UploadThreads())
    batch = decoded(records)
    writer.add(ORDERS, batch)
    (file,) = writer.finish()
    parquet = pq.ParquetFile(folder / file.path)
    assert parquet.read().cast(batch.schema).equals(pa.Table.from_batches([batch]))
    group = parquet.metadata.row_group(0)
    return {group.column(at).path_in_schema: group.column(at).compression for at in range(group.num_columns)}


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
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
    rows = with_topic_dictionary(batch, ORDERS.topic, file_schema(batch.schema))
    file = Written()
    with open_parquet(pa.PythonFile(file, "w"), rows, "none") as parquet:
        parquet.write_batch(rows)
    assert 1 << 19 < max(file.sizes) < 1 << 21
    assert pq.read_table(io.BytesIO(file.getvalue())).column("value").to_pylist() == [NOISE[:10_000]] * 800


def test_only_kafkas_topic_column_gets_the_topic() -> None:
    batch = decoded([Record(), Record()]).append_column("state", pa.array(["new", "old"]).dictionary_encode())
    rows = with_topic_dictionary(batch, ORDERS.topic, file_schema(batch.schema))
    assert rows.select(["topic", "state"]).to_pydict() == {"topic": [ORDERS.topic] * 2, "state": ["new", "old"]}


def test_numbers_that_may_be_nan_have_no_bounds_at_any_depth() -> None:
    """pyarrow's pass over NaN, which Spark and DuckDB have above all numbers."""
    rows = pa.RecordBatch.from_pylist(
        [{"e": 1.0, "f": 1.0, "s": {"e": 1.0, "n": 1}, "l": [1.0], "m": [("a", 1.0)], "n": 1}],
        pa.schema([
            ("e", pa.float64()), ("f", pa.float32()), ("s", pa.struct([("e", pa.float64()), ("n", pa.int64())])),
            ("l", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.float64())), ("n", pa.int64()),
        ]),
    )  # fmt: skip
    file = io.BytesIO()
    with open_parquet(pa.PythonFile(file, "w"), rows, "none") as parquet:
        parquet.write_batch(rows)
    group = pq.read_metadata(io.BytesIO(file.getvalue())).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    bounded = {each.path_in_schema for each in columns if each.statistics and each.statistics.has_min_max}
    assert bounded == {"s.n", "m.key_value.key", "n"}


def test_a_footer_has_sparks_version(tmp_path: Path) -> None:
    writer = TableWriter(TableSpec(tmp_path.as_uri()), 0, UploadThreads())
    writer.add(ORDERS, decoded([Record()]))
    (file,) = writer.finish()
    (version,) = (pq.read_metadata(tmp_path / file.path).metadata or {}).items()
    assert version == (b"org.apache.spark.version", re.match(r"\d+\.\d+\.\d+", pyspark.__version__)[0].encode())  # type: ignore[index]
