"""The faults, each with the errors with which a query that meets it may rightly end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.delta.driver import POINTS
from tests.rigs.chaos import effects, strikes
from tests.rigs.chaos.driver import KILLED
from tests.rigs.chaos.effects import Effect
from tests.rigs.chaos.proxy import FaultProxy
from tests.rigs.chaos.rig import READ_TIMEOUT_MS, Query, Rig
from tiered_stream.storage.object_store import ATTEMPTS

UNTIL_IT_FAILS = 10_000
MOST_STRIKES = (1, 1, 2, 6)
"""Of requests, more than a client makes in one attempt, among them."""

ACCESS, NOT_FOUND = "StorageAccessError", "StorageObjectNotFoundError"
UNAVAILABLE, READ_TIMEOUT = "StorageUnavailableError", "StorageReadTimeoutError"
TRUNCATED = "CorruptDataError"
NO_SUCH_RANGE = f"{TRUNCATED}|StorageError: .* answered 416"
CUT = f"{UNAVAILABLE}|{TRUNCATED}|StorageError: .* (did not give the length|does not support ranges)"
"""The second where the cut is in a header."""
BROKERS_AWAY = "BrokerUnavailableError|FetchTimeoutError"
WORKER_AWAY = "Python worker exited unexpectedly"
PLANNER_AWAY = r"java\.io\.EOFException|java\.net\.SocketException"
"""Of Spark's connection to it."""
OF_THE_GATEWAY = "BrokerUnavailableError"
"""It waits longer for an index than its clients for its answer (`kafka.request.timeout.ms` of the rig)."""
DATA_LOSS = rf"KAFKA_DATA_LOSS\.|{NOT_FOUND}"
"""A query that may not ask the brokers does not hear that the object is missing for good reason."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    `strike` lets it happen to the query that runs, and says whether it did: the query may end before. `errors` is a
    pattern; without it the query has to get over the fault. After a `final` one the query cannot go on.
    """

    kind: str
    strike: Callable[[Rig, Query], bool]
    errors: str | None = None
    suits: Callable[[Query], bool] = lambda query: True
    final: bool = False
    of_the_gateway: str | None = None
    """A pattern of what a query says besides whose gateway it strikes."""

    def explains(self, query: Query, error: str) -> bool:
        patterns = (self.errors, self.of_the_gateway if query.locator == "broker" else None)
        return any(each is not None and re.search(each, error) for each in patterns)


def _storage(kind: str, make: Callable[[Rig], Effect], errors: str, of_the_gateway: str | None = None) -> Fault:
    """What the S3 endpoint does to some requests; to all, where the query may not fall back to brokers."""

    def strike(rig: Rig, query: Query) -> bool:
        fails = query.fallback == "fail" and rig.chance.random() < 0.5
        return _through(rig, rig.storage, make(rig), UNTIL_IT_FAILS if fails else rig.chance.choice(MOST_STRIKES))

    return Fault(f"S3: {kind}", strike, errors, of_the_gateway=of_the_gateway)


def _passing_stall(kind: str, make: Callable[[Rig], Effect]) -> Fault:
    """A stall of fewer requests than are sent before one is given up: no query may end with an error."""

    def strike(rig: Rig, query: Query) -> bool:
        # However many faults of this kind follow one another.
        return _through(rig, rig.storage, make(rig), rig.chance.randint(1, ATTEMPTS - 1), in_a_row=ATTEMPTS - 1)

    return Fault(f"S3: passing {kind}", strike, of_the_gateway=OF_THE_GATEWAY)


def _brokers(kind: str, make: Callable[[Rig], Effect]) -> Fault:
    """What becomes of some answers of the broker, on their way to the reader or to its gateway."""

    def strike(rig: Rig, query: Query) -> bool:
        return _through(rig, rig.brokers, make(rig), rig.chance.choice(MOST_STRIKES))

    return Fault(f"broker: {kind}", strike, BROKERS_AWAY)


def _through(rig: Rig, proxy: FaultProxy, effect: Effect, times: int, in_a_row: int = UNTIL_IT_FAILS) -> bool:
    proxy.arm(effect, times, in_a_row=in_a_row)
    rig.wait(lambda: not proxy.armed, "the proxy's effect")
    proxy.disarm()
    return proxy.struck > 0


def _in_mid_query(act: Callable[[Rig, Query], None]) -> Callable[[Rig, Query], bool]:
    """Act when the next micro-batch has been committed, and a moment later."""

    def strike(rig: Rig, query: Query) -> bool:
        before, moment = query.commits(), threading.Event()
        rig.wait(lambda: query.commits() > before, "a micro-batch")
        moment.wait(rig.chance.uniform(0, 0.6))
        if rig.driver.answered:
            return False
        act(rig, query)
        return True

    return strike


def _die_at(point: str) -> Fault:
    def strike(rig: Rig, query: Query) -> bool:
        rig.driver.die_at(point)
        rig.wait(lambda: not rig.driver.running, "the driver's death")
        if rig.driver.running:
            rig.driver.kill()  # not to die in the next query
            return False
        return True

    return Fault(
        f"driver killed {point}", strike, KILLED, lambda query: query.lane == "direct" and not query.on_cluster
    )


def _fill_disk(rig: Rig, query: Query) -> None:
    rig.small_disk.fill()
    rig.wait(lambda: False, "the query to fail for want of space")
    rig.small_disk.free()


def _is_local(query: Query) -> bool:
    return not query.on_cluster


def _is_behind_gateway(query: Query) -> bool:
    return query.locator == "broker"


def _share(rig: Rig) -> float:
    return rig.chance.choice([0.0, rig.chance.random(), 1.0])


_REFUSALS = {403: ACCESS, 404: NOT_FOUND, 416: NO_SUCH_RANGE, 429: UNAVAILABLE, 500: UNAVAILABLE, 503: UNAVAILABLE}

ANSWERS = (
    *(_storage(str(status), partial(lambda rig, status: effects.refused(status), status=status), errors)
      for status, errors in _REFUSALS.items()),
    _storage("short body", lambda rig: effects.shortened, TRUNCATED),
    _storage("cut", lambda rig: effects.cut(_share(rig)), CUT),
    _storage("reset", lambda rig: effects.reset(_share(rig)), CUT),
    _storage("stall", lambda rig: effects.stalled(_share(rig)), READ_TIMEOUT, of_the_gateway=OF_THE_GATEWAY),
    _storage("delay", lambda rig: effects.delayed(rig.chance.uniform(0.1, 1)), READ_TIMEOUT),
    _storage("clock skew, old signature", lambda rig: effects.signed_long_ago, ACCESS),
    _brokers("cut", lambda rig: effects.cut(_share(rig))),
    _brokers("reset", lambda rig: effects.reset(_share(rig))),
    _brokers("stall", lambda rig: effects.stalled(_share(rig))),
    _brokers("delay", lambda rig: effects.delayed(rig.chance.uniform(0.1, 1))),
)  # fmt: skip
"""Those of proxies: quick."""
PASSING = (
    *ANSWERS,
    *ANSWERS,
    *map(_die_at, POINTS),
    Fault("driver killed", _in_mid_query(strikes.kill_driver), KILLED, _is_local),
    Fault("worker killed", _in_mid_query(strikes.kill_worker), WORKER_AWAY, _is_local),
    Fault("planner killed", _in_mid_query(strikes.kill_planner), PLANNER_AWAY, _is_local),
    Fault("executor killed", _in_mid_query(strikes.kill_executor), None, lambda query: query.on_cluster),
    Fault("broker killed", _in_mid_query(strikes.kill_broker), BROKERS_AWAY),
    Fault("leader moves", _in_mid_query(strikes.move_leaders), BROKERS_AWAY),
    Fault("leader killed", _in_mid_query(strikes.kill_leader), BROKERS_AWAY),
    Fault("S3 killed", _in_mid_query(strikes.kill_s3), CUT),
    Fault("gateway killed", _in_mid_query(strikes.kill_gateway), BROKERS_AWAY, _is_behind_gateway),
    Fault("disk full", _in_mid_query(_fill_disk), "No space left", lambda query: query.on_small_disk),
    Fault("partitions added", _in_mid_query(strikes.add_partition)),
)  # fmt: skip
"""Those that leave the topic what it is, or add to it; as often as they are to happen."""
STALLS = (
    _passing_stall("stall", lambda rig: effects.stalled(_share(rig))),
    _passing_stall("stall", lambda rig: effects.stalled(_share(rig))),
    _passing_stall("delay", lambda rig: effects.delayed(rig.chance.uniform(1.1, 2) * READ_TIMEOUT_MS / 1000)),
    _storage("stall", lambda rig: effects.stalled(_share(rig)), READ_TIMEOUT, of_the_gateway=OF_THE_GATEWAY),
    _storage("drip", lambda rig: effects.dripped(READ_TIMEOUT_MS / 3000), READ_TIMEOUT, of_the_gateway=OF_THE_GATEWAY),
    _storage("503", lambda rig: effects.refused(503), UNAVAILABLE),
)
"""Each longer than the storage's timeouts, but for the last: for queries that no broker helps."""
LASTING = (
    Fault("records deleted", strikes.delete_records, DATA_LOSS),
    Fault("retention", strikes.retention, DATA_LOSS),
    Fault("topic recreated", strikes.recreate, DATA_LOSS, lambda query: query.fail_on_data_loss, final=True),
)
"""Those after which records are gone."""
