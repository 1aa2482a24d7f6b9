"""Service of `cloud_store` for Azure Blob Storage: it opens a container's client, and builds error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from obstore.store import AzureStore

from tiered_stream.errors import StorageError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, azure_place
from tiered_stream.storage.cloud_store import Failure, client_options, refusal
from tiered_stream.storage.cloud_upload import upload_options
from tiered_stream.storage.request_time import RequestTimeouts

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, RetryConfig


class AzureContainer:
    """Implementation of `cloud_store.Service` for one container."""

    def __init__(self, options: StorageOptions, use: StoreUse = SEGMENTS) -> None:
        """Read account, endpoint and credentials from the options.

        Raises:
            ConfigurationError: no account is named, or the connection string is malformed.
        """
        self._place = place = azure_place(options, use)
        self._use = use
        self.uri = f"az://{place.container}"
        self._timeouts = RequestTimeouts.of(options)
        self._config = cast("AzureConfig", place.config())

    def connect(self, seconds: float) -> AzureStore:
        return self._open(client_options(self._timeouts, seconds, self._place.endpoint), retries=0)

    def connect_to_upload(self, seconds: float, attempts: int) -> AzureStore:
        return self._open(upload_options(self._timeouts, seconds, self._place.endpoint), retries=attempts - 1)

    def _open(self, client: ClientConfig, retries: int) -> AzureStore:
        retry: RetryConfig = {"max_retries": retries}
        return AzureStore(self._place.container, config=self._config, client_options=client, retry_config=retry)

    def learns_from(self, failure: Failure) -> bool:
        return False

    def refused(self, failure: Failure, name: str, *, listing: bool) -> StorageError:
        use = self._use
        hint = (
            f"check {use.prefix}azure.account.key, {use.prefix}azure.sas.token or "
            f"{use.prefix}azure.connection.string{use.otherwise}, or where they are not given Azure's own chain "
            f"(environment, workload identity, managed identity) and the role {use.azure_role}"
        )
        return refusal(
            failure, name, endpoint=self._place.endpoint, container=f"container {self._place.container}",
            place=use.place, missing_code="ContainerNotFound", credentials_hint=hint,
        )  # fmt: skip

    def unreachable(self, name: str) -> str:
        option = f"option {self._use.prefix}azure.endpoint.url"
        return f"{self._place.endpoint} ({option}) could not be reached for {name}"
