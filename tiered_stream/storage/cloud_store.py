"""Object store over a bucket in Google Cloud Storage or a container in Azure Blob Storage, by means of obstore.

obstore (Rust: the crate `object_store`) signs, connects and receives. It checks that a response has the requested
range, and does not hold Python's global lock while it waits. This module makes the attempts, keeps the time limits, and
counts busy responses, because read-ahead must know their number.

obstore's threads do not survive a fork: a process that forks must not have sent a request.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError

from tiered_stream.errors import (
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageConnectTimeoutError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.storage.object_store import ATTEMPTS, SLOW_DOWN, ObjectStore, too_short
from tiered_stream.storage.request_time import RequestTimeouts

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import AzureStore, ClientConfig, GCSStore, HTTPStore, S3Store

    Client = AzureStore | GCSStore | HTTPStore | S3Store

T = TypeVar("T")

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")
_KIND = re.compile(r"HttpError \{\s+kind: (\w+)")
_NO_LENGTH = "Content-Length Header missing"
_FIRST_WAIT = 0.1
"""Seconds before the second attempt.

They are doubled for each further attempt, and shortened at random by up to half.
"""
_SMALLEST_SHARE = 8
"""Divisor of the whole request's time limit; the quotient is the shortest time limit of an attempt."""


class FailureKind(Enum):
    """Kind of failure of a request; the values are texts for messages."""

    STATUS = "refused by the service"
    TIMEOUT = "timed out"
    BROKEN = "connection broken"
    UNREACHABLE = "no connection"
    OTHER = "an answer that is not as it should be"


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of one attempt of a request.

    `status` is the HTTP status, and `code` the service's own error code in an XML body; 0 and empty if there is none.
    """

    kind: FailureKind
    status: int = 0
    code: str = ""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the failure that obstore's `error` stands for.

        obstore's errors have no fields, but a text with the status or with the kind of the HTTP error.
        """
        text = str(error)
        if status := _STATUS.search(text):
            code = _CODE.search(text)
            return cls(FailureKind.STATUS, int(status[1]), code[1] if code else "")
        kinds = {
            "Timeout": FailureKind.TIMEOUT,
            "Connect": FailureKind.UNREACHABLE,
            "Request": FailureKind.BROKEN,
            "Interrupted": FailureKind.BROKEN,
        }
        kind = _KIND.search(text)
        return cls(kinds.get(kind[1], FailureKind.OTHER) if kind else FailureKind.OTHER)

    def __str__(self) -> str:
        return f"{self.status} {self.code}".strip() if self.status else self.kind.value

    @property
    def may_pass(self) -> bool:
        """True if another attempt of the same request may succeed."""
        if self.kind is FailureKind.STATUS:
            return self.status == 429 or self.status >= 500
        return self.kind is not FailureKind.OTHER


class Service(Protocol):
    """Part of a store that differs between the services: it opens clients, and builds errors."""

    uri: str
    """Name of the bucket or container in messages, such as `gs://bucket`."""

    def connect(self, seconds: float) -> Client:
        """Return a new client whose attempts take at most `seconds` each, without sending a request.

        Raises:
            StorageAccessError: there are no credentials.
        """

    def learns_from(self, failure: Failure) -> bool:
        """Return whether the request may succeed with a new client after `failure`.

        The service may have learned something from the failure, such as the bucket's region.
        """

    def refused(self, failure: Failure, name: str, *, listing: bool) -> StorageError:
        """Return the error for a response that another attempt would not change.

        Args:
            name: full name of the object.
            listing: the request was to list keys.
        """

    def unreachable(self, name: str) -> str:
        """Return an error message with the address that could not be reached, and the option that sets it.

        Args:
            name: full name of the object.
        """


def refusal(
    failure: Failure, name: str, *, endpoint: str, container: str, place: str, missing_code: str, credentials_hint: str
) -> StorageError:
    """Return the error for a refused request of the object `name`, for `Service.refused`.

    Args:
        endpoint: URL of the service.
        container: the bucket or container in words, such as `bucket tier`.
        place: the option or setting that names the bucket or container, in words.
        missing_code: error code by which the service says that the bucket or container does not exist.
        credentials_hint: advice for refused access.
    """
    answer = f"{endpoint} answered {failure}"
    if failure.code == missing_code:
        return StorageBucketNotFoundError(f"the {container} ({place}) does not exist: {answer}, asked for {name}")
    if failure.status == 404:
        return StorageObjectNotFoundError(f"{name} does not exist: {answer}")
    if failure.status in (401, 403):
        return StorageAccessError(f"no access to {name}: {answer}; {credentials_hint}")
    return StorageError(f"{answer}, asked for {name}")


def client_options(timeouts: RequestTimeouts, seconds: float, url: str) -> ClientConfig:
    """Return the options of a client for `url` whose attempts take at most `seconds` each."""
    return {
        "allow_http": urlsplit(url).scheme == "http",
        "connect_timeout": timedelta(milliseconds=timeouts.connect_ms),
        "read_timeout": timedelta(milliseconds=timeouts.read_ms),
        "timeout": timedelta(seconds=seconds),
    }


class CloudStore(ObjectStore):
    """Object store over the objects of `service` whose keys begin with `root` (empty, or ending in a slash).

    Args:
        timeouts: time limits of a request, and its maximum number of timeouts.
        now: clock in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        service: Service,
        root: str,
        timeouts: RequestTimeouts,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds),
    ) -> None:
        self._service = service
        self._clients: dict[float, Client] = {}
        self._root = root
        self._timeouts = timeouts
        self._seconds = timeouts.total_ms / 1000
        self._busy = 0
        self._now = now
        self._sleep = sleep

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        if isinstance(extent, Limit):
            return self._send(key, lambda client: self._whole(client, key, extent))
        if not extent:
            return b""
        try:
            data = self._send(key, lambda client: self._range(client, key, extent))
        except _UnfitAnswerError as error:
            if (size := self.size(key)) < extent.end:  # services answer in several ways to a range behind the end
                raise too_short(self.describe(key), extent, size) from None
            raise StorageError(str(error)) from None
        if len(data) != len(extent):
            raise too_short(self.describe(key), extent, extent.start + len(data))
        return data

    def _range(self, client: Client, key: str, wanted: ByteRange) -> bytes:
        answer = obstore.get(client, self._root + key, options={"range": (wanted.start, wanted.end)})
        return self._body(answer, key, len(wanted))

    def _whole(self, client: Client, key: str, limit: Limit) -> bytes:
        answer = obstore.get(client, self._root + key)
        size = answer.meta["size"]
        limit.check(size, f"the bytes of {self.describe(key)}")
        return self._body(answer, key, size) if size else b""

    def _body(self, answer: GetResult, key: str, size: int) -> bytes:
        """Return the body of a response.

        Raises:
            StorageError: the body has more than `size` bytes, because a service can send more than its headers say.
        """
        chunks = iter(answer.stream(min_chunk_size=size))
        data = next(chunks, b"")
        if len(data) > size or next(chunks, None) is not None:
            raise StorageError(f"{self._service.uri} gave more than {size} bytes of {self.describe(key)}")
        # A buffer of obstore's, as good as bytes for all readers: a copy would cost as much as to receive it.
        return data

    def size(self, key: str) -> int:
        return self._send(key, lambda client: obstore.head(client, self._root + key)["size"])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        # obstore lists folders, so the first key with the prefix is found by its place in the order of keys.
        folder = self._root + prefix[: prefix.rfind("/") + 1]
        offset = self._root + (after if after >= prefix else _just_before(prefix))
        pages: Iterator[Sequence[ObjectMeta]] | None = None

        def next_page(client: Client) -> Sequence[ObjectMeta] | None:
            nonlocal pages
            # After an error obstore's list is at its end, so that the rest needs a new one.
            current, pages = pages or iter(obstore.list(client, folder or None, offset=offset or None)), None
            page = next(current, None)
            pages = current
            return page

        while page := self._send(prefix, next_page, listing=True):
            for entry in page:
                offset = entry["path"]
                key = offset.removeprefix(self._root)
                if key.startswith(prefix) and key > after:
                    after = key
                    yield key
                elif key > prefix and not key.startswith(prefix):
                    return

    def describe(self, key: str) -> str:
        return f"{self._service.uri}/{self._root}{key}"

    def signed_url(self, key: str, seconds: int) -> str | None:
        lifetime = timedelta(seconds=seconds)
        return self._send(key, lambda client: obstore.sign(client, "GET", self._root + key, lifetime))  # type: ignore[call-overload, no-any-return]

    def busy_answers(self) -> int:
        return self._busy

    def _client(self, seconds: float) -> Client:
        """Return a client whose attempts take at most `seconds`.

        Clients are kept by their time limits: the whole time limit of a request, and its half, quarter and eighth. If
        `seconds` is less than an eighth, the client with an eighth is returned.
        """
        limit = self._seconds
        while limit > seconds and limit > self._seconds / _SMALLEST_SHARE:
            limit /= 2
        client = self._clients.get(limit)
        if client is None:
            client = self._clients[limit] = self._service.connect(limit)
        return client

    def _send(self, key: str, request: Callable[[Client], T], *, listing: bool = False) -> T:
        """Return the result of `request`, which is called with a client.

        After a failure that may pass, `request` is called again, as often and as long as the timeouts allow. If
        `Service.learns_from` returns True for a failure, `request` is called again with a new client; this happens only
        once.

        Raises: the result of `_error`.
        """
        begin = self._now()
        timeouts, learned = 0, False
        for attempt in range(1, ATTEMPTS + 1):
            attempt_begin = self._now()
            try:
                return request(self._client(self._seconds - (attempt_begin - begin)))
            except (BaseError, FileNotFoundError, ValueError) as error:
                failure = Failure.of(error)
            if not learned and self._service.learns_from(failure):
                learned = True
                self._clients.clear()
                continue
            self._busy += failure.status in SLOW_DOWN
            timeouts += failure.kind is FailureKind.TIMEOUT
            wait = _FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1)
            time_left = self._seconds - (self._now() - begin) - wait
            if not failure.may_pass or attempt == ATTEMPTS or timeouts == self._timeouts.attempts or time_left <= 0:
                raise self._error(failure, key, self._now() - attempt_begin, time_left <= 0, listing)
            self._sleep(wait)
        raise AssertionError("the last attempt has returned or raised")

    def _error(self, failure: Failure, key: str, seconds: float, is_over: bool, listing: bool) -> Exception:
        """Return the error to raise for `failure`, the last failure of a request.

        Args:
            seconds: duration of the last attempt.
            is_over: the whole time limit of the request is over.
        """
        name, timeouts = self.describe(key), self._timeouts
        if failure.kind is FailureKind.STATUS:
            if failure.status == 416:
                return _UnfitAnswerError(f"{failure}, asked for {name}")
            if failure.may_pass:
                return StorageUnavailableError(f"{failure} to every request for {name}")
            return self._service.refused(failure, name, listing=listing)
        if failure.kind is FailureKind.TIMEOUT and is_over:
            return StorageReadTimeoutError(
                f"{name} did not come within remote.fetch.request.timeout.ms, {self._seconds:g} s in all"
            )
        if failure.kind is FailureKind.TIMEOUT and seconds * 1000 < timeouts.read_ms:
            return StorageConnectTimeoutError(f"no connection within kafka.fetch.remote.connect.timeout.ms, for {name}")
        if failure.kind is FailureKind.TIMEOUT:
            return StorageReadTimeoutError(
                f"{name} was not heard of for kafka.fetch.remote.read.timeout.ms, {timeouts.attempts} times"
            )
        if failure.kind is FailureKind.UNREACHABLE:
            return StorageUnavailableError(self._service.unreachable(name))
        if failure.kind is FailureKind.BROKEN:
            return StorageUnavailableError(f"{name}: the connection broke {ATTEMPTS} times")
        return _UnfitAnswerError(f"{name} could not be read: the service gave {failure}")


class _UnfitAnswerError(StorageError):
    """Error of a response that is not the requested bytes."""


def _just_before(text: str) -> str:
    """Return a text that is less than `text`, and greater than all keys that are less than `text`.

    Return an empty text if `text` is empty.
    """
    return text and text[:-1] + chr(ord(text[-1]) - 1) + "\U0010ffff"
