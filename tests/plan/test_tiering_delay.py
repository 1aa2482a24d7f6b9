"""What the settings of KIP-1241 say of a topic, and what is said of them."""

from __future__ import annotations

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.plan.tiering_delay import COPY_LAG_CONFIGS, copy_lag, copy_lags

HOUR = 3_600_000
OF_4_4 = {
    "remote.copy.lag.ms": "0", "remote.copy.lag.bytes": "-1", "local.retention.ms": "-2", "local.retention.bytes": "-2",
    "retention.ms": "604800000", "retention.bytes": "-1",
}  # fmt: skip
"""What a broker says of a topic that sets none of it."""


@pytest.mark.parametrize(
    ("given", "ms", "size"),
    [
        ({"remote.copy.lag.ms": "3600000"}, HOUR, None),
        ({"remote.copy.lag.ms": "-1"}, 168 * HOUR, None),
        ({"remote.copy.lag.ms": "-1", "local.retention.ms": "3600000"}, HOUR, None),
        ({"remote.copy.lag.ms": "5", "remote.copy.lag.bytes": "9"}, 5, 9),
        ({"remote.copy.lag.ms": "5", "retention.bytes": "7"}, 5, 7),
        ({"remote.copy.lag.ms": "5", "local.retention.bytes": "6", "retention.bytes": "7"}, 5, 6),
        ({"remote.copy.lag.ms": "-1", "retention.ms": "-1"}, None, None),
        ({"remote.copy.lag.ms": "-1", "retention.ms": "-1", "remote.copy.lag.bytes": "9"}, None, 9),
    ],
)
def test_segments_wait_until_they_are_old_or_much_is_behind_them(
    given: dict[str, str], ms: int | None, size: int | None
) -> None:
    lag = copy_lag({**OF_4_4, **given})
    assert lag is not None
    assert (lag.ms, lag.bytes, lag.is_unbounded) == (ms, size, ms is None and size is None)


@pytest.mark.parametrize(
    "configs",
    [
        OF_4_4,
        {**OF_4_4, "remote.copy.lag.ms": "3600000", "remote.copy.lag.bytes": "0"},
        {"local.retention.ms": "5", "retention.ms": "9"},
        {},
        {**OF_4_4, "remote.copy.lag.ms": "soon"},
    ],
    ids=["as by default", "one of them is none", "brokers before 4.4", "nothing is told", "no number"],
)
def test_segments_are_copied_at_once_where_nothing_says_otherwise(configs: dict[str, str]) -> None:
    assert copy_lag(configs) is None


def test_it_is_said_with_its_settings() -> None:
    lag = copy_lag({**OF_4_4, "remote.copy.lag.ms": "21600000", "remote.copy.lag.bytes": "5000000000"})
    assert str(lag) == (
        "brokers keep closed segments from the tier until they are 6 h old or have 5,000,000,000 bytes of newer log "
        "behind them "
        "(remote.copy.lag.ms=21600000, remote.copy.lag.bytes=5000000000)"
    )
    assert " 90 s " in str(copy_lag({**OF_4_4, "remote.copy.lag.ms": "90000"}))
    assert "copy no segment" in str(copy_lag({**OF_4_4, "remote.copy.lag.ms": "-1", "retention.ms": "-1"}))


class Told(InMemoryOffsets):
    def topic_configs(self, topics, names):  # type: ignore[no-untyped-def]
        assert set(names) == set(COPY_LAG_CONFIGS)
        if self.failures:
            raise self.failures.pop(0)
        return {"slow": {**OF_4_4, "remote.copy.lag.ms": "1"}, "quick": OF_4_4}


def test_only_topics_whose_segments_wait_are_named_and_nobody_has_to_be_told() -> None:
    reader = Told()
    assert copy_lags(reader, ["slow", "quick"]).keys() == {"slow"}
    reader.failures.append(BrokerUnavailableError("away"))
    assert copy_lags(reader, ["slow"]) == copy_lags(InMemoryOffsets(), ["slow"]) == {}
