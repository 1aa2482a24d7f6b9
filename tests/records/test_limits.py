"""What is small and says that it is large: refused by a limit with a name, or read in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.forking_python import forking_python
from tests.records import hostile
from tests.rigs.stack.batches import CODECS, record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.errors import DataLimitError
from tiered_stream.records.decoder import MAX_ROWS, TARGET_BYTES, RecordBatchDecoder
from tiered_stream.records.kernels import UNIT_ROWS

MOST_MIB = 700

IMPORTED = """
import re, sys
from dataclasses import replace
from pathlib import Path
from tiered_stream.errors import TieredStreamError
from tiered_stream.data_limits import DEFAULT_LIMITS
from tiered_stream.records.decoder import MAX_ROWS, RecordBatchDecoder
"""
READ = """
log = Path(sys.argv[3]).read_bytes()
limits = replace(DEFAULT_LIMITS, record_headers=replace(DEFAULT_LIMITS.record_headers, maximum=int(sys.argv[2])))
rows = 0
try:
    for batch in RecordBatchDecoder("t", 0, 0, 1 << 60, include_headers=sys.argv[1] == "True", limits=limits).feed(log):
        assert batch.num_rows <= MAX_ROWS
        rows += batch.num_rows
except TieredStreamError as error:
    rows = type(error).__name__
# Not by getrusage: that counts what the parent had when it was forked.
print(rows, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


def read_by_a_child(log: Path, include_headers: bool, most_headers: int = 100_000) -> tuple[str, int]:
    """How many rows, or the error's name, and the most memory that the process had, in MiB."""
    done = forking_python(IMPORTED).run(READ, str(include_headers), str(most_headers), str(log))
    assert done.returncode == 0, done.stderr
    rows, mebibytes = done.stdout.split()
    return rows, int(mebibytes)


@pytest.mark.parametrize(
    ("log", "include_headers", "outcome"),
    [
        (lambda: hostile.many_headers(33_000_000), True, "DataLimitError"),
        (lambda: hostile.many_headers(33_000_000, b"\x02\xff\x01"), False, "1"),
        pytest.param(lambda: hostile.many_records(38_000_000), False, "38000000", marks=pytest.mark.slow),
        (lambda: hostile.many_records(38_000_000), True, "38000000"),
        (lambda: hostile.large_record(300 << 20), False, "DataLimitError"),
        (lambda: hostile.many_messages(7_500_000), True, "7500000"),
        (lambda: hostile.message_set(1, hostile.message(1, bytes(300 << 20)), 0), False, "DataLimitError"),
    ],
    ids=["headers", "no headers", "records", "records with headers", "large record", "messages", "large message"],
)
def test_what_a_small_batch_stands_for_stays_within_memory(
    tmp_path: Path, log: Callable[[], bytes], include_headers: bool, outcome: str
) -> None:
    file = tmp_path / "log"
    assert file.write_bytes(log()) < 32 << 20
    rows, mebibytes = read_by_a_child(file, include_headers)
    assert rows == outcome
    assert mebibytes < MOST_MIB


def limits(**most: int) -> Limits:
    return replace(
        DEFAULT_LIMITS, **{name: replace(getattr(DEFAULT_LIMITS, name), maximum=each) for name, each in most.items()}
    )


def read(log: bytes, most: Limits) -> int:
    decoder = RecordBatchDecoder("topic", 3, 0, 1 << 60, include_headers=True, limits=most)
    return sum(batch.num_rows for batch in decoder.feed(log))


def at_7(log: bytes) -> bytes:
    return (7).to_bytes(8, "big") + log[8:]


HEADERS = tuple(("h", b"x") for _ in range(5))
TEN = [Record(b"k", bytes(100), HEADERS)] * 10


@pytest.mark.parametrize(
    ("log", "field", "value", "complaint"),
    [
        (record_batch(TEN, base_offset=7), "batch", 100, "the batch's length: 1349"),
        *((record_batch(TEN, codec, base_offset=7), "batch_records", 9, "the batch's records: 10") for codec in CODECS),
        (record_batch(TEN, base_offset=7), "record_headers", 4, "the headers of a record: 5"),
        *(
            (record_batch(TEN, codec, base_offset=7), "decompressed_batch", 999, f"{codec} data decompresses to more")
            for codec in ("gzip", "snappy", "lz4", "zstd")
        ),
        (at_7(hostile.many_messages(8)), "decompressed_batch", 271, "gzip data decompresses to more"),
        (at_7(hostile.many_messages(8)), "batch_records", 7, "the messages of a set: 8"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_each_limit_names_where_and_what_and_its_option_and_raised_by_one_reads_all(
    log: bytes, field: str, value: int, complaint: str
) -> None:
    option = getattr(DEFAULT_LIMITS, field).option
    with pytest.raises(DataLimitError, match=f"topic-3 at offset 7: .*{re.escape(complaint)}.*{value}.*{option}"):
        read(log, limits(**{field: value}))
    enough = {"batch": 1349, "decompressed_batch": 1300}
    assert read(log, limits(**{field: enough.get(field, value + 1)})) in (8, 10)


def test_one_length_of_a_damaged_batch_is_no_reason_to_wait_for_more_bytes() -> None:
    log = record_batch(TEN)
    with pytest.raises(DataLimitError, match="the batch's length: 2147483647"):
        read(log[:8] + b"\x7f\xff\xff\xff" + log[12:], DEFAULT_LIMITS)


def test_a_unit_ends_between_any_two_records_and_none_is_lost() -> None:
    count = UNIT_ROWS + MAX_ROWS + 1
    records = b"".join(
        hostile.varint(len(body)) + body
        for body in (b"\0\0" + hostile.varint(offset) + b"\x01\x01\x02\x02h\x01" for offset in range(count))
    )
    log = hostile.batch(records, count)
    decoder = RecordBatchDecoder("topic", 3, 0, 1 << 60, include_headers=True)
    batches = list(decoder.feed(log))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(count))
    assert batches[-1]["headers"].to_pylist() == [[{"key": "h", "value": None}]] * len(batches[-1])


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_no_more_is_decoded_together_than_the_target_and_the_batch_that_reaches_it(codec: str) -> None:
    size, count = 1 << 16, 2 * TARGET_BYTES // (1 << 16)
    log = b"".join(record_batch([Record(None, bytes(size))], codec, base_offset=offset) for offset in range(count))
    units = list(RecordBatchDecoder("topic", 3, 0, count, max_rows=count).feed(log))
    assert [offset for unit in units for offset in unit["offset"].to_pylist()] == list(range(count))
    assert max(unit["value"].buffers()[2].size for unit in units) <= TARGET_BYTES + size
