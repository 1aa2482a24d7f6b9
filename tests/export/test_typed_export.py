"""`tiered-stream export` of typed rows, in processes without Spark and other extras."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.cli.running import run
from tests.delta.archive import LONG, ODD, everything, options
from tests.rigs.stack.rows import Record
from tests.test_without_extras import COMMAND, EXTRAS, given
from tests.tier.topics import topic_options, write_topic
from tests.without_packages import run_without
from tiered_stream.export.file_formats import FileFormat
from tiered_stream.export.row_texts import csv_columns, json_lines
from tiered_stream.export.run_export import ExportArguments, export

TEXTS = {"ingest.value.format": "string", "ingest.kafkaColumns": "offset as kafka_offset, timestamp"}


def test_values_become_columns_without_the_packages_of_extras(tmp_path: Path) -> None:
    schema = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.onDecodeError": "null"}
    words = [*given({**options(LONG), **schema}), "--into", str(tmp_path / "typed.parquet")]
    done = run_without(EXTRAS, COMMAND, "export", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pq.read_table(tmp_path / "typed.parquet")
    assert rows.schema.field("id").type == pa.int64()
    assert rows.num_rows == everything(LONG).num_rows


def test_kafkas_columns_are_renamed_and_conditions_are_on_the_rows(tmp_path: Path) -> None:
    ended = run(
        "export", {**options(LONG), **TEXTS}, "--into", str(tmp_path / "rows.parquet"), "--where", "kafka_offset<20",
        "--where", "kafka_offset>=10",
    )  # fmt: skip
    assert ended.exit_code == 0, ended.output
    rows = pq.read_table(tmp_path / "rows.parquet")
    assert rows.schema.names == ["value", "kafka_offset", "timestamp"]
    assert rows["kafka_offset"].to_pylist() == list(range(10, 20))
    assert rows.schema.field("value").type == pa.string()


@pytest.mark.parametrize(("on_error", "code"), [("fail", 1), ("null", 0), ("deadLetter", 3)])
def test_records_that_do_not_decode_are_reported(tmp_path: Path, on_error: str, code: int) -> None:
    bucket, file = tmp_path / "bucket", tmp_path / "rows.jsonl"
    write_topic(bucket, "undecodable", [[Record(None, b"x" * 100)] * 1200], batch_records=600)
    given = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.onDecodeError": on_error}
    settings = topic_options(bucket, "undecodable", given)
    if on_error == "deadLetter":
        settings["ingest.deadLetterTable"] = "elsewhere"
    ended = run("export", settings, "--into", str(file), "--json")
    assert ended.exit_code == code, ended.output
    assert file.exists() is (code != 1)
    if code == 3:
        assert json.loads(ended.stdout)["undecodable"] == 1200
    if code == 0:
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        assert len(lines) == 1200
        assert {line["id"] for line in lines} == {None}


def test_each_run_of_an_export_counts_the_records_that_were_left_out(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    write_topic(bucket, "undecodable", [[Record(None, b"x")] * 3, [Record(None, b"x")] * 4])
    given = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.onDecodeError": "deadLetter"}
    settings = topic_options(bucket, "undecodable", {**given, "ingest.deadLetterTable": "elsewhere"})
    arguments = ExportArguments(
        settings=settings, into=tmp_path / "rows", is_folder=True, file_format=FileFormat.of("jsonl"), threads=1
    )

    def stop_after_a_file(line: str) -> None:
        if line.endswith(".jsonl: 0 records"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(arguments, stop_after_a_file)
    runs = [export(arguments, lambda line: None) for _ in range(2)]
    assert [(run.undecodable, run.finished_before) for run in runs] == [(7, False), (7, True)]
    ended = run("export", settings, "--into", f"{tmp_path}/rows", "--format", "jsonl")
    assert ended.exit_code == 3, ended.output


def test_topics_with_different_columns_need_a_folder(tmp_path: Path) -> None:
    first, second = ODD.split(",")
    settings = {**options(ODD), f"ingest.topic.{first}.value.format": "string", "ingest.onDecodeError": "null"}
    ended = run("export", settings, "--into", str(tmp_path / "rows.parquet"))
    assert ended.exit_code == 2
    assert "different columns" in ended.output
    assert run("export", settings, "--into", str(tmp_path / "rows")).exit_code == 0
    kinds = {
        topic: {pq.read_schema(file).field("value").type for file in (tmp_path / "rows").glob(f"{topic}-*.parquet")}
        for topic in (first, second)
    }
    assert kinds == {first: {pa.string()}, second: {pa.binary()}}


def test_texts_of_rows_are_valid_json_for_every_kind_of_value() -> None:
    nested = pa.struct([("list", pa.list_(pa.int32())), ("map", pa.map_(pa.string(), pa.binary()))])
    rows = pa.record_batch(
        {
            'a"b': pa.array(["plain", 'quo"te', "line\nend\\", None, "ü"]),
            "bytes": pa.array([b"text", b"\xff", b"", None, b'"'], pa.binary()),
            "flag": pa.array([True, False, None, True, True]),
            "fraction": pa.array([1.5, float("nan"), None, -0.0, 1e300]),
            "decimal": pa.array([None, "1.20", "0.00", "-3.10", "9.99"]).cast(pa.decimal128(5, 2)),
            "at": pa.array([0, 1, None, 1_700_000_000_123_456, -1], pa.timestamp("us", tz="UTC")),
            "day": pa.array([0, None, 1, 2, 3], pa.int32()).cast(pa.date32()),
            "nested": pa.array(
                [{"list": [1, None], "map": [("k", b"\xff")]}, None, {"list": None, "map": []}, None, None], nested
            ),
        }
    )
    lines = b"".join(line.encode() for line in json_lines(rows).column(0).to_pylist()).splitlines()
    first, second, third, fourth, _ = map(json.loads, lines)
    assert first['a"b'] == "plain" and second['a"b'] == 'quo"te' and third['a"b'] == "line\nend\\"
    assert first["nested"] == {"list": [1, None], "map": {"k": {"base64": "/w=="}}}
    assert (second["bytes"], third["bytes"], fourth["bytes"]) == ({"base64": "/w=="}, "", None)
    assert (second["fraction"], second["decimal"], first["at"]) == (None, "1.20", "1970-01-01T00:00:00.000000Z")
    assert (fourth["at"], third["day"]) == ("2023-11-14T22:13:20.123456Z", "1970-01-02")
    texts = csv_columns(rows)
    assert texts["bytes"].to_pylist() == ["text", "base64:/w==", "", None, '"']
    assert json.loads(texts["nested"][0].as_py()) == first["nested"]
    assert pc.all(pc.equal(texts["flag"], rows["flag"])).as_py()


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (9_000_000_000_000_000_000, pa.timestamp("us", tz="UTC"), "287168-08-24T16:00:00.000000Z"),
        (-70_000_000_000_000_000, pa.timestamp("us"), "-0249-10-15T19:33:20.000000"),
        (2**31 - 1, pa.date32(), "5881580-07-11"),
        (5_000_000, pa.duration("us"), "5000000"),
    ],
)
def test_times_of_any_year_are_texts_at_any_depth(number: int, kind: pa.DataType, text: str) -> None:
    times = pa.array([number, None], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    struct = pa.StructArray.from_arrays([times], names=["at"], mask=pa.array([False, True]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), times)
    maps = pa.MapArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pa.array(["a", "b"]), struct)
    rows = pa.record_batch({"at": times, "struct": struct, "list": lists, "map": maps})
    first, second = (json.loads(line.as_py()) for line in json_lines(rows).column(0))
    assert first == {"at": text, "struct": {"at": text}, "list": [text, None], "map": {"a": {"at": text}, "b": None}}
    assert second == {"at": None, "struct": None, "list": [], "map": {}}
    assert csv_columns(rows)["list"].to_pylist() == [f'["{text}",null]', "[]"]
