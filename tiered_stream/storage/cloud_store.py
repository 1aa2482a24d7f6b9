"""Object store over an S3 bucket, a Google Cloud Storage bucket or an Azure Blob Storage container, by obstore.

obstore (Rust: the crate `object_store`) signs, connects and receives. It checks that a response has the requested
range, and does not hold Python's global lock while it waits. `Attempts`, and not obstore, repeats failed requests,
because read-ahead must know the number of responses that asked for fewer requests.

obstore's threads do not survive a fork, and a request without them would wait forever. So the fork of a process that
has sent a request refuses requests.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from tiered_stream import errors
from tiered_stream.data_limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts, check_process
from tiered_stream.storage.cloud_endpoints import StoreUse
from tiered_stream.storage.object_store import UPLOAD_SECONDS, WritableStore, in_one_buffer, range_in, too_short
from tiered_stream.storage.obstore_errors import failure_of

if TYPE_CHECKING:
    from mmap import mmap

    from obstore import ObjectMeta
    from obstore.store import AzureStore, ClientConfig, GCSStore, S3Store

    from tiered_stream.storage.identity.access_tokens import TokenSource

    Client = AzureStore | GCSStore | S3Store

T = TypeVar("T")

_ARCHIVED = ("InvalidObjectState", "BlobArchived")
"""Error codes of S3 and Azure for an object in an archive class, which nobody can read before it is restored."""
_SMALLEST_SHARE = 8
"""Divisor of the time limit of a whole request; the quotient is the shortest time limit of one attempt."""
_CHUNK_BYTES = 1 << 20
"""Approximate size in bytes of the pieces in which obstore gives a large body."""
_LARGE_UPLOAD_BYTES = 256 << 20
"""Size in bytes of an object for which an attempt of an upload may take `UPLOAD_SECONDS`: enough for 0.3 MB/s."""


class Service(ABC):
    """Access to one bucket or container: it opens obstore's clients, and builds errors.

    S3, Google Cloud Storage and Azure Blob Storage have a subclass each.

    Args:
        scheme: scheme of `uri`.
        bucket: name of the bucket or container.
        endpoint: URL of the service.
        use: names of the settings, for messages.
    """

    client_class: ClassVar[Any]
    """Class of obstore's clients."""
    bucket_kind = "bucket"
    """Noun for the bucket or container, in messages."""
    missing_code = "NoSuchBucket"
    """Error code by which the service says that the bucket or container does not exist."""
    endpoint_option: ClassVar[str]
    """Name of the option that sets `endpoint`, without `use.prefix`."""
    trust_variable = "SSL_CERT_FILE"
    """Environment variable that names a file of certificate authorities to trust."""
    access_codes: ClassVar[Collection[str]] = ()
    """Error codes of refused access, in addition to the statuses 401 and 403."""

    orders: ClassVar[Sequence[Callable[[str], Any]]] = (str,)
    """Functions from an object's key to a sort key: the cloud lists a bucket in the order of one of these sort keys.

    Most clouds compare whole keys.
    """
    can_sign: bool = True
    """True if a signed URL alone is enough to read an object."""
    credential_provider: Any = None
    """Function that returns valid credentials for `client_class`.

    None: `config` has the credentials, or says where to find them.
    """

    def __init__(self, options: StorageOptions, scheme: str, bucket: str, endpoint: str, use: StoreUse) -> None:
        self.bucket = bucket
        self.endpoint = endpoint
        self.use = use
        self.uri = f"{scheme}://{bucket}"
        """Name of the bucket or container in messages, such as `gs://bucket`."""
        self.timeouts = RequestTimeouts.of(options)
        self.config: dict[str, Any] = {}
        """Settings of `client_class`."""

    def signing_seconds_left(self) -> float:
        """Return the seconds until the credentials that sign URLs end; infinity if they never end a signed URL."""
        return inf

    def prepare(self, client: ClientConfig) -> None:  # noqa: B027 - there may be nothing to prepare
        """Set `config`, `credential_provider` and obstore's options `client` to the current values for a new client.

        Raises:
            StorageAccessError: there are no credentials.
        """

    def connect(self, seconds: float, *, is_upload: bool = False) -> Client:
        """Return a new client whose requests take at most `seconds` each, without sending a request.

        The client sends each request once. It has no read timeout if it is for uploads.

        Raises:
            StorageAccessError: there are no credentials.
            ConfigurationError: credentials are of an unknown type, or the environment would replace them.
        """
        client: ClientConfig = {
            "allow_http": urlsplit(self.endpoint).scheme == "http",
            "connect_timeout": timedelta(milliseconds=self.timeouts.connect_ms),
            "timeout": timedelta(seconds=seconds),
        }
        if not is_upload:  # during an upload, the read timeout would count from the start
            client["read_timeout"] = timedelta(milliseconds=self.timeouts.read_ms)
        self.prepare(client)
        try:
            opened: Client = self.client_class(
                self.bucket, config=self.config, client_options=client, retry_config={"max_retries": 0},
                credential_provider=self.credential_provider,
            )  # fmt: skip
        except BaseError:
            # obstore's own message may show the credentials' text.
            hint = self.access_hint()
            raise errors.StorageAccessError(f"no credentials for {self.uri}: {hint}") from None
        return opened

    def tokens(self) -> Any:
        """Return the `TokenSource` that gives clients their access tokens, for Google Cloud Storage and Azure only.

        The result is None if a client needs no access token, or requests its tokens itself.

        Raises:
            StorageAccessError: a file of credentials cannot be read.
        """
        return self.credential_provider

    def check_token(self) -> None:
        """Check that there is an access token, if `tokens` returns a source of them.

        Raises:
            StorageAccessError: there is no access token.
        """
        try:
            if (tokens := self.tokens()) is not None:
                tokens.token()
        except errors.StorageAccessError as error:
            failure = AttemptError(FailureKind.CREDENTIALS, denied=str(error))
            raise self.refused(failure, self.uri, listing=False) from None

    def before_signing(self) -> bool:
        """Ask the cloud for settings that signed URLs need, such as the bucket's region, if they are not known yet.

        Other requests do not need this, because a failed request shows the right settings. Return whether clients need
        other settings than before.
        """
        return False

    def shows_other_settings(self, failure: AttemptError) -> bool:
        """Return whether the request may succeed with a new client after `failure`.

        It may succeed if the failure has shown that clients need other settings, such as another region of the bucket,
        or another access token.
        """
        tokens: TokenSource | None = self.credential_provider
        return failure.status == 401 and tokens is not None and tokens.forget()

    @abstractmethod
    def access_hint(self) -> str:
        """Return advice on the credentials, for an error about refused access."""

    def grant_hint(self, failure: AttemptError, name: str, *, listing: bool) -> str:
        """Return advice on the permission that may be missing for the object `name`; the advice may be empty.

        The error message has this advice in front of `access_hint`. `failure` is the refused attempt. `listing` is true
        if the request was to list keys.
        """
        return ""

    def refused(self, failure: AttemptError, name: str, *, listing: bool) -> errors.StorageError:
        """Return the error for a request that failed and would fail again, for example because access is refused.

        Args:
            failure: failure of the last attempt.
            name: full name of the object.
            listing: true if the request was to list keys.
        """
        if failure.kind is FailureKind.CREDENTIALS:
            hint = self.access_hint()
            why = failure.denied if hint in failure.denied else f"{failure.denied}; {hint}"
            return errors.StorageAccessError(f"no access to {name}: {why}")
        if failure.kind is FailureKind.UNKNOWN_HOST:
            return errors.StorageError(f"{self.unreachable(name)}: DNS knows no such host; correct the name")
        if failure.kind is FailureKind.TLS:
            return errors.StorageError(
                f"TLS of {self.endpoint} failed ({failure.code}), asked for {name}: correct the endpoint, or have its "
                f"certificate issued again, or name the file of the certificate's authority in {self.trust_variable}"
            )
        answer = f"{self.endpoint} responded with {failure}"
        if failure.code == self.missing_code:
            return errors.StorageBucketNotFoundError(
                f"the {self.bucket_kind} {self.bucket} ({self.use.place}) does not exist: {answer}, asked for {name}; "
                f"correct its name, or create the {self.bucket_kind}"
            )
        if failure.code in _ARCHIVED:
            return errors.StorageError(
                f"{name} is in an archive class: {answer}. Restore it, and let no lifecycle rule archive such objects"
            )
        if failure.status in (401, 403) or failure.code in self.access_codes:
            hint = self.grant_hint(failure, name, listing=listing) + self.access_hint()
            return errors.StorageAccessError(f"no access to {name}: {answer}; {hint}")
        if failure.status == 404:
            return errors.StorageObjectNotFoundError(f"{name} does not exist: {answer}")
        return errors.StorageError(f"{answer}, asked for {name}")

    def unreachable(self, name: str) -> str:
        """Return an error message with the address that could not be reached, and the option that sets it.

        Args:
            name: full name of the object.
        """
        return f"{self.endpoint} (option {self.use.prefix}{self.endpoint_option}) could not be reached for {name}"


class CloudStore(WritableStore):
    """Object store over the objects in one bucket or container whose keys begin with `root`.

    Args:
        service: access to the bucket or container.
        root: beginning of the objects' keys; it is empty or ends with a slash.
    """

    def __init__(self, service: Service, root: str) -> None:
        self._service = service
        self._clients: dict[tuple[float, bool], Client] = {}
        """Clients by time limit in seconds and by use (true: uploads); replaced when clients need other settings."""
        self._root = root
        self._timeouts = timeouts = service.timeouts
        self._seconds = timeouts.total_ms / 1000
        self._attempts = Attempts(timeouts, lambda name, _: service.unreachable(name))
        self._learning = Lock()

    def get(self, key: str, extent: ByteRange | Limit) -> bytes:
        def read(client: Client) -> memoryview:
            if isinstance(extent, Limit):
                answer = obstore.get(client, self._path(key))
                wanted = range_in(extent, answer.meta["size"], self.describe(key))
            else:
                answer = obstore.get(client, self._path(key), options={"range": (extent.start, extent.end)})
                wanted = extent
            return in_one_buffer(answer.stream(min_chunk_size=_CHUNK_BYTES), wanted, self.describe(key))

        if isinstance(extent, Limit):
            return bytes(self._send(key, read))
        if not extent:
            return b""
        try:
            return self._send(key, read)  # type: ignore[return-value] # readers use it like bytes
        except _UnexpectedResponseError as error:
            if (size := self.size(key)) < extent.end:  # services differ in their responses to such a range
                raise too_short(self.describe(key), extent, size) from None
            raise errors.StorageError(str(error)) from None

    def size(self, key: str) -> int:
        return self._send(key, lambda client: obstore.head(client, self._path(key))["size"])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        # obstore lists only whole folders. So the listing starts after a key that sorts just before the prefix.
        folder = self._root + prefix[: prefix.rfind("/") + 1]
        start = after if after >= prefix else _just_before(prefix)
        offset = start and self._root + start
        pages: Iterator[Sequence[ObjectMeta]] | None = None
        seen = _ListingProgress(self._service.orders, after)

        def next_page(client: Client) -> Sequence[ObjectMeta] | None:
            nonlocal pages
            # After an error, obstore's iterator is at its end, so a new iterator lists the rest of the keys.
            current, pages = pages or iter(obstore.list(client, folder or None, offset=offset or None)), None
            page = next(current, None)
            pages = current
            return page

        while page := self._send(prefix, next_page, listing=True):
            for entry in page:
                key = entry["path"].removeprefix(self._root)
                if seen.is_new(key):
                    offset = entry["path"]
                    if key.startswith(prefix):
                        yield key
                    elif seen.is_beyond(prefix):
                        return

    def delete(self, key: str) -> None:
        try:
            self._send(key, lambda client: obstore.delete(client, self._path(key)))
        except errors.StorageBucketNotFoundError:
            raise
        except errors.StorageObjectNotFoundError:
            pass  # an attempt whose response was lost has deleted it, or somebody else

    def _write(self, key: str, data: bytes | mmap, *, overwrite: bool) -> bool:
        def write(client: Client) -> bool:
            try:  # by one PUT, so that no part of an object remains if an upload fails
                obstore.put(
                    client, self._path(key), data, mode="overwrite" if overwrite else "create", use_multipart=False
                )
            except AlreadyExistsError:
                if overwrite:
                    raise
                return False
            return True

        return self._send(key, write, upload_seconds=_upload_seconds(len(data)))

    def _path(self, key: str) -> str:
        """Return the object's key in the bucket. Raises ConfigurationError if obstore cannot read such a key."""
        path = self._root + key
        if "" in path.split("/"):
            raise errors.ConfigurationError(
                f"{self.describe(key)}: the key {path!r} begins with a slash or has two slashes in a row, and objects "
                "with such keys cannot be read. Correct the key prefix, or copy the objects to a prefix without them"
            )
        return path

    def describe(self, key: str) -> str:
        return f"{self._service.uri}/{self._root}{key}"

    def signed_url(self, key: str, seconds: int) -> str | None:
        service, lifetime = self._service, timedelta(seconds=seconds)
        if not service.can_sign:
            return None
        if service.before_signing():
            self._clients = {}

        def sign(client: Client) -> str | None:
            return obstore.sign(client, "GET", self._path(key), lifetime) if service.can_sign else None

        return self._send(key, sign)  # only the credentials of an opened client may show that they cannot sign

    def signing_seconds_left(self) -> float:
        return self._service.signing_seconds_left()

    def slow_down_responses(self) -> int:
        return self._attempts.slow_down_responses

    def _limit(self, seconds: float) -> float:
        """Return the time limit of the client for an attempt that should take at most `seconds`.

        There are clients with four time limits: the time limit of a whole request, and half, a quarter and an eighth of
        it. The result is the longest limit that exceeds `seconds` by at most 1 %, or else an eighth. The 1 % is for the
        time between the start of the request and the start of its first attempt.
        """
        limit = self._seconds
        while limit > seconds * 1.01 and limit > self._seconds / _SMALLEST_SHARE:
            limit /= 2
        return limit

    def _send(self, key: str, request: Callable[[Client], T], *, listing: bool = False, upload_seconds: float = 0) -> T:
        """Return the result of `request`, which is called with a client for each attempt.

        `key` is the key of the requested object, for errors. `listing` is true if the request is to list keys.
        `upload_seconds` is the time limit of each attempt to write an object, and 0 for other requests. After a
        failure, `request` is called again with a new client if the service knows better settings for clients now, such
        as the bucket's region (`Service.shows_other_settings`). It is also called again if another thread has replaced
        the clients since the attempt began.
        """
        check_process()
        self.before_request()
        clients = self._clients

        def attempt(seconds_left: float) -> T:
            nonlocal clients
            began, clients = time.monotonic(), self._clients
            kind = upload_seconds or self._limit(seconds_left), upload_seconds > 0
            if kind not in clients:
                clients[kind] = self._service.connect(kind[0], is_upload=kind[1])
            try:
                return request(clients[kind])
            except errors.TieredStreamError:
                raise
            except (BaseError, OSError, ValueError) as error:
                failure = failure_of(error)
            if failure.kind is FailureKind.TIMEOUT and (time.monotonic() - began) * 1000 < self._timeouts.read_ms:
                failure.kind = FailureKind.CONNECT_TIMEOUT  # obstore has one kind of timeout
            raise failure

        def shows_other_settings(failure: AttemptError) -> bool:
            with self._learning:
                if clients is self._clients and self._service.shows_other_settings(failure):
                    self._clients = {}
                return clients is not self._clients

        name = self.describe(key)
        try:
            seconds = UPLOAD_SECONDS if upload_seconds else None
            return self._attempts.send(name, attempt, shows_other_settings, seconds)
        except AttemptError as failure:
            if failure.kind is FailureKind.OTHER or failure.status == 416:
                raise _UnexpectedResponseError(f"the request for {name} failed: the service gave {failure}") from None
            raise self._service.refused(failure, name, listing=listing) from None


def _upload_seconds(size: int) -> float:
    """Return the time limit in seconds of one attempt to upload `size` bytes: `UPLOAD_SECONDS`, or a share of it.

    A smaller object has less time, so that a silent service is noticed earlier. There are only four time limits,
    because there is a client for each.
    """
    return UPLOAD_SECONDS / next((share for share in (8, 4, 2) if size * share <= _LARGE_UPLOAD_BYTES), 1)


class _UnexpectedResponseError(errors.StorageError):
    """Error for a response with status 416, or a response that obstore does not accept."""


class _ListingProgress:
    """Progress of a listing of keys, whose order is not known at first and follows from the listed keys.

    Args:
        orders: possible orders, as functions from a key to its sort key.
        after: key after which the listing begins.
    """

    def __init__(self, orders: Sequence[Callable[[str], Any]], after: str) -> None:
        self._orders = orders
        self._after = self._last = after
        self._has_listed = False

    def is_new(self, key: str) -> bool:
        """Record `key`, the next listed key, and return whether it comes after `after` and was not listed before.

        A key is listed again if the listing was started again after an error.
        """
        rising = [order for order in self._orders if order(key) > order(self._last)]
        if rising:
            self._orders = rising if self._has_listed else self._orders
            self._last, self._has_listed = key, True
        return bool(rising) and any(order(key) > order(self._after) for order in self._orders)

    def is_beyond(self, prefix: str) -> bool:
        """Return whether the last listed key comes after all keys that begin with `prefix`, in every possible order."""
        return all(order(self._last) > order(prefix) for order in self._orders)


def _just_before(prefix: str) -> str:
    """Return a key just before all keys that begin with `prefix`; a listing that starts after this key has all of them.

    The result is empty if `prefix` is empty or ends with a slash, because obstore then lists exactly this folder.
    """
    return "" if prefix.endswith("/") else prefix and prefix[:-1] + chr(ord(prefix[-1]) - 1) + "\U0010ffff"
