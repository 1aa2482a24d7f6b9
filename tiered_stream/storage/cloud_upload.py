"""Uploads of whole objects to Google Cloud Storage or Azure Blob Storage, by means of obstore.

Each object is uploaded by one PUT, so that no part of an object remains if an upload fails. obstore repeats an attempt
that may pass. A process that has uploaded must not fork, because obstore's threads do not survive a fork.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from tiered_stream.errors import StorageError, StorageUnavailableError
from tiered_stream.storage.cloud_store import Failure, FailureKind, Service
from tiered_stream.storage.object_store import ATTEMPTS
from tiered_stream.storage.request_time import RequestTimeouts

if TYPE_CHECKING:
    from mmap import mmap

    from obstore.store import AzureStore, ClientConfig, GCSStore

ATTEMPT_SECONDS = 900
"""Time limit of one attempt of an upload, in seconds."""


class UploadService(Service, Protocol):
    """Service that can also open clients for uploads."""

    def connect_to_upload(self, seconds: float, attempts: int) -> AzureStore | GCSStore:
        """Return a new client for uploads, without sending a request.

        Args:
            seconds: time limit of each attempt.
            attempts: maximum number of attempts, which the client itself makes.

        Raises:
            StorageAccessError: there are no credentials.
        """


def upload_options(timeouts: RequestTimeouts, seconds: float, url: str) -> ClientConfig:
    """Return the options of a client that uploads to `url`, with a time limit of `seconds` for each attempt.

    There is no read timeout, because it would count from the start of an upload.
    """
    return {
        "allow_http": urlsplit(url).scheme == "http",
        "connect_timeout": timedelta(milliseconds=timeouts.connect_ms),
        "timeout": timedelta(seconds=seconds),
    }


class CloudUploader:
    """Writer of objects to a bucket or container. Many threads may use it.

    Methods raise StorageError if a request fails. The text of the error has neither credentials nor signatures.
    """

    def __init__(self, service: UploadService) -> None:
        """Raise StorageAccessError if there are no credentials."""
        self._service = service
        self._client = service.connect_to_upload(ATTEMPT_SECONDS, ATTEMPTS)

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
