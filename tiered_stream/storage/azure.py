"""Service of `cloud_store` for Azure Blob Storage."""

from __future__ import annotations

from obstore.store import AzureStore

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, azure_place
from tiered_stream.storage.cloud_store import Service


class AzureContainer(Service):
    """One container as a service of `cloud_store`."""

    client_class, endpoint_option = AzureStore, "azure.endpoint.url"
    bucket_kind, missing_code = "container", "ContainerNotFound"

    def __init__(self, options: StorageOptions, use: StoreUse = SEGMENTS) -> None:
        """Read account, endpoint and credentials from the options.

        Raises:
            ConfigurationError: no account is named, or the connection string is malformed.
        """
        place = azure_place(options, use)
        super().__init__(options, "az", place.container, place.endpoint, use, place.config)

    def access_hint(self) -> str:
        use = self.use
        return (
            f"check {use.prefix}azure.account.key, {use.prefix}azure.sas.token or "
            f"{use.prefix}azure.connection.string{use.otherwise}, or where they are not given Azure's own chain "
            f"(environment, workload identity, managed identity) and the role {use.azure_role}"
        )
