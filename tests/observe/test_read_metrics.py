from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, fields, replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rigs.stack.processes import wait_until
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, ReportAddress, Split, TopicPartition
from tiered_stream.observe.driver_log import BatchLog
from tiered_stream.observe.metrics_receiver import MetricsReceiver, _listening
from tiered_stream.observe.read_metrics import ReadMetrics, describe, send, within
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.remote_options import REPORT_ADDRESSES
from tiered_stream.spark.split_partition import SplitPartition

COUNTED = ReadMetrics(
    records=10,
    record_bytes=2000,
    remote_fetch_requests=3,
    remote_fetch_bytes=900,
    remote_fetch_latency_total=0.5,
    remote_fetch_latency_max=0.25,
    remote_fetch_errors=1,
    remote_fetch_fallbacks=1,
    broker_fetch_requests=2,
    broker_fetch_bytes=400,
)

WHOLE = {**asdict(COUNTED), "micro_batch": None, "part": ""}


@pytest.fixture
def receiver() -> Iterator[MetricsReceiver]:
    with MetricsReceiver() as listening:
        yield listening


def send_bytes(content: bytes, to: MetricsReceiver | BatchLog) -> None:
    """Send a datagram of the receiver's token and the content."""
    (report_to,) = to.report_to
    send_without_token(report_to.token + content, to)


def send_without_token(datagram: bytes, to: MetricsReceiver | BatchLog) -> None:
    host, _, port = to.address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(datagram, (host, int(port)))


def wait_for_records(receiver: MetricsReceiver, records: int) -> None:
    wait_until(lambda: receiver.total().records >= records, f"{records} records", pause=0.01)


def test_fetches_are_counted_with_bytes_and_seconds() -> None:
    metrics = ReadMetrics()
    for size, seconds in [(100, 0.25), (50, 0.5), (1, 0.25)]:
        metrics.on_remote_fetch(size, seconds)
    metrics.on_broker_fetch(7)
    assert metrics == ReadMetrics(
        remote_fetch_requests=3,
        remote_fetch_bytes=151,
        remote_fetch_latency_total=1.0,
        remote_fetch_latency_max=0.5,
        **dict.fromkeys(map(within, (250, 500)), 2) | dict.fromkeys(map(within, (500, 1000, 2500, 10000)), 3),
        broker_fetch_requests=1,
        broker_fetch_bytes=7,
    )


def test_a_quantile_is_the_bound_below_which_so_many_requests_came() -> None:
    metrics = ReadMetrics()
    assert metrics.latency_quantile(0.5) is None
    for seconds in [0.02] * 98 + [0.3, 40.0]:
        metrics.on_remote_fetch(1, seconds)
    assert [metrics.latency_quantile(share) for share in (0.5, 0.99, 1)] == [0.025, 0.5, 40.0]
    alone = ReadMetrics()
    alone.on_remote_fetch(1, 0.003)
    assert alone.latency_quantile(0.99) == 0.003, "never more than the longest"


counters = st.builds(
    ReadMetrics,
    **{
        each.name: st.integers(0, 2**50)
        for each in fields(ReadMetrics)
        if "latency" not in each.name and not each.name.endswith("_max")
    },
)


@given(counters, counters)
def test_what_came_on_top_is_what_was_added(before: ReadMetrics, more: ReadMetrics) -> None:
    total = ReadMetrics()
    total.add(before)
    total.add(more)
    assert total.since(before) == more


def test_the_largest_latency_of_a_sum_is_the_largest_of_all() -> None:
    total = ReadMetrics(remote_fetch_latency_max=0.5)
    total.add(ReadMetrics(remote_fetch_latency_max=0.25))
    assert total.remote_fetch_latency_max == 0.5
    assert total.since(ReadMetrics(remote_fetch_latency_max=0.5)).remote_fetch_latency_max == 0.5


def test_latencies_errors_and_fallbacks_are_told_when_there_were_any() -> None:
    assert describe(ReadMetrics(remote_fetch_bytes=3 << 20)) == "3.0 MiB from storage, 0.0 MiB from brokers"
    assert describe(ReadMetrics(lost_offsets=1200)).endswith(", 1,200 offsets lost (the tasks' logs name them)")
    assert describe(replace(COUNTED, fallbacks_read_timeout=1)) == (
        "0.9 KiB from storage, 0.4 KiB from brokers, 3 requests to storage of 167 ms (at most 250), 1 storage errors, "
        "1 split fell back to brokers (read timeout: 1)"
    )


def test_what_tasks_send_is_added_up(receiver: MetricsReceiver) -> None:
    send(COUNTED, receiver.report_to)
    send(COUNTED, receiver.report_to)
    wait_for_records(receiver, 20)
    doubled = ReadMetrics()
    doubled.add(COUNTED)
    doubled.add(COUNTED)
    assert receiver.total() == doubled


def test_what_tasks_of_a_micro_batch_send_is_told_once(receiver: MetricsReceiver) -> None:
    for batch in (7, 8, 7):
        send_bytes(orjson.dumps({**WHOLE, "micro_batch": ["query", batch]}), receiver)
    send(COUNTED, receiver.report_to)
    wait_for_records(receiver, 4 * COUNTED.records)
    assert receiver.take_micro_batch(("query", 7)).records == 2 * COUNTED.records
    assert receiver.take_micro_batch(("query", 7)) == ReadMetrics()
    assert receiver.take_micro_batch(("query", 8)) == COUNTED


def test_an_input_partition_that_is_read_twice_has_its_rows_once_and_its_cost_twice(receiver: MetricsReceiver) -> None:
    for part in ("one", "one", "another"):
        send_bytes(orjson.dumps({**WHOLE, "micro_batch": ["query", 7], "part": part}), receiver)
    counted = receiver.take_micro_batch(("query", 7))
    assert counted == receiver.total()
    assert (counted.records, counted.record_bytes, counted.remote_fetch_fallbacks) == (20, 4000, 2)
    assert (counted.remote_fetch_requests, counted.remote_fetch_bytes, counted.broker_fetch_bytes) == (9, 2700, 1200)


def test_sums_have_what_has_arrived_though_the_receivers_thread_has_not_run_yet() -> None:
    with MetricsReceiver() as receiver, receiver._lock:  # so long its thread cannot count
        for batch in range(3):
            send_bytes(orjson.dumps({**WHOLE, "micro_batch": ["query", batch]}), receiver)
        assert receiver.take_micro_batch(("query", 0)) == COUNTED
        send(COUNTED, receiver.report_to)
        assert receiver.total().records == 4 * COUNTED.records


def test_what_has_arrived_when_a_receiver_is_closed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetricsReceiver() as receiver:
        ended = receiver._thread.join

        def end() -> None:
            ended()
            send(COUNTED, receiver.report_to)

        monkeypatch.setattr(receiver._thread, "join", end)
    assert receiver.total() == COUNTED


def test_a_micro_batch_that_another_run_repeats_has_its_own_cost(receiver: MetricsReceiver) -> None:
    for query in ("failed", "another"):
        send_bytes(orjson.dumps({**WHOLE, "micro_batch": [query, 7]}), receiver)
    receiver.forget("failed")
    assert receiver.take_micro_batch(("failed", 7)) == ReadMetrics()
    assert receiver.take_micro_batch(("another", 7)) == COUNTED


def test_as_many_reports_wait_as_a_whole_cluster_may_send_at_once() -> None:
    with MetricsReceiver() as receiver, receiver._lock:
        for _ in range(150):
            send(COUNTED, receiver.report_to)
        assert receiver.total().records == 150 * COUNTED.records


def test_all_reports_are_received_before_one_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's buffer holds some thousand, and counting is slower than a cluster's tasks."""
    with MetricsReceiver() as receiver, receiver._lock:
        take = receiver._take

        def take_from_an_empty_socket(datagram: bytes) -> None:
            with pytest.raises(BlockingIOError):
                receiver._sockets[-1].recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            take(datagram)
            if receiver._total.records < 100 * COUNTED.records:
                send(COUNTED, receiver.report_to)

        monkeypatch.setattr(receiver, "_take", take_from_an_empty_socket)
        for _ in range(50):
            send(COUNTED, receiver.report_to)
        assert receiver.total().records == 149 * COUNTED.records


def test_micro_batches_that_nobody_asks_for_do_not_heap_up(receiver: MetricsReceiver) -> None:
    for batch in range(3_000):
        receiver._take(receiver.report_to[0].token + orjson.dumps({**WHOLE, "micro_batch": ["query", batch]}))
    assert receiver.take_micro_batch(("query", 0)) == ReadMetrics()
    assert receiver.take_micro_batch(("query", 2_999)) == COUNTED


def test_a_total_is_a_copy(receiver: MetricsReceiver) -> None:
    receiver.total().add(COUNTED)
    assert receiver.total() == ReadMetrics()


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\xff\x00",
        b"null",
        b"17",
        b"[]",
        orjson.dumps([each.name for each in fields(ReadMetrics)]),
        b'{"records":1}',
        orjson.dumps(asdict(COUNTED)),
        orjson.dumps({**WHOLE, "more": 1}),
        orjson.dumps({**WHOLE, "records": -1}),
        orjson.dumps({**WHOLE, "records": True}),
        orjson.dumps({**WHOLE, "records": "1"}),
        orjson.dumps({**WHOLE, "records": None}),
        orjson.dumps({**WHOLE, "micro_batch": 7}),
        orjson.dumps({**WHOLE, "micro_batch": ["query"]}),
        orjson.dumps({**WHOLE, "micro_batch": ["query", "7"]}),
        orjson.dumps({**WHOLE, "part": 7}),
        orjson.dumps({**WHOLE, "part": "p" * 3_000}),
        orjson.dumps({**WHOLE, "part": "a\nforged line"}),
        orjson.dumps({**WHOLE, "micro_batch": ["a\nforged line", 7]}),
        orjson.dumps({**WHOLE, "micro_batch": ["q" * 3_000, 7]}),
        orjson.dumps({**WHOLE, "micro_batch": ["query", -1]}),
        orjson.dumps({**WHOLE, "micro_batch": ["query", 2**64 - 1]}),
        orjson.dumps({**WHOLE, "records": 1.5}),
        orjson.dumps({**WHOLE, "record_bytes": 2**64 - 1}),
        orjson.dumps({**WHOLE, "remote_fetch_requests": 10**18}),
        orjson.dumps({**WHOLE, "decode_seconds": 1e300}),
        orjson.dumps({**WHOLE, "remote_fetches_within_10_ms": 4}),
        b"[" * 4000,
    ],
)
def test_a_datagram_that_is_none_of_ours_is_ignored(receiver: MetricsReceiver, datagram: bytes) -> None:
    send_bytes(datagram, receiver)
    send(COUNTED, receiver.report_to)
    wait_for_records(receiver, COUNTED.records)
    assert receiver.total() == COUNTED


def test_a_report_without_the_token_of_the_run_is_not_counted(receiver: MetricsReceiver) -> None:
    report = orjson.dumps(WHOLE)
    for forged in (report, bytes(16) + report, receiver.report_to[0].token[:15], b""):
        send_without_token(forged, receiver)
        receiver._take(forged)  # as on a system whose kernel lets it pass
    with MetricsReceiver() as other:
        send_without_token(other.report_to[0].token + report, receiver)
    send(COUNTED, receiver.report_to)
    wait_for_records(receiver, COUNTED.records)
    assert receiver.total() == COUNTED


def test_forged_reports_leave_room_for_the_tasks_reports(receiver: MetricsReceiver) -> None:
    with receiver._lock:  # so long its thread cannot count
        for _ in range(5_000):
            send_without_token(bytes(4_000), receiver)
        send(COUNTED, receiver.report_to)
        assert receiver.total() == COUNTED


@pytest.mark.parametrize("token", [bytes(16), bytes(range(0xF0, 0x100))])
def test_the_kernel_drops_datagrams_in_which_any_bit_of_the_secret_differs(token: bytes) -> None:
    with closing(_listening(socket.AF_INET, ("127.0.0.1", 0), token)) as listening:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for bit in range(128):
                other = (int.from_bytes(token, "big") ^ 1 << bit).to_bytes(16, "big")
                sender.sendto(other, listening.getsockname())
            sender.sendto(token + b"ours", listening.getsockname())
        assert listening.recv(100) == token + b"ours"


def test_nothing_shows_the_token(receiver: MetricsReceiver) -> None:
    (address,) = receiver.report_to
    given = {"subscribe": "t", "kafka.bootstrap.servers": "k:9092", REPORT_ADDRESSES.name: address.to_option()}
    options = parse_options(given, streaming=True)
    assert options.report_addresses == receiver.report_to
    for shown in (
        repr(address),
        repr(options),
        repr(SplitPartition(Split(TopicPartition("t", 0), OffsetRange(0, 1)), receiver.report_to)),
    ):
        assert address.token.hex() not in shown and repr(address.token)[2:-1] not in shown
    with pytest.raises(ConfigurationError) as refused:
        parse_options(given | {REPORT_ADDRESSES.name: f"{address.to_option()}x"}, streaming=True)
    assert address.token.hex() not in str(refused.value)
    assert re.search(r"(?i)secret|password|token|access[.]?key", REPORT_ADDRESSES.name), "Spark redacts its value"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:9", "no port", "127.0.0.1:port", ":0", ""])
def test_counters_that_cannot_be_sent_are_nobodys_business(address: str) -> None:
    send(COUNTED, [ReportAddress(address, bytes(16))])


def test_a_closed_receiver_lets_go_of_its_port(receiver: MetricsReceiver) -> None:
    with MetricsReceiver() as other:
        host, _, port = other.address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind((host, int(port)))


NOT_OF_THIS_MACHINE = "192.0.2.1"  # RFC 5737: of none


@pytest.mark.parametrize(
    ("host", "bind", "address"),
    [
        (NOT_OF_THIS_MACHINE, None, NOT_OF_THIS_MACHINE),  # as behind NAT
        (NOT_OF_THIS_MACHINE, "127.0.0.1", NOT_OF_THIS_MACHINE),
        ("no.such.host.invalid", None, "no.such.host.invalid"),
        ("127.0.0.1", "no host at all", "127.0.0.1"),
        ("2001:db8::1", None, "[2001:db8::1]"),  # RFC 3849
    ],
)
def test_a_host_that_is_not_this_machines_own_costs_no_query(host: str, bind: str | None, address: str) -> None:
    with MetricsReceiver(host, bind) as receiver:
        told, _, port = receiver.address.rpartition(":")
        assert told == address
        send(COUNTED, [ReportAddress(f"127.0.0.1:{port}", receiver.report_to[0].token)])
        wait_for_records(receiver, COUNTED.records)


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_works_too(host: str) -> None:
    with MetricsReceiver(host) as receiver:
        assert receiver.address.startswith("[::1]:")
        send(COUNTED, receiver.report_to)
        wait_for_records(receiver, COUNTED.records)
