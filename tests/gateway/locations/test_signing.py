"""Signed locations, made once and given out again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from tests.storage.segment import segment
from tiered_stream.gateway.locations import signing
from tiered_stream.gateway.locations.signing import LocationSigner
from tiered_stream.model import RemoteLogSegment
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher

MADE = Counter("made", "Signed.", registry=None)


class Numbered(LocalLayoutFetcher):
    """Each of its locations is another."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FileStore(folder))
        self._numbers = count()

    def signed_location(self, segment: RemoteLogSegment, seconds: int) -> str:
        return f"https://storage/{next(self._numbers)}"


def ticking(step: float) -> Iterator[float]:
    return (step * number for number in count())


@pytest.fixture
def fetcher(tmp_path: Path) -> Numbered:
    return Numbered(tmp_path)


def test_a_location_is_signed_once_while_it_is_fresh(fetcher: Numbered) -> None:
    registry = CollectorRegistry()
    signer = LocationSigner(fetcher, 900, Counter("made", "Signed.", registry=registry))
    assert [signer.sign(segment(3)).url for _ in range(3)] == ["https://storage/0"] * 3
    assert registry.get_sample_value("made_total") == 1


@pytest.mark.parametrize("step", [10.0, 30.0, 100.0, 1000.0])
def test_a_location_that_expires_at_any_moment_is_signed_anew(
    fetcher: Numbered, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """However much time passes between two looks at the clock."""
    clock = ticking(step)
    monkeypatch.setattr(signing.time, "monotonic", lambda: next(clock))
    signer = LocationSigner(fetcher, 900, MADE)
    signed = [signer.sign(segment(3)).url for _ in range(100)]
    assert None not in signed and len(set(signed)) > 1


def test_without_a_lifetime_nothing_is_signed(fetcher: Numbered) -> None:
    assert LocationSigner(fetcher, 0, MADE).sign(segment(3)).url is None


class Role(Numbered):
    """Signs with credentials of an hour, which are renewed each half an hour."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder)
        self._clock = clock

    def signing_seconds_left(self) -> float:
        return 3600 - self._clock.now % 1800

    def ends(self) -> float:
        """When a URL that is signed now ends."""
        return self._clock.now + self.signing_seconds_left()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0


@pytest.mark.parametrize("lifetime", [900, 7200, 24 * 3600])
def test_a_location_is_given_out_with_three_quarters_of_the_time_that_its_credentials_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lifetime: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(signing.time, "monotonic", lambda: clock.now)
    role = Role(tmp_path, clock)
    signer = LocationSigner(role, lifetime, MADE)
    signed: dict[str | None, tuple[float, float]] = {}
    for _ in range(5_000):
        clock.now += 17
        location = signer.sign(segment(3))
        begin, end = signed.setdefault(location.url, (clock.now, min(clock.now + lifetime, role.ends())))
        assert end - clock.now >= 3 / 4 * (end - begin)
        assert location.fresh_until <= begin + (end - begin) / 4
    assert len(signed) < 500
