"""Access to an Azure Blob Storage container for `cloud_store`: clients with their credentials, and advice in errors."""

from __future__ import annotations

from obstore.store import AzureStore

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, azure_place
from tiered_stream.storage.cloud_store import Service
from tiered_stream.storage.identity.access_tokens import token_source
from tiered_stream.storage.identity.azure_identity import Kind


class AzureContainer(Service):
    """Access to one Azure Blob Storage container, as `CloudStore` needs it."""

    client_class, endpoint_option = AzureStore, "azure.endpoint.url"
    bucket_kind, missing_code = "container", "ContainerNotFound"
    orders = (str, lambda key: key.split("/"))  # in a hierarchical namespace, `a/b` comes before `a-b/c`

    def __init__(self, options: StorageOptions, use: StoreUse = SEGMENTS) -> None:
        """Read account, endpoint and credentials from the options.

        Raises:
            ConfigurationError: an option is missing or wrong (`azure_place`), or an environment variable would change
                requests.
        """
        place = azure_place(options, use)
        super().__init__(options, "az", place.container, place.endpoint, use)
        self.config = {"account_name": place.account, "endpoint": place.endpoint, **place.identity.for_obstore()}
        self.can_sign = place.identity.kind is not Kind.SIGNATURE  # a shared access signature signs no other one
        request = place.identity.token_request()
        self.credential_provider = request and token_source(request, self.timeouts)

    def access_hint(self) -> str:
        use = self.use
        return (
            f"check {use.prefix}azure.account.key, {use.prefix}azure.sas.token or "
            f"{use.prefix}azure.connection.string{use.otherwise}, or where they are not given Azure's own chain "
            f"(environment, workload identity, managed identity) and the role {use.azure_role}"
        )
