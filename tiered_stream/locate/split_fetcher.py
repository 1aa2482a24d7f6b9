"""Which fetcher reads a split's locations: the user's own, signed URLs, or the configured storage."""

from __future__ import annotations

from collections.abc import Sequence

from tiered_stream.broker.client import open_client
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import RemoteLogSegment, SegmentLocation
from tiered_stream.options.parsing import Options
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import fetcher_for
from tiered_stream.storage.presigned import PresignedFetcher, SignedFetchTimeouts


def split_fetcher(locations: Sequence[SegmentLocation], options: Options) -> RemoteStorageFetcher:
    """A fetcher for these locations. A user's own class goes before signed URLs (KIP-1254: it was configured).

    Raises:
        ConfigurationError: as `fetcher_for`.
    """
    signed = {each.segment.segment_id: each for each in locations if each.signed_url is not None}
    if not signed or options.fetcher_class is not None:
        return fetcher_for(options)

    def renew(segment: RemoteLogSegment) -> str | None:
        locator = BrokerLocator(open_client(options.kafka), options.isolation_level, part_bytes=0)
        return locator.signed_url(signed[segment.segment_id])

    return PresignedFetcher(
        {segment_id: each.signed_url or "" for segment_id, each in signed.items()},
        renew,
        SignedFetchTimeouts(options.storage.connect_timeout_ms, options.storage.read_timeout_ms),
        fetcher_for(options) if options.storage.uri is not None else None,
    )
