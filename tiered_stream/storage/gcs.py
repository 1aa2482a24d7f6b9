"""Service of `cloud_store` for Google Cloud Storage: it opens a bucket's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from obstore.exceptions import BaseError
from obstore.store import GCSStore

from tiered_stream.errors import StorageAccessError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, google_config, google_endpoint
from tiered_stream.storage.cloud_store import Service

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSConfig, RetryConfig


class GoogleBucket(Service):
    """One bucket as a service of `cloud_store`."""

    endpoint_option = "gcs.endpoint.url"

    def __init__(self, options: StorageOptions, bucket: str, use: StoreUse = SEGMENTS) -> None:
        super().__init__(options, "gs", bucket, google_endpoint(options), use)
        self._config = cast("GCSConfig", google_config(options))

    def open(self, client: ClientConfig, retries: int) -> GCSStore:
        retry: RetryConfig = {"max_retries": retries}
        try:
            return GCSStore(self.bucket, config=self._config, client_options=client, retry_config=retry)
        except BaseError:
            # obstore's own message may show the credentials' text.
            raise StorageAccessError(f"no credentials for {self.uri}: {self.access_hint()}") from None

    def access_hint(self) -> str:
        use = self.use
        return (
            f"check {use.prefix}gcs.credentials.path or {use.prefix}gcs.credentials.json{use.otherwise}, or where they "
            f"are not given Google's application default credentials, and the role {use.google_role}"
        )
