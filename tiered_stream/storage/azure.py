"""Service of `cloud_store` for Azure Blob Storage: it opens a container's client, and builds error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obstore.store import AzureStore

from tiered_stream.errors import (
    StorageError,
)
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import azure_place
from tiered_stream.storage.cloud_store import Failure, client_options, refusal
from tiered_stream.storage.request_time import RequestTimeouts

if TYPE_CHECKING:
    from obstore.store import AzureConfig

_CREDENTIALS_HINT = (
    "check remote.storage.azure.account.key, remote.storage.azure.sas.token or "
    "remote.storage.azure.connection.string, or where they are not given Azure's own chain (environment, workload "
    "identity, managed identity) and the role Storage Blob Data Reader"
)


class AzureContainer:
    """Implementation of `cloud_store.Service` for one container."""

    def __init__(self, options: StorageOptions) -> None:
        """Read account, endpoint and credentials from the options.

        Raises:
            ConfigurationError: no account is named, or the connection string is malformed.
        """
        self._place = place = azure_place(options)
        self.uri = f"az://{place.container}"
        self._timeouts = RequestTimeouts.of(options)
        self._config: AzureConfig = {"account_name": place.account, "endpoint": place.endpoint}
        if place.key:
            self._config["account_key"] = place.key
        elif place.sas_token:
            self._config["sas_key"] = place.sas_token

    def connect(self, seconds: float) -> AzureStore:
        return AzureStore(
            self._place.container,
            config=self._config,
            client_options=client_options(self._timeouts, seconds, self._place.endpoint),
            retry_config={"max_retries": 0},
        )

    def learns_from(self, failure: Failure) -> bool:
        return False

    def refused(self, failure: Failure, name: str, *, listing: bool) -> StorageError:
        return refusal(
            failure, name, endpoint=self._place.endpoint, container=f"container {self._place.container}",
            missing_code="ContainerNotFound", credentials_hint=_CREDENTIALS_HINT,
        )  # fmt: skip

    def unreachable(self, name: str) -> str:
        return f"{self._place.endpoint} (option remote.storage.azure.endpoint.url) could not be reached for {name}"
