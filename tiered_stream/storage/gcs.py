"""Service of `cloud_store` for Google Cloud Storage: it opens a bucket's client, and builds error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import GCSStore

from tiered_stream.errors import (
    StorageAccessError,
    StorageError,
)
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_store import Failure, client_options, refusal
from tiered_stream.storage.request_time import RequestTimeouts

if TYPE_CHECKING:
    from obstore.store import GCSConfig

_GOOGLE = "https://storage.googleapis.com"
_CREDENTIALS_HINT = (
    "check remote.storage.gcs.credentials.path or remote.storage.gcs.credentials.json, or where they are not given "
    "Google's application default credentials, and the role Storage Object Viewer"
)


class GoogleBucket:
    """Implementation of `cloud_store.Service` for one bucket."""

    def __init__(self, options: StorageOptions, bucket: str) -> None:
        self.uri = f"gs://{bucket}"
        self._bucket = bucket
        self._timeouts = RequestTimeouts.of(options)
        self._endpoint = options.gcs_endpoint_url or _GOOGLE
        self._config: GCSConfig = {"base_url": self._endpoint}
        if options.gcs_credentials_json:
            self._config["service_account_key"] = options.gcs_credentials_json
        elif options.gcs_credentials_path:
            self._config["application_credentials"] = options.gcs_credentials_path

    def connect(self, seconds: float) -> GCSStore:
        try:
            return GCSStore(
                self._bucket,
                config=self._config,
                client_options=client_options(self._timeouts, seconds, self._endpoint),
                retry_config={"max_retries": 0},
            )
        except BaseError:
            # obstore's own message may show the credentials' text.
            raise StorageAccessError(f"no credentials for {self.uri}: {_CREDENTIALS_HINT}") from None

    def learns_from(self, failure: Failure) -> bool:
        return False

    def refused(self, failure: Failure, name: str, *, listing: bool) -> StorageError:
        return refusal(
            failure, name, endpoint=self._endpoint, container=f"bucket {self._bucket}",
            missing_code="NoSuchBucket", credentials_hint=_CREDENTIALS_HINT,
        )  # fmt: skip

    def unreachable(self, name: str) -> str:
        return f"{self._endpoint} (option remote.storage.gcs.endpoint.url) could not be reached for {name}"
