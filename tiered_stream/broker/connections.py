"""Connections to the brokers of one cluster: kafka-python's event loop on a separate network thread.

Callers hand coroutines to that thread (`start`, `run`). Only that thread uses the connections, so the connections need
no lock.
"""

from __future__ import annotations

import concurrent.futures
import copy
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from kafka.errors import NodeNotReadyError
from kafka.future import Future

from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.kafka_errors import AbsentBrokerError, connection_fault
from tiered_stream.broker.wire.kafka_python import ConnectionManager, NetworkSelector
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.process.logs import muted

T = TypeVar("T")

_LOGIN_POLL_SECONDS = 0.02
"""Seconds between two checks whether another thread has obtained a login's token or credentials."""


_MAX_ADDRESSES = 10
"""Maximum number of addresses that a message names."""


class Deadline:
    """Point in time that is `timeout_ms` after the creation of the object.

    `option` names the option that sets the timeout, for errors.
    """

    def __init__(self, timeout_ms: int, option: str = "kafka.default.api.timeout.ms") -> None:
        self.timeout_ms = timeout_ms
        self._option = option
        self._at = time.monotonic() + timeout_ms / 1000

    @property
    def remaining_ms(self) -> int:
        """Milliseconds left; 0 if the deadline has passed."""
        return max(0, int((self._at - time.monotonic()) * 1000))

    def end(self) -> None:
        """Let the deadline pass now, so that work up to this deadline ends soon."""
        self._at = time.monotonic()

    def __str__(self) -> str:
        return f"{self.timeout_ms} ms ({self._option})"


class _QuietSelector(NetworkSelector):  # type: ignore[misc]
    """Event loop that mutes kafka-python's log, which has each failed attempt and, at DEBUG, the bytes of a login."""

    def run_forever(self) -> None:
        with muted("kafka"):
            super().run_forever()


class Connections:
    """Connections to one cluster's brokers, by node id.

    A bootstrap server has a node id of its own, even if the same broker also has the node id from Metadata responses.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        # No warnings of slow steps, because it is normal that a Fetch response of many MiB takes long to decode.
        self._net = _QuietSelector(client_id=config.net["client_id"], slow_task_threshold_secs=0)
        with muted("kafka"):
            self._manager = ConnectionManager(self._net, **config.net)
        self._closed = False
        self._closing = threading.RLock()  # reentrant: the garbage collector may call `close` in a thread that holds it
        """Lock that is held while `_closed` is checked and work is given to the event loop, which must not end then."""
        self._last_fault: dict[Any, tuple[float, BrokerUnavailableError]] = {}
        """Time and error of the last failed request by node id; removed when a request to the node succeeds."""
        self._net.start()

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Start the coroutine that `work` makes, on the network thread, and return a future of its result or error.

        If the client is closed before the coroutine ends, the future's error is BrokerUnavailableError.

        Raises:
            BrokerUnavailableError: the client was closed already.
        """
        with self._closing:
            if self._closed:
                raise _closed()
            outcome = self._manager.call_soon(work)
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        outcome.add_callback(future.set_result)
        # When the loop ends, it closes the coroutines that are not done, and they raise GeneratorExit.
        outcome.add_errback(
            lambda error: future.set_exception(_closed() if isinstance(error, GeneratorExit) else error)
        )
        return future

    async def gather(self, works: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        """Run the coroutines that `works` make, all concurrently, and return their results in the order of `works`.

        Raises: the first error in the order of `works`.
        """
        futures: list[Awaitable[T]] = [self._manager.call_soon(work) for work in works]
        return [await future for future in futures]

    async def first(self, works: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> T:
        """Run the coroutines that `works` make, all concurrently, and return the result that comes first.

        `works` must not be empty. The other coroutines go on until their own ends, and their results and errors are
        dropped.

        Raises: if all coroutines fail, one of their errors. A permanent error comes first, then a
        BrokerUnavailableError that is no AbsentBrokerError, then an AbsentBrokerError.
        """
        outcome: Future = Future()
        errors: list[BaseException] = []

        def fail(error: BaseException) -> None:
            errors.append(error)
            if len(errors) == len(works):
                last = BrokerUnavailableError, AbsentBrokerError
                outcome.failure(min(errors, key=lambda fault: sum(isinstance(fault, kind) for kind in last)))

        for work in works:
            future = self._manager.call_soon(work)
            future.add_callback(lambda result: outcome.is_done or outcome.success(result))
            future.add_errback(fail)
        result: T = await outcome
        return result

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`. Raises BrokerUnavailableError if the client was closed before the sleep."""
        if self._closed:
            raise _closed()
        await self._net.sleep(seconds)

    def nodes(self) -> list[Any]:
        """Return all node ids in the order to try: least loaded broker, other brokers, bootstrap servers."""
        cluster = self._manager.cluster
        known = [broker.node_id for broker in cluster.brokers()]
        bootstrap = [broker.node_id for broker in cluster.bootstrap_brokers()]
        random.shuffle(known)
        random.shuffle(bootstrap)
        best = self._manager.least_loaded_node()
        known.sort(key=lambda node_id: node_id != best)
        return known + bootstrap

    def brokers(self) -> list[Any]:
        """Return the node ids of the brokers that a Metadata response has named."""
        return [broker.node_id for broker in self._manager.cluster.brokers()]

    def unanswered(self, since: float) -> str:
        """Return a text with each address that has not responded since `since`, and its reason; empty: there is none.

        `since` is a time of `time.monotonic`. May be called on any thread.
        """
        faults = {node_id: str(fault) for node_id, (at, fault) in self._last_fault.copy().items() if at >= since}
        waiting = (node_id for node_id in self._manager.connecting() if node_id not in faults)
        reasons = [*faults.values(), *(f"{self._describe(node_id)}: no response yet" for node_id in waiting)]
        others = f"; and {len(reasons) - _MAX_ADDRESSES} more" if len(reasons) > _MAX_ADDRESSES else ""
        return "; ".join(reasons[:_MAX_ADDRESSES]) + others

    def update_brokers(self, metadata_response: Any) -> None:
        """Replace the known brokers by the brokers in a Metadata response.

        Close the connections to bootstrap servers.
        """
        brokers = copy.copy(metadata_response)
        brokers.topics = []  # there may be very many, and `BrokerClient` keeps their metadata
        self._manager.cluster.update_metadata(brokers)
        for broker in self._manager.cluster.bootstrap_brokers():
            self._manager.close(broker.node_id)

    async def request(self, node_id: Any, message: Any, deadline: Deadline) -> Any:
        """Send `message` to a node once, in the newest version that client and broker support. Return the response.

        Raises:
            BrokerUnavailableError: no connection or no response before `deadline` or within `request.timeout.ms`; the
                request may be repeated.
            BrokerAuthorizationError, ConfigurationError, BrokerError: the same request would fail again.
        """
        if self._closed:
            raise _closed()
        try:
            response = await self._exchange(node_id, message, deadline)
        except NodeNotReadyError as error:  # nothing was sent: too soon after a failure, or over the quota
            unready = BrokerUnavailableError(f"{self._describe(node_id)}: not ready, or throttled by its quota")
            _, last = self._last_fault.get(node_id, (0, unready))
            raise type(last)(str(last)) from error
        except Exception as error:
            fault = connection_fault(error, self._describe(node_id), self._config.security)
            before = self._last_fault.get(node_id)
            if before and isinstance(before[1], AbsentBrokerError) and not deadline.remaining_ms:
                # The deadline has cut this attempt off, so the attempt before says more of the address.
                raise AbsentBrokerError(str(before[1])) from None
            kind = AbsentBrokerError if isinstance(fault, AbsentBrokerError) else BrokerUnavailableError
            self._last_fault[node_id] = time.monotonic(), kind(str(fault))  # never raised, so it keeps no frames alive
            raise fault from error
        self._last_fault.pop(node_id, None)
        return response

    async def _exchange(self, node_id: Any, message: Any, deadline: Deadline) -> Any:
        manager = self._manager
        await self._await_login(node_id, deadline)
        timeout_ms = min(self._config.request_timeout_ms, deadline.remaining_ms)
        setup_ms = min(manager.socket_connection_setup_timeout_ms(node_id), timeout_ms)
        connection = manager.get_connection(node_id, timeout_ms=setup_ms, refresh_metadata_on_err=False)
        try:
            await manager.wait_for(connection.init_future, setup_ms)  # the manager's own timeout leaves out TLS
            return await connection.send_request(message, timeout_ms)
        except Exception as error:
            if not connection.connected:
                connection.close(error)
            raise

    async def _await_login(self, node_id: Any, deadline: Deadline) -> None:
        """Wait for the token, the credentials or the ticket of a login, if a new connection to the node needs them.

        The wait is not a part of the connection's setup, because it may be longer than the setup's time limit.

        Raises:
            BrokerUnavailableError: no token, credentials or ticket came before `deadline`. An error of the request for
                them is raised unchanged.
        """
        login = self._config.renewed_login
        broker = self._manager.cluster.broker_metadata(node_id)
        host = broker.host if broker else ""
        if login is None or login.usable(host) or self._manager.is_open(node_id):
            return
        renewal = login.renewal(host)
        while not renewal.done():
            if not deadline.remaining_ms:
                raise BrokerUnavailableError(f"{login.origin}: no {login.kind} came within {deadline}")
            await self._net.sleep(_LOGIN_POLL_SECONDS)
        renewal.result()

    def _describe(self, node_id: Any) -> str:
        broker = self._manager.cluster.broker_metadata(node_id)
        if broker is None:
            return f"broker {node_id}"
        if self._manager.cluster.is_bootstrap(node_id):
            return f"bootstrap server {broker.host}:{broker.port}"
        return f"broker {node_id} at {broker.host}:{broker.port}"

    def close(self) -> None:
        """Close all connections and end the network thread. Calls that still wait raise BrokerUnavailableError."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        with muted("kafka"):
            try:
                self._net.run(self._manager.close)
            finally:
                self._net.close()


def _closed() -> BrokerUnavailableError:
    return BrokerUnavailableError("the client was closed")
