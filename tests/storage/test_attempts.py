"""Errors of requests whose attempts all failed."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from weakref import ReferenceType, ref

import pytest

from tiered_stream.errors import StorageUnavailableError
from tiered_stream.storage import attempts
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts

BROKEN = AttemptError(FailureKind.BROKEN)
UNAVAILABLE, INTERNAL = (AttemptError(FailureKind.STATUS, status) for status in (503, 500))


def text_after(patch: pytest.MonkeyPatch, *failures: AttemptError) -> str:
    """Return the message of a request whose attempts fail in this way; its time is over after the last of them."""
    left = list(failures)
    patch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: 0 if left else 60, sleep=lambda _: None))

    def attempt(_: float) -> None:
        raise left.pop(0)

    with pytest.raises(StorageUnavailableError) as raised:
        Attempts(RequestTimeouts(1000, 1000, 30_000, 4), lambda name, _: name).send("key", attempt)
    assert not left
    return str(raised.value)


@pytest.mark.parametrize(
    ("failures", "count"),
    [([BROKEN] * 4, 4), ([BROKEN], 1), ([UNAVAILABLE, BROKEN, BROKEN], 2)],
    ids=["all attempts", "no time for another attempt", "after another failure"],
)
def test_the_connections_that_broke_are_counted(
    monkeypatch: pytest.MonkeyPatch, failures: list[AttemptError], count: int
) -> None:
    assert f" {count} time" in text_after(monkeypatch, *failures)


@pytest.mark.parametrize("before", [BROKEN, INTERNAL])
def test_a_status_is_only_said_of_the_requests_that_got_it(
    monkeypatch: pytest.MonkeyPatch, before: AttemptError
) -> None:
    assert "503 to every " in text_after(monkeypatch, UNAVAILABLE, UNAVAILABLE)
    assert "503 to the last " in text_after(monkeypatch, before, UNAVAILABLE)


def test_a_failure_that_passed_is_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: 0, sleep=lambda _: None))
    failed: list[ReferenceType[AttemptError]] = []

    def attempt(_: float) -> str:
        if failed:
            return "sent"
        failure = AttemptError(FailureKind.BROKEN)
        failed.append(ref(failure))
        try:
            raise failure
        finally:
            del failure  # this frame must not keep it

    gc.disable()
    try:
        assert Attempts(RequestTimeouts(1000, 1000, 30_000, 4), lambda name, _: name).send("key", attempt) == "sent"
        assert failed[0]() is None
    finally:
        gc.enable()
