"""When a position is committed, and what librdkafka cannot be given; without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delta.made_batches import ORDERS, decoded, plain
from tests.rigs.stack.rows import Record
from tiered_stream.errors import UnsupportedDataError
from tiered_stream.replays import produce
from tiered_stream.replays.produce import PositionedWriter, TargetProducer, check_producible
from tiered_stream.replays.target_positions import Position


@dataclass
class Recorder(TargetProducer):
    """Notes what it is told; time passes with each batch of records."""

    said: list[object] = field(default_factory=list)
    now: float = 0.0
    seconds_a_batch: float = 0.0

    def open(self) -> None:
        raise AssertionError("not for a writer")

    def begin(self) -> None:
        self.said.append("begin")

    def produce(self, rows: pa.RecordBatch) -> None:
        self.said.append(rows.num_rows)
        self.now += self.seconds_a_batch

    def commit(self, position: Position) -> None:
        self.said.append(position.offset)

    def abort(self) -> None:
        self.said.append("abort")


def writer(recorder: Recorder, **given: object) -> PositionedWriter:
    return PositionedWriter(recorder, Position(0, 0), 10, clock=lambda: recorder.now, **given)  # type: ignore[arg-type]


def test_much_is_committed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = plain(10)
    monkeypatch.setattr(produce, "COMMIT_BYTES", 2 * batch.nbytes)
    recorder = Recorder()
    out = writer(recorder)
    for number in range(5):
        out.produce(plain(10, 100 * number))
    out.commit()
    assert recorder.said == ["begin", 10, 10, 110, "begin", 10, 10, 310, "begin", 10, 410]


def test_what_takes_long_is_committed_also_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_SLICE_BYTES", plain(100).nbytes // 4 + 1)
    recorder = Recorder(seconds_a_batch=5)
    out = writer(recorder)
    out.produce(plain(100))
    assert recorder.said == ["begin", 25, 25, 50, "begin", 25, 25, 100]


def test_a_position_moves_without_records_and_is_not_committed_twice() -> None:
    recorder = Recorder()
    out = writer(recorder)
    out.commit()
    out.advance(70)
    out.commit()
    out.commit()
    out.close()
    assert recorder.said == ["begin", 70]


def test_what_is_open_when_something_fails_is_aborted() -> None:
    recorder = Recorder()
    out = writer(recorder)
    out.produce(plain(1))
    out.close()
    assert recorder.said == ["begin", 1, "abort"]


def test_bytes_are_paced_before_they_are_produced() -> None:
    recorder = Recorder()
    out = writer(recorder, pace=lambda size: recorder.said.append(f"{size} bytes"))
    batch = plain(3)
    out.produce(batch)
    assert recorder.said == [f"{batch.nbytes} bytes", "begin", 3]


def test_a_large_record_that_waits_for_the_byte_limit_leaves_no_transaction_open_too_long() -> None:
    recorder = Recorder()

    def pace(size: int) -> None:
        recorder.now += size / produce._SLICE_BYTES

    out = writer(recorder, pace=pace)
    out.produce(plain(1))
    out.produce(decoded([Record(b"k", bytes(20 * produce._SLICE_BYTES))], 1))
    assert recorder.said == ["begin", 1, 1, "begin", 1]


def test_who_waits_for_records_leaves_nothing_open() -> None:
    recorder = Recorder()
    out = writer(recorder)

    def slow() -> Iterator[pa.RecordBatch]:
        yield plain(3)
        while 3 not in recorder.said[2:]:  # until offset 3 is committed
            pass
        yield decoded([Record(b"k", b"v")], 3)

    for batch in produce._batches_or_idle(slow(), 0.01, out.commit):
        out.produce(batch)
    out.commit()
    assert recorder.said == ["begin", 3, 3, "begin", 1, 4]


def test_what_reading_raises_is_raised() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield plain(1)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(produce._batches_or_idle(broken(), 10, lambda: None))


header_keys = st.text(st.sampled_from("ab\0é"), max_size=3)
some_records = st.builds(
    Record,
    headers=st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=2)), max_size=3).map(tuple),
    timestamp_ms=st.sampled_from([-1, 0, 1, 10**12]),
)


@given(st.lists(some_records, min_size=1, max_size=12), st.integers(0, 5))
def test_records_that_would_be_changed_are_refused(records: list[Record], skipped: int) -> None:
    batch = decoded(records, 100).slice(min(skipped, len(records) - 1))
    shown = records[min(skipped, len(records) - 1) :]
    first = 100 + len(records) - len(shown)
    zero = [first + at for at, record in enumerate(shown) if record.timestamp_ms == 0]
    odd = [first + at for at, record in enumerate(shown) if any("\0" in key for key, _ in record.headers)]
    if not zero and not odd:
        check_producible(ORDERS, batch)
        return
    said = f"offset {zero[0]} of orders-3 .*timestamp is 0" if zero else f"offset {odd[0]} of orders-3 .*NUL"
    with pytest.raises(UnsupportedDataError, match=said):
        check_producible(ORDERS, batch)
