"""Access to a Google Cloud Storage bucket for `cloud_store`: clients with their credentials, and advice in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obstore.store import GCSStore

from tiered_stream.errors import StorageAccessError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.process.caches import file_state
from tiered_stream.storage.attempts import AttemptError, FailureKind
from tiered_stream.storage.cloud_endpoints import SEGMENTS, StoreUse, google_endpoint
from tiered_stream.storage.cloud_store import Service
from tiered_stream.storage.identity.google_identity import BY_GOOGLE_AUTH, GoogleIdentity, google_identity

if TYPE_CHECKING:
    from obstore.store import ClientConfig

    from tiered_stream.storage.identity.access_tokens import TokenSource


class GoogleBucket(Service):
    """Access to one Google Cloud Storage bucket, as `CloudStore` needs it."""

    client_class, endpoint_option = GCSStore, "gcs.endpoint.url"

    def __init__(self, options: StorageOptions, bucket: str, use: StoreUse = SEGMENTS) -> None:
        self._options = options
        self._key_file: tuple[str, object] = ("", None)
        """Path of the file with the last client's credentials, and its `file_state` when the client was made."""
        super().__init__(options, "gs", bucket, google_endpoint(options), use)

    def prepare(self, client: ClientConfig) -> None:
        identity = self._identity()
        self._key_file = identity.path, file_state(identity.path)
        self.config = {"base_url": self.endpoint, **identity.for_obstore()}
        self.credential_provider = identity.tokens(self.timeouts)
        self.can_sign = identity.kind not in BY_GOOGLE_AUTH

    def tokens(self) -> TokenSource | None:
        return self._identity().tokens(self.timeouts)

    def _identity(self) -> GoogleIdentity:
        try:
            return google_identity(self._options, self.use.prefix)
        except StorageAccessError as error:
            raise StorageAccessError(f"no credentials for {self.uri}: {error}; {self.access_hint()}") from None

    def shows_other_settings(self, failure: AttemptError) -> bool:
        path, state = self._key_file
        is_refused = failure.status in (401, 403) or failure.kind is FailureKind.CREDENTIALS
        if is_refused and file_state(path) != state:
            return True  # the key was replaced
        return super().shows_other_settings(failure)

    def access_hint(self) -> str:
        use = self.use
        return (
            f"check {use.prefix}gcs.credentials.path or {use.prefix}gcs.credentials.json{use.otherwise}, or where they "
            f"are not given Google's application default credentials, and the role {use.google_role}"
        )
