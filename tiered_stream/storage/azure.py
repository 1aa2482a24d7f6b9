"""Service of `cloud_store` for Azure Blob Storage: it opens a container's client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obstore.store import AzureStore

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import azure_place
from tiered_stream.storage.cloud_store import Service

if TYPE_CHECKING:
    from obstore.store import AzureConfig


class AzureContainer(Service):
    """One container as a `cloud_store.Service`."""

    bucket_kind, missing_code = "container", "ContainerNotFound"
    endpoint_option = "remote.storage.azure.endpoint.url"
    credentials_hint = (
        "check remote.storage.azure.account.key, remote.storage.azure.sas.token or "
        "remote.storage.azure.connection.string, or where they are not given Azure's own chain (environment, workload "
        "identity, managed identity) and the role Storage Blob Data Reader"
    )

    def __init__(self, options: StorageOptions) -> None:
        """Read account, endpoint and credentials from the options.

        Raises:
            ConfigurationError: no account is named, or the connection string is malformed.
        """
        place = azure_place(options)
        super().__init__(options, "az", place.container, place.endpoint)
        self._config: AzureConfig = {"account_name": place.account, "endpoint": place.endpoint}
        if place.key:
            self._config["account_key"] = place.key
        elif place.sas_token:
            self._config["sas_key"] = place.sas_token

    def connect(self, seconds: float) -> AzureStore:
        return AzureStore(
            self.bucket,
            config=self._config,
            client_options=self.client_options(seconds),
            retry_config={"max_retries": 0},
        )
