"""Service of `cloud_store` for Google Cloud Storage: it opens a bucket's client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import GCSStore

from tiered_stream.errors import StorageAccessError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_store import Service

if TYPE_CHECKING:
    from obstore.store import GCSConfig

_GOOGLE = "https://storage.googleapis.com"


class GoogleBucket(Service):
    """One bucket as a `cloud_store.Service`."""

    endpoint_option = "remote.storage.gcs.endpoint.url"
    credentials_hint = (
        "check remote.storage.gcs.credentials.path or remote.storage.gcs.credentials.json, or where they are not given "
        "Google's application default credentials, and the role Storage Object Viewer"
    )

    def __init__(self, options: StorageOptions, bucket: str) -> None:
        super().__init__(options, "gs", bucket, options.gcs_endpoint_url or _GOOGLE)
        self._config: GCSConfig = {"base_url": self.endpoint}
        if options.gcs_credentials_json:
            self._config["service_account_key"] = options.gcs_credentials_json
        elif options.gcs_credentials_path:
            self._config["application_credentials"] = options.gcs_credentials_path

    def connect(self, seconds: float) -> GCSStore:
        try:
            return GCSStore(
                self.bucket,
                config=self._config,
                client_options=self.client_options(seconds),
                retry_config={"max_retries": 0},
            )
        except BaseError:
            # obstore's own message may show the credentials' text.
            raise StorageAccessError(f"no credentials for {self.uri}: {self.credentials_hint}") from None
