"""In processes of their own: a hard limit, once lowered, stays so."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging, resource, sys
from tiered_stream.gateway.gateway_program import connections_allowed
soft, hard, wanted = map(int, sys.argv[1:])
logging.basicConfig(format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(connections_allowed(wanted, ports=100), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def allowed(soft: int, hard: int, wanted: int) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, wanted))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("soft", [256, 1024])
def test_the_soft_limit_is_raised_as_far_as_the_connections_need(soft: int) -> None:
    assert allowed(soft, 4096, 1000) == ["1000 2356"]


def test_a_limit_that_is_enough_stays_as_it_is() -> None:
    assert allowed(4096, 4096, 1000) == ["1000 4096"]


def test_where_the_hard_limit_is_too_low_fewer_connections_are_taken_and_the_log_says_so() -> None:
    assert allowed(1024, 2048, 10_000) == [
        "gateway.max.connections = 10000 needs 20356 open files, and this process may have 2048 (ulimit -Hn): "
        "at most 846 connections are taken",
        "846 2048",
    ]
