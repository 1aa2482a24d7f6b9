"""Uploads of whole objects to an object store, by means of obstore.

Each object is uploaded by one PUT, so that no part of an object remains if an upload fails. obstore repeats an attempt
that may pass. A process that has uploaded must not fork, because obstore's threads do not survive a fork.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from tiered_stream.errors import StorageError, StorageUnavailableError
from tiered_stream.storage.attempts import AttemptError, FailureKind
from tiered_stream.storage.cloud_store import Service, failure_of
from tiered_stream.storage.object_store import ATTEMPTS, UPLOAD_SECONDS

if TYPE_CHECKING:
    from mmap import mmap


class CloudUploader:
    """Writer of objects to a bucket or container. Many threads may use it.

    Methods raise StorageError if a request fails. The text of the error has neither credentials nor signatures.
    """

    def __init__(self, service: Service) -> None:
        """Open a client, without sending a request. Raises StorageAccessError if there are no credentials."""
        self._service = service
        self._connect = partial(service.connect, UPLOAD_SECONDS, ATTEMPTS - 1)
        self._client = self._connect()

    def put(self, key: str, data: bytes | mmap) -> None:
        """Upload an object, which replaces an object of the same key."""
        with self._own_errors(key):
            obstore.put(self._client, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        """Upload an object if there is no object of this key; return whether it was uploaded."""
        with self._own_errors(key), suppress(AlreadyExistsError):
            obstore.put(self._client, key, data, mode="create", use_multipart=False)
            return True
        return False

    def delete(self, key: str) -> None:
        """Delete an object."""
        with self._own_errors(key):
            obstore.delete(self._client, key)

    @contextmanager
    def _own_errors(self, key: str) -> Iterator[None]:
        """Raise StorageError in place of an error of obstore in the `with` block; obstore's text may have signatures.

        If the error shows that other credentials or another region are needed, later requests use them.
        """
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            failure = failure_of(error)
            if self._service.shows_other_settings(failure):
                self._client = self._connect()
            raise self._error(failure, key) from None

    def _error(self, failure: AttemptError, key: str) -> StorageError:
        name = f"{self._service.uri}/{key}"
        if failure.kind in (FailureKind.STATUS, FailureKind.CREDENTIALS, FailureKind.TLS) and not failure.may_pass:
            return self._service.refused(failure, name, listing=False)
        if failure.kind is FailureKind.UNREACHABLE:
            return StorageUnavailableError(self._service.unreachable(name))
        if failure.may_pass:
            return StorageUnavailableError(f"{ATTEMPTS} attempts of a request for {name} failed: {failure}")
        return StorageError(f"the request for {name} failed: {failure}")
