"""Repetition of failed requests to an object store within time limits, and the errors if all attempts fail."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self, TypeVar

from tiered_stream import errors
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.object_store import ATTEMPTS, SLOW_DOWN

T = TypeVar("T")

_ATTEMPTS_BEFORE_FALLBACK = 2
"""Maximum number of attempts of a GET that times out, if brokers can serve the records instead of storage.

One timeout may come from a lost packet or a slow server, so the GET is sent again. After a second timeout, the
segment's records are read from a broker.
"""
_BUSY_ATTEMPTS = 9
"""Maximum number of attempts of a request if the service asks for fewer requests: S3 takes up to minutes to scale."""
_BUSY_CODES = frozenset(("SlowDown", "ServerBusy"))
"""Error codes by which S3 and Azure ask for fewer requests. Status 503 alone may also mean that a service is down."""
_FIRST_WAIT = 0.1
"""Maximum seconds to wait before the second attempt.

The maximum is twice as long before each further attempt. Each wait is shortened at random by up to half.
"""
_MOST_RETRY_AFTER = 20.0
"""Maximum seconds that one request waits because of `Retry-After` headers, over all its attempts."""

FAILURE_HELD = 1.0
"""Seconds for which a failure of credentials is raised again without a new request.

So waiting threads do not all repeat the request.
"""

_process: int | None = None
"""Id of the process that has sent the first request, and so has the storage library's threads; None: no request yet.

A fork inherits the value.
"""


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """Timeouts of a GET for connecting and reading (KIP-1254), and limits for all its attempts.

    Times are in milliseconds. `total_ms` limits all attempts of a GET together. `attempts` is the maximum number of
    attempts of a GET that times out.
    """

    connect_ms: int
    read_ms: int
    total_ms: int
    attempts: int

    @classmethod
    def of(cls, options: StorageOptions) -> Self:
        attempts = _ATTEMPTS_BEFORE_FALLBACK if options.has_fallback else ATTEMPTS
        return cls(options.connect_timeout_ms, options.read_timeout_ms, options.request_timeout_ms, attempts)


class FailureKind(Enum):
    """Kind of failure of an attempt of a request; the values are texts for messages."""

    STATUS = "refused by the service"
    CONNECT_TIMEOUT = "not connected in time"
    TIMEOUT = "timed out"
    BROKEN = "connection broken"
    UNREACHABLE = "no connection"
    UNKNOWN_HOST = "unknown host"
    CREDENTIALS = "no credentials"
    TLS = "TLS failed"
    OTHER = "a malformed response"


_LASTING = (FailureKind.OTHER, FailureKind.UNKNOWN_HOST, FailureKind.CREDENTIALS, FailureKind.TLS)


@dataclass(eq=False)
class AttemptError(Exception):
    """Failure of one attempt of a request.

    `status` is the HTTP status; 0: there was no response with an error status. `code` is the service's own error code,
    the reason why TLS failed, or another detail for messages. `region` is the bucket's region that S3 names in the
    body; empty: the response has none. `denied` is the permission that the service names as missing, such as
    `kms:Decrypt on arn:…`; if there are no credentials, it is the reason. `retry_after` is the time in seconds after
    which the service wants the next attempt (header `Retry-After`).
    """

    kind: FailureKind
    status: int = 0
    code: str = ""
    region: str = ""
    denied: str = ""
    retry_after: float = 0

    def __str__(self) -> str:
        return f"{self.status} {self.code}".strip() if self.status else self.kind.value

    @property
    def may_pass(self) -> bool:
        """True if another attempt of the same request may succeed."""
        if self.kind is FailureKind.STATUS:
            # 410: Azure's metadata service is being updated.
            return self.status in (408, 410, 429) or self.status >= 500
        return self.kind not in _LASTING


class Attempts:
    """Sender of requests that sends a request again, as often and as long as `timeouts` allow.

    Args:
        unreachable: returns the error message if the service could not be reached. Its arguments are the object's full
            name and the last failure.
    """

    def __init__(self, timeouts: RequestTimeouts, unreachable: Callable[[str, AttemptError], str]) -> None:
        self._timeouts = timeouts
        self._unreachable = unreachable
        self.slow_down_responses = 0
        """Number of responses so far that asked for fewer requests."""

    def send(
        self,
        name: str,
        attempt: Callable[[float], T],
        shows_other_settings: Callable[[AttemptError], bool] = lambda failure: False,
        seconds: float | None = None,
    ) -> T:
        """Return the result of `attempt`, which is called with the seconds that are left for the request.

        If a failure may pass (`AttemptError.may_pass`), `attempt` is called again after a wait. If
        `shows_other_settings` returns True for a failure of any kind, `attempt` is called again at once, but only once.

        Args:
            name: full name of the object, for errors.
            attempt: sends the request once, and raises AttemptError if it fails.
            shows_other_settings: returns whether the failure has shown that the next attempt needs other settings, such
                as another region.
            seconds: time limit of all attempts together; None: the time limit in `timeouts`.

        Raises:
            StorageUnavailableError: no attempt or no time is left, and the last failure is one that may pass.
            AttemptError: an attempt failed in a way that another attempt would not change.
        """
        end = time.monotonic() + (seconds or self._timeouts.total_ms / 1000)
        failures: list[AttemptError] = []
        timeouts, learned, patience = 0, False, _MOST_RETRY_AFTER
        for number in range(1, _BUSY_ATTEMPTS + 1):
            try:
                return attempt(end - time.monotonic())
            except AttemptError as failure:
                if not learned and number < ATTEMPTS and shows_other_settings(failure):
                    learned = True
                    continue
                if not failure.may_pass:
                    raise
                failures.append(failure.with_traceback(None))  # a traceback would refer to `failures`
                self.slow_down_responses += failure.status in SLOW_DOWN
                is_busy = failure.status == 429 or failure.code in _BUSY_CODES or failure.retry_after > 0
                timeouts += failure.kind in (FailureKind.TIMEOUT, FailureKind.CONNECT_TIMEOUT)
                own_wait = _FIRST_WAIT * 2 ** (number - 1) * random.uniform(0.5, 1)
                asked = min(failure.retry_after, patience)
                patience -= asked
                wait = max(own_wait, asked)
                is_over = time.monotonic() + wait >= end
                is_last = number >= (_BUSY_ATTEMPTS if is_busy else ATTEMPTS) or timeouts == self._timeouts.attempts
                if is_last or is_over:
                    raise self._error(failures, name, is_over) from None
            time.sleep(wait)
        raise AssertionError("the last attempt has returned or raised")

    def _error(self, failures: Sequence[AttemptError], name: str, is_over: bool) -> errors.StorageUnavailableError:
        """Return the error for a request whose attempts all failed. `is_over`: the time of the request is over."""
        failure = failures[-1]
        if failure.kind is FailureKind.UNREACHABLE:
            return errors.StorageUnavailableError(self._unreachable(name, failure))
        if failure.kind is FailureKind.BROKEN:
            times = sum(each.kind is failure.kind for each in failures)
            return errors.StorageUnavailableError(f"{name}: the connection broke {times} time{'s' * (times > 1)}")
        if failure.kind is FailureKind.STATUS:
            which = "every" if {str(each) for each in failures} == {str(failure)} else "the last"
            return errors.StorageUnavailableError(f"{failure} to {which} request for {name}")
        if is_over:
            return errors.StorageReadTimeoutError(
                f"{name} did not come within remote.fetch.request.timeout.ms, "
                f"{self._timeouts.total_ms / 1000:g} s in all"
            )
        if failure.kind is FailureKind.CONNECT_TIMEOUT:
            return errors.StorageConnectTimeoutError(
                f"no connection within kafka.fetch.remote.connect.timeout.ms, for {name}"
            )
        return errors.StorageReadTimeoutError(
            f"no response for {name} within kafka.fetch.remote.read.timeout.ms, in {len(failures)} attempts"
        )


def check_process() -> None:
    """Check that this process can send requests: the storage library's threads are in it, or not started yet.

    Raises:
        StorageError: this process was forked from a process that has sent a request.
    """
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise errors.StorageError(
            "this process was forked from a process that had read from the storage, so it cannot read: start it "
            'without a fork, in multiprocessing by get_context("spawn")'
        )
