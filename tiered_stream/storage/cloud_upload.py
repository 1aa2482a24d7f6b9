"""Uploads of whole objects to Google Cloud Storage or Azure Blob Storage, by means of obstore.

Each object is uploaded by one PUT, so that no part of an object remains if an upload fails. obstore repeats an attempt
that may pass. A process that has uploaded must not fork, because obstore's threads do not survive a fork.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from tiered_stream.errors import StorageError, StorageUnavailableError
from tiered_stream.storage.cloud_store import Failure, FailureKind, Service
from tiered_stream.storage.object_store import ATTEMPTS

if TYPE_CHECKING:
    from mmap import mmap

    from obstore.store import AzureStore, ClientConfig, GCSStore

ATTEMPT_SECONDS = 900
"""Time limit of one attempt of an upload, in seconds."""


class UploadService(Service):
    """Service that can also open clients for uploads."""

    @abstractmethod
    def open(self, client: ClientConfig, retries: int) -> AzureStore | GCSStore:
        """Return a new client with these options, without sending a request.

        Args:
            client: obstore's options of the client.
            retries: number of times that the client repeats a failed attempt.

        Raises:
            StorageAccessError: there are no credentials.
        """

    def connect(self, seconds: float) -> AzureStore | GCSStore:
        return self.open(self.client_options(seconds), retries=0)

    def connect_to_upload(self, seconds: float, attempts: int) -> AzureStore | GCSStore:
        """Return a new client for uploads, without sending a request.

        It has no read timeout, because that would count from the start of an upload.

        Args:
            seconds: time limit of each attempt.
            attempts: maximum number of attempts, which the client itself makes.

        Raises:
            StorageAccessError: there are no credentials.
        """
        options = self.client_options(seconds)
        del options["read_timeout"]
        return self.open(options, retries=attempts - 1)


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
