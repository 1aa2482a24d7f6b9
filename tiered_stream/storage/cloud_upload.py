"""Uploads of whole objects to an object store, by means of obstore.

Each object is uploaded by one PUT, so that no part of an object remains if an upload fails. obstore repeats an attempt
that may pass. A process that has uploaded must not fork, because obstore's threads do not survive a fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from tiered_stream.errors import StorageError, StorageUnavailableError
from tiered_stream.storage.cloud_store import Failure, FailureKind, Service
from tiered_stream.storage.object_store import ATTEMPTS

if TYPE_CHECKING:
    from mmap import mmap

ATTEMPT_SECONDS = 900
"""Time limit of one attempt of an upload, in seconds."""


class CloudUploader:
    """Writer of objects to a bucket or container. Many threads may use it.

    Methods raise StorageError if a request fails. The text of the error has neither credentials nor signatures.
    """

    def __init__(self, service: Service) -> None:
        """Raise StorageAccessError if there are no credentials."""
        self._service = service
        client = service.client_options(ATTEMPT_SECONDS)
        del client["read_timeout"]  # it would count from the start of an upload
        self._client = service.open(client, ATTEMPTS - 1)

    def put(self, key: str, data: bytes | mmap) -> None:
        """Upload an object, which replaces an object of the same key."""
        try:
            obstore.put(self._client, key, data, use_multipart=False)
        except (BaseError, OSError, ValueError) as error:
            raise self._error(error, key) from None

    def create(self, key: str, data: bytes) -> bool:
        """Upload an object if there is no object of this key; return whether it was uploaded."""
        try:
            obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, OSError, ValueError) as error:
            raise self._error(error, key) from None
        return True

    def delete(self, key: str) -> None:
        """Delete an object."""
        try:
            obstore.delete(self._client, key)
        except (BaseError, OSError, ValueError) as error:
            raise self._error(error, key) from None

    def _error(self, error: Exception, key: str) -> StorageError:
        """Return the error to raise for obstore's `error`, whose own text may have signatures."""
        failure, name = Failure.of(error), f"{self._service.uri}/{key}"
        if failure.kind is FailureKind.STATUS and not failure.may_pass:
            return self._service.refused(failure, name, listing=False)
        if failure.kind is FailureKind.UNREACHABLE:
            return StorageUnavailableError(self._service.unreachable(name))
        if failure.may_pass:
            return StorageUnavailableError(f"{ATTEMPTS} attempts of a request for {name} failed: {failure}")
        return StorageError(f"the request for {name} failed: {failure}")
