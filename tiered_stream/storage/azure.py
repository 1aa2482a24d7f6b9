"""Service of `cloud_store` for Azure Blob Storage: it opens a container's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from obstore.store import AzureStore

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, azure_place
from tiered_stream.storage.cloud_store import Service

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, RetryConfig


class AzureContainer(Service):
    """One container as a service of `cloud_store`."""

    bucket_kind, missing_code = "container", "ContainerNotFound"
    endpoint_option = "azure.endpoint.url"

    def __init__(self, options: StorageOptions, use: StoreUse = SEGMENTS) -> None:
        """Read account, endpoint and credentials from the options.

        Raises:
            ConfigurationError: no account is named, or the connection string is malformed.
        """
        place = azure_place(options, use)
        super().__init__(options, "az", place.container, place.endpoint, use)
        self._config = cast("AzureConfig", place.config())

    def open(self, client: ClientConfig, retries: int) -> AzureStore:
        retry: RetryConfig = {"max_retries": retries}
        return AzureStore(self.bucket, config=self._config, client_options=client, retry_config=retry)

    def access_hint(self) -> str:
        use = self.use
        return (
            f"check {use.prefix}azure.account.key, {use.prefix}azure.sas.token or "
            f"{use.prefix}azure.connection.string{use.otherwise}, or where they are not given Azure's own chain "
            f"(environment, workload identity, managed identity) and the role {use.azure_role}"
        )
