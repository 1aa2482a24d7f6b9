"""HTTP connections of botocore with a time limit for each GET.

A MemoryError of this process is raised unchanged, which botocore would turn into an HTTPClientError.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection

from tiered_stream.storage.object_store import MAX_CONNECTIONS
from tiered_stream.storage.request_time import (
    RequestTime,
    RequestTimeouts,
    TimedConnection,
    TimedTlsConnection,
    timed_pools,
)

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
    from botocore.session import Session


class S3Connections(URLLib3Session):
    """Time-limited connections to `endpoint_url`, set up like the connections of a client of `session`.

    (botocore: `EndpointCreator`.)
    """

    def __init__(
        self, session: Session, endpoint_url: str, timeouts: RequestTimeouts, request_time: RequestTime
    ) -> None:
        verify = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE", True)
        super().__init__(
            verify=verify,  # type: ignore[arg-type]  # or a path
            proxies=get_environ_proxies(endpoint_url),
            timeout=(timeouts.connect_ms / 1000, timeouts.read_ms / 1000),  # type: ignore[arg-type]  # or a pair
            max_pool_connections=MAX_CONNECTIONS,
            socket_options=HTTPConnection.default_socket_options,
        )
        self._timed_pools = timed_pools(request_time, TimedConnection, TimedTlsConnection)

    def _get_connection_manager(self, url: str, proxy_url: str | None = None) -> PoolManager:
        """Return botocore's pool manager, changed so that it opens our connections.

        botocore has no option for the class of connections. Its own class differs from urllib3's only for uploads.
        """
        manager: PoolManager = super()._get_connection_manager(url, proxy_url)  # type: ignore[misc]
        manager.pool_classes_by_scheme = self._timed_pools
        return manager

    def send(self, request: AWSRequest | AWSPreparedRequest) -> AWSResponse:
        """Send the request and return the response. Raises: botocore's connection errors, and MemoryError."""
        try:
            return super().send(request)
        except HTTPClientError as error:
            if isinstance(error.__context__, MemoryError):
                raise error.__context__ from None
            raise
