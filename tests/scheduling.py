"""Order in which xdist's workers run the tests.

Two workers run tests with Spark. The other workers run tests that mostly wait for a service, and then tests without
services. So the cores of a small machine are busy all the time. A file's tests stay together, so that fixtures of a
module are made once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SPARK_WORKERS = frozenset({"gw0", "gw1"})
SPARK, UNIT, SERVICE = "spark", "unit", "service"
UNITS = 30
"""Tests without services that one worker gets at a time."""
_RESTARTED = "restarted_stack"


def _kind(item: pytest.Item) -> str:
    if "spark" in _fixtures(item) or item.get_closest_marker("starts_spark"):
        return SPARK
    return SERVICE if item.get_closest_marker("stack") else UNIT


def _fixtures(item: pytest.Item) -> Collection[str]:
    return getattr(item, "fixturenames", ())


def groups(items: Collection[pytest.Item]) -> dict[str, str]:
    """Return the group of each test as `KIND:NAME`: its file, or the stack that one worker owns and restarts.

    All tests of a file that need services have one kind, because they share fixtures. A long file of tests without
    services is several groups, so that no worker has to wait for another one at the end.
    """
    with_spark = {item.path for item in items if _kind(item) == SPARK}
    sizes: Counter[str] = Counter()
    found = {}
    for item in items:
        kind, name = _kind(item), item.nodeid.split("::")[0]
        sizes[name] += kind == UNIT
        if _RESTARTED in _fixtures(item):
            found[item.nodeid] = f"{SPARK}:{_RESTARTED}"
        elif kind == UNIT:
            found[item.nodeid] = f"{UNIT}:{name}:{sizes[name] // UNITS}"
        else:
            found[item.nodeid] = f"{SPARK if item.path in with_spark else kind}:{name}"
    return found


def write_groups(items: Collection[pytest.Item], worker: str, file: Path) -> None:
    """Write the group of each test as JSON. Workers collect the same tests, so the last one to write may win."""
    own = file.with_name(f"{file.name}-{worker}")
    own.write_text(json.dumps(groups(items)))
    own.replace(file)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker groups of its kinds: the group with the most tests first, or in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any, groups: Path, *, longest_first: bool) -> None:
        super().__init__(config, log)
        self._file = groups
        self._longest_first = longest_first
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        if not self._groups:
            self._groups = json.loads(self._file.read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_scope(node)
        if scope is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _next_scope(self, node: WorkerController) -> str | None:
        runs_spark = node.gateway.id in SPARK_WORKERS
        for kind in (SPARK, UNIT, SERVICE) if runs_spark else (SERVICE, UNIT):
            of_kind: list[str] = [scope for scope in self.workqueue if scope.partition(":")[0] == kind]
            if of_kind:
                return max(of_kind, key=lambda scope: len(self.workqueue[scope])) if self._longest_first else of_kind[0]
        return None
