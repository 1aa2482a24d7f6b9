"""Service of `cloud_store` for Google Cloud Storage: it opens a bucket's client, and builds error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from obstore.exceptions import BaseError
from obstore.store import GCSStore

from tiered_stream.errors import (
    StorageAccessError,
    StorageError,
)
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, google_config, google_endpoint
from tiered_stream.storage.cloud_store import Failure, client_options, refusal
from tiered_stream.storage.cloud_upload import upload_options
from tiered_stream.storage.request_time import RequestTimeouts

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSConfig, RetryConfig


class GoogleBucket:
    """Implementation of `cloud_store.Service` for one bucket."""

    def __init__(self, options: StorageOptions, bucket: str, use: StoreUse = SEGMENTS) -> None:
        self.uri = f"gs://{bucket}"
        self._bucket = bucket
        self._use = use
        self._timeouts = RequestTimeouts.of(options)
        self._endpoint = google_endpoint(options)
        self._config = cast("GCSConfig", google_config(options))

    def connect(self, seconds: float) -> GCSStore:
        return self._open(client_options(self._timeouts, seconds, self._endpoint), retries=0)

    def connect_to_upload(self, seconds: float, attempts: int) -> GCSStore:
        return self._open(upload_options(self._timeouts, seconds, self._endpoint), retries=attempts - 1)

    def _open(self, client: ClientConfig, retries: int) -> GCSStore:
        retry: RetryConfig = {"max_retries": retries}
        try:
            return GCSStore(self._bucket, config=self._config, client_options=client, retry_config=retry)
        except BaseError:
            # obstore's own message may show the credentials' text.
            raise StorageAccessError(f"no credentials for {self.uri}: {self._credentials_hint()}") from None

    def learns_from(self, failure: Failure) -> bool:
        return False

    def refused(self, failure: Failure, name: str, *, listing: bool) -> StorageError:
        return refusal(
            failure, name, endpoint=self._endpoint, container=f"bucket {self._bucket}", place=self._use.place,
            missing_code="NoSuchBucket", credentials_hint=self._credentials_hint(),
        )  # fmt: skip

    def unreachable(self, name: str) -> str:
        option = f"option {self._use.prefix}gcs.endpoint.url"
        return f"{self._endpoint} ({option}) could not be reached for {name}"

    def _credentials_hint(self) -> str:
        use = self._use
        return (
            f"check {use.prefix}gcs.credentials.path or {use.prefix}gcs.credentials.json{use.otherwise}, or where they "
            f"are not given Google's application default credentials, and the role {use.google_role}"
        )
