"""Each way in which a query may leave tiered offsets to the brokers, and `remote.fallback=fail` for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests import tasks
from tests.reading import options, tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.errors import BrokerError, ConfigurationError, StorageError, TieredStreamError
from tiered_stream.observe.read_metrics import FIND_REASON, ReadMetrics, describe
from tiered_stream.options.parsing import parse_options
from tiered_stream.read.split_reader import SplitReader

Options = dict[str, str]
TOPIC = "ways-to-brokers"


def read(given: Mapping[str, str]) -> ReadMetrics:
    parsed = parse_options(given, streaming=False)
    return tasks.read(tasks.plan(parsed), parsed)[1]


def without_storage(given: Options, _: Path) -> Options:
    return {name: value for name, value in given.items() if not name.startswith("remote.")}


def with_folder(name: str) -> Callable[[Options, Path], Options]:
    def changed(given: Options, folder: Path) -> Options:
        (folder / "empty").mkdir(exist_ok=True)
        uri = (folder / name).as_uri()
        return {**without_storage(given, folder), "remote.storage.uri": uri, "remote.storage.layout": "local"}

    return changed


def with_wrong_keys(given: Options, _: Path) -> Options:
    return {**given, "remote.storage.aws.secret.access.key": "wrong"}


def with_dead_endpoint(given: Options, _: Path) -> Options:
    return {**given, "remote.storage.s3.endpoint.url": "http://127.0.0.1:1"}


@pytest.fixture(scope="module")
def tiered(stack: TieredStack) -> Options:
    tier_segments(stack, TOPIC, [40, 30])
    return options(stack, TOPIC)


def test_nothing_is_said_of_a_query_that_reads_the_storage(tiered: Options) -> None:
    metrics = read(tiered)
    assert (metrics.records, metrics.fallbacks) == (71, {}) and metrics.remote_fetch_bytes


def test_a_query_without_a_storage_counts_and_names_what_the_brokers_send(tiered: Options, tmp_path: Path) -> None:
    metrics = read(without_storage(tiered, tmp_path))
    assert (metrics.records, metrics.remote_fetch_bytes, list(metrics.fallbacks)) == (71, 0, ["no_storage"])
    line = describe(metrics)
    assert "to brokers (no storage: " in line and line.endswith(f"from storage: {FIND_REASON}")


def test_a_storage_that_does_not_respond_is_counted_and_named(tiered: Options, tmp_path: Path) -> None:
    metrics = read(with_dead_endpoint(tiered, tmp_path))
    assert (metrics.records, metrics.remote_fetch_bytes) == (71, 0) and metrics.fallbacks
    assert describe(metrics).endswith(f"from storage: {FIND_REASON}")


def test_a_folder_without_the_topic_fails_any_query_at_its_start(tiered: Options, tmp_path: Path) -> None:
    for fallback in ("broker", "fail"):
        with pytest.raises(ConfigurationError, match="empty.* does not exist; "):
            read({**with_folder("empty")(tiered, tmp_path), "remote.fallback": fallback})


def refuse_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(client: object) -> None:
        raise BrokerError("not authorized")

    monkeypatch.setattr("tiered_stream.locate.log_source.check_readable", refused)


def test_a_metadata_topic_that_cannot_be_read_is_counted_and_refused(
    tiered: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_metadata(monkeypatch)
    assert list(read(tiered).fallbacks) == ["no_metadata"]
    with pytest.raises(ConfigurationError, match="__remote_log_metadata .*not authorized"):
        read({**tiered, "remote.fallback": "fail"})


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (without_storage, ConfigurationError, r"remote\.fallback=fail: .*no remote\.storage\.uri"),
        (with_folder("missing"), StorageError, "does not exist"),
        (with_wrong_keys, StorageError, "s3://"),
        (with_dead_endpoint, StorageError, "127.0.0.1"),
    ],
)
def test_a_query_that_may_not_fall_back_fails_before_it_reads(
    tiered: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Options, Path], Options],
    error: type[TieredStreamError],
    text: str,
) -> None:
    def unexpected(self: SplitReader) -> None:
        raise AssertionError("a split was read")

    monkeypatch.setattr(SplitReader, "batches", unexpected)
    with pytest.raises(error, match=text):
        read({**change(tiered, tmp_path), "remote.fallback": "fail"})


@pytest.mark.parametrize("given", [{"remote.log.locator": "none"}, {"remote.prefer": "local"}])
def test_brokers_that_the_options_ask_for_are_no_fallback(tiered: Options, given: Options) -> None:
    metrics = read({**tiered, **given, "remote.fallback": "fail"})
    assert (metrics.records, metrics.fallbacks) == (71, {})
