"""Targets that do what none may, so that the job is seen to notice."""

from __future__ import annotations

import os
from random import Random

from tests.rigs.fuzz.target import MIB, Target
from tiered_stream.errors import CorruptDataError


def _byte(random: Random) -> bytes:
    return bytes((int(random.random() * 256),))


def _now_and_then(data: bytes) -> None:
    if data[0] % 2:
        raise CorruptDataError("odd")
    if data[0] == 100:
        raise KeyError("foreign")


def _kept(data: bytes) -> None:
    if data[0] == 100:
        _held[:] = [b"\1" * (40 * MIB)]


def _dying(data: bytes) -> None:
    if data[0] == 100:
        os.abort()


_held: list[bytes] = []

TARGETS = (
    Target("foreign", _byte, _now_and_then),
    Target("large", _byte, _kept, memory=8 * MIB),
    Target("dying", _byte, _dying),
)
