"""Service of `cloud_store` for Google Cloud Storage."""

from __future__ import annotations

from obstore.store import GCSStore

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, google_config, google_endpoint
from tiered_stream.storage.cloud_store import Service


class GoogleBucket(Service):
    """One bucket as a service of `cloud_store`."""

    client_class, endpoint_option = GCSStore, "gcs.endpoint.url"

    def __init__(self, options: StorageOptions, bucket: str, use: StoreUse = SEGMENTS) -> None:
        super().__init__(options, "gs", bucket, google_endpoint(options), use, google_config(options))

    def access_hint(self) -> str:
        use = self.use
        return (
            f"check {use.prefix}gcs.credentials.path or {use.prefix}gcs.credentials.json{use.otherwise}, or where they "
            f"are not given Google's application default credentials, and the role {use.google_role}"
        )
