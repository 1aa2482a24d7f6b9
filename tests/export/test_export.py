"""`tiered-stream export` over golden archives, with no broker and no Spark."""

from __future__ import annotations

import base64
import csv
import fcntl
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archives import COMMITTED, PLAIN, archive_options, arrow_rows, consumed
from tests.broker.responses import DescribedTopic, metadata_response
from tests.cli.running import run
from tests.cli.test_cat_command import expected
from tests.rigs.stack.rows import Record, Row
from tests.tier.topics import topic_options, write_topic
from tiered_stream import scan
from tiered_stream.broker.cluster_metadata import read_topics
from tiered_stream.delta.settings.ingest_settings import JOB_SETTINGS, source_options
from tiered_stream.errors import BrokerError, ConfigurationError
from tiered_stream.export import file_formats
from tiered_stream.export.export_plan import plan_export
from tiered_stream.export.file_formats import FileFormat
from tiered_stream.export.run_export import ExportArguments, export
from tiered_stream.export.target_files import MANIFEST, ExportFolder, new_file
from tiered_stream.model import TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.settings_files import read_settings

ROOT = Path(__file__).parents[2]
SMALL_SPLITS = {"remote.split.bytes": "20k"}


def exported(into: Path | str, *arguments: str, given: Mapping[str, str] | None = None, code: int = 0) -> str:
    """Export with these arguments, and return the output of the command, which ends with this exit code."""
    ended = run("export", archive_options(PLAIN, given), "--into", str(into), *arguments)
    assert ended.exit_code == code, ended.output
    return ended.output


def rows_of(file: Path) -> list[Row]:
    return [row for batch in pq.read_table(file).to_batches() for row in arrow_rows(batch)]


def test_parquet_and_arrow_have_the_rows_of_a_scan_in_its_order(tmp_path: Path) -> None:
    table = scan(archive_options(PLAIN)).read_all()
    for name in ("all.parquet", "all.arrow"):
        exported(tmp_path / name, given=SMALL_SPLITS)
    assert pq.read_table(tmp_path / "all.parquet").equals(table)
    with pa.ipc.open_file(tmp_path / "all.arrow") as file:
        assert file.read_all().equals(table)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.arrow", "all.parquet"]


@pytest.mark.parametrize("file", sorted(ROOT.glob("conf/ingest*.properties")), ids=lambda path: path.stem)
def test_the_settings_file_of_a_job_is_taken_as_it_is(tmp_path: Path, file: Path) -> None:
    of_the_job = read_settings(file).items() - source_options(read_settings(file)).items()
    assert of_the_job
    every = dict.fromkeys(JOB_SETTINGS, "x") | {"ingest.mode": "upsert", "ingest.keys": "key"}
    exported(tmp_path / "all.parquet", given=every | dict(of_the_job))
    assert len(pq.read_table(tmp_path / "all.parquet")) == len(expected())


def test_json_lines_have_each_record_as_json(tmp_path: Path) -> None:
    exported(tmp_path / "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_bytes().splitlines()]
    assert [
        (line["topic"], line["partition"], line["offset"], as_bytes(line["key"]), as_bytes(line["value"]))
        for line in lines
    ] == [(at.topic, at.partition, row.offset, row.key, row.value) for at, row in expected()]


def as_bytes(shown: Any) -> bytes | None:
    if isinstance(shown, dict):
        return base64.b64decode(shown["base64"])
    return None if shown is None else shown.encode()


def test_csv_is_compressed_if_the_name_says_so(tmp_path: Path) -> None:
    exported(tmp_path / "all.csv.gz", given={"columns": "topic,partition,offset"})
    with gzip.open(tmp_path / "all.csv.gz", "rt", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["topic", "partition", "offset"]
    assert rows == [[at.topic, str(at.partition), str(row.offset)] for at, row in expected()]


def test_a_folder_has_a_file_for_each_partition(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    exported(folder, given=SMALL_SPLITS)
    for partition, rows in consumed(PLAIN, COMMITTED).items():
        file = folder / f"{partition}.parquet"
        assert (rows_of(file) if file.exists() else []) == rows


@pytest.mark.parametrize("ending", ["parquet", "jsonl.zst"])
def test_files_of_topics_whose_names_are_as_long_as_kafka_allows_are_apart(tmp_path: Path, ending: str) -> None:
    topics = ["x" * 220, "x" * 221, *("x" * 248 + last for last in "yz")]
    files = [ExportFolder(tmp_path).file_of(TopicPartition(topic, 2**31 - 1), ending) for topic in topics]
    assert files[0].name == f"{topics[0]}-{2**31 - 1}.{ending}"
    for number, path in enumerate(files):
        with new_file(path) as file:
            file.write(bytes([number]))
    assert [path.read_bytes() for path in files] == [bytes([number]) for number in range(len(files))]


def test_a_file_whose_name_is_as_long_as_linux_allows_is_written(tmp_path: Path) -> None:
    for last in "yz":
        exported(tmp_path / f"{'x' * 246}{last}.parquet")
    assert {pq.read_metadata(path).num_rows for path in tmp_path.iterdir()} == {len(expected())}


@pytest.mark.parametrize("name", ["x" * 256, f"{'x' * 256}.parquet", f"{'x' * 256}/"])
def test_a_target_whose_name_is_too_long_is_refused(tmp_path: Path, name: str) -> None:
    output = exported(f"{tmp_path}/{name}", code=2)
    assert "--into" in output and "too long" in output


def stop_before(file: Path) -> None:
    """Leave the folder of a finished export as if the export had been stopped before this file was complete."""
    file.unlink()
    manifest = file.with_name(MANIFEST)
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "finished": False}))


def test_a_stopped_export_into_a_folder_goes_on_without_the_files_that_are_complete(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    exported(folder)
    files = sorted(folder.glob("*.parquet"))
    complete, lost = files[:-1], files[-1]
    before = lost.read_bytes()
    stop_before(lost)
    for file in complete:
        file.write_bytes(b"complete")

    exported(folder)
    assert lost.read_bytes() == before
    assert {file.read_bytes() for file in complete} == {b"complete"}
    assert "has finished before" in exported(folder)


def test_a_stopped_export_goes_on_with_the_times_that_it_began_with(tmp_path: Path) -> None:
    """The same texts may mean other times when the export goes on."""
    records = [Record(None, b"v", (), 1_000 + at) for at in range(10)]
    write_topic(tmp_path / "bucket", "timed", [records, records])
    arguments = ExportArguments(
        settings=topic_options(tmp_path / "bucket", "timed"), into=tmp_path / "rows", is_folder=True,
        file_format=FileFormat.of("jsonl"), times=TimeRange(1_002), time_texts=("-3h", None), exact=True,
    )  # fmt: skip
    export(arguments, lambda line: None)
    files = [tmp_path / "rows" / f"timed-{partition}.jsonl" for partition in range(2)]
    stop_before(files[1])
    export(replace(arguments, times=TimeRange(1_005)), lambda line: None)
    assert [len(file.read_bytes().splitlines()) for file in files] == [8, 8]


def test_a_folder_of_another_export_is_refused_unless_it_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    exported(folder)
    (folder / "mine.txt").write_text("mine")
    assert "where differs" in exported(folder, "--where", "offset>=10", code=2)
    exported(folder, "--where", "offset>=10", "--overwrite")
    assert (folder / "mine.txt").exists()
    offsets = [offset for file in folder.glob("*.parquet") for offset in pq.read_table(file)["offset"].to_pylist()]
    assert sorted(offsets) == sorted(row.offset for _, row in expected() if row.offset >= 10)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [(("--where", "ofset=3"), {}), ((), {"failOnDataLoss": "yes"}), ((), {"subscribe": "absent"})],
)
def test_an_overwrite_that_is_refused_keeps_the_earlier_export(
    tmp_path: Path, arguments: tuple[str, ...], given: dict[str, str]
) -> None:
    folder = tmp_path / "all"
    exported(folder)
    before = {file.name: file.stat().st_ino for file in folder.iterdir()}
    exported(folder, *arguments, "--overwrite", given=given, code=2)
    assert {file.name: file.stat().st_ino for file in folder.iterdir()} == before


def test_an_overwrite_that_was_killed_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    exported(folder)
    (folder / "mine.txt").write_text("mine")
    manifest = ExportFolder(folder).manifest()
    assert manifest is not None
    ExportFolder(folder).clear(manifest)
    exported(folder)
    assert sum(len(rows_of(file)) for file in folder.glob("*.parquet")) == len(expected())
    assert (folder / "mine.txt").exists()


def test_a_folder_in_which_an_export_was_killed_at_its_start_is_a_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / f".{MANIFEST}.part").write_text("half")
    (folder / ".orders-0.parquet.part").write_text("half")
    exported(folder)
    assert sum(len(rows_of(file)) for file in folder.glob("*.parquet")) == len(expected())


def test_a_file_that_exists_and_a_folder_of_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "all.parquet"
    file.write_text("mine")
    assert "--overwrite" in exported(file, code=2)
    assert file.read_text() == "mine"
    exported(tmp_path, "--overwrite", code=2)
    exported(file, "--overwrite")
    assert pq.read_metadata(file).num_rows == len(expected())


def test_a_time_range_has_the_records_of_that_time_and_no_other(tmp_path: Path) -> None:
    times = sorted(row.timestamp_ms for _, row in expected())
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    exported(tmp_path / "day.parquet", "--from", str(start), "--to", str(end), "--exact")
    assert rows_of(tmp_path / "day.parquet") == [row for _, row in expected() if start <= row.timestamp_ms < end]


def test_a_condition_of_sql_compares_bytes_with_texts_and_times_with_their_text(tmp_path: Path) -> None:
    key = next(row.key.decode() for _, row in expected() if row.key and row.key.isalnum())
    times = sorted(row.timestamp_ms for _, row in expected())
    later = datetime.fromtimestamp(times[len(times) // 2] / 1000, UTC).isoformat(timespec="milliseconds")
    exported(tmp_path / "some.parquet", "--where", f"key = '{key}' OR timestamp >= '{later}' AND offset % 2 = 0")
    assert rows_of(tmp_path / "some.parquet") == [
        row
        for _, row in expected()
        if row.key == key.encode() or (row.timestamp_ms >= times[len(times) // 2] and row.offset % 2 == 0)
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--where", "offset"), "it must be BOOLEAN"),
        (("--where", "ofset=3"), "Known are key, value, topic"),
        (("--where", "topic=three"), "in single quotes"),
        (("--from", "yesterday"), "yesterday"),
        (("--exact",), "--exact needs a time"),
        (("--format", "xml"), "'xml' is no format of an export"),
    ],
)
def test_wrong_input_is_refused_and_leaves_no_file(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in exported(tmp_path / "all.parquet", *arguments, code=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("into", "said"),
    [("s3://bucket/orders.parquet", "writes local files"), ("orders.xlsx", "'xlsx' is no format"),
     ("orders.csv.xz", "End the name of a folder with a slash")],
)  # fmt: skip
def test_other_targets_are_refused(into: str, said: str) -> None:
    assert said in exported(into, code=2)


@pytest.mark.parametrize("target", ["all.parquet", "folder/"])
def test_ctrl_c_and_failures_leave_no_half_file(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(rows: Iterable[pa.RecordBatch], group_bytes: int) -> Iterator[list[pa.RecordBatch]]:
        for batch in rows:
            yield [batch]
            raise KeyboardInterrupt

    monkeypatch.setattr(file_formats, "_row_groups", interrupted)
    exported(f"{tmp_path}/{target}", given=SMALL_SPLITS, code=130)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.name != MANIFEST] == []


def test_two_exports_do_not_write_one_file(tmp_path: Path) -> None:
    with new_file(tmp_path / "all.parquet") as file:
        file.write(b"first")
        assert "another export writes" in exported(tmp_path / "all.parquet", code=2)
    assert (tmp_path / "all.parquet").read_bytes() == b"first"


def test_two_exports_do_not_write_into_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    with ExportFolder(folder).locked(None):
        assert "another export writes" in exported(folder, code=2)
    exported(folder)
    assert not list(folder.glob(".*"))
    with pytest.raises(ConfigurationError, match="another export has written"), ExportFolder(folder).locked(None):
        pass  # it was planned before the other export began


def test_a_file_that_another_export_completes_before_the_lock_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "all.parquet", fcntl.flock
    first = new_file(path)
    first.__enter__().write(b"first")

    def complete_first(file: BinaryIO, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.__exit__(None, None, None)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", complete_first)
    with pytest.raises(ConfigurationError), new_file(path) as second:
        second.write(b"second")
    assert path.read_bytes() == b"first"
    with new_file(path) as third:
        third.write(b"third")
    assert path.read_bytes() == b"third"


OUTSIDE = ("../outside/x", "..", "/outside/x", "a/b", "a\nb", "\x1b[2J", "")


@pytest.mark.parametrize("topic", OUTSIDE)
def test_a_topics_name_from_a_broker_leads_to_no_file_outside_the_folder(topic: str) -> None:
    described = {topic: DescribedTopic(UUID(int=7), [1])}
    with pytest.raises(BrokerError, match="as a topic's name, which Kafka does not allow"):
        read_topics(metadata_response(described, {1: ("scripted", 1)}))


@pytest.mark.parametrize(
    "planted",
    [*({"endOffsets": {topic: {"0": 5}}} for topic in OUTSIDE), {"format": "/../x"}, {"arguments": {}},
     {"arguments": {"settings": []}}, {"times": {"from_ms": "soon", "to_ms": None}}],
)  # fmt: skip
def test_overwrite_deletes_nothing_that_a_planted_manifest_names(tmp_path: Path, planted: dict[str, Any]) -> None:
    target, other = tmp_path / "target", tmp_path / "outside" / "x-0.parquet"
    exported(target, "--format", "parquet")
    other.parent.mkdir()
    other.write_text("another's file")
    manifest = json.loads((target / MANIFEST).read_text()) | planted
    if "endOffsets" in planted:
        manifest["startOffsets"] = planted["endOffsets"]
    (target / MANIFEST).write_text(json.dumps(manifest))
    before = sorted(tmp_path.rglob("*"))
    assert "is no export's manifest" in " ".join(exported(f"{target}/", "--overwrite", code=1).split())
    assert sorted(tmp_path.rglob("*")) == before


def test_times_that_take_nothing_because_of_their_order_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = [9_000_000, *range(1_000, 1_100)]
    write_topic(tmp_path, "late", [[Record(None, b"v", (), at) for at in times]])
    settings = topic_options(tmp_path, "late", {})
    assert plan_export(settings, TimeRange(1_000, 2_000)).offsets == 0
    assert "the first record of late-0 at or after" in caplog.text and "--exact copies them" in caplog.text
    caplog.clear()
    assert plan_export(settings, TimeRange(1_000, 2_000), exact=True).offsets == 101
    assert "no record is copied" not in caplog.text
