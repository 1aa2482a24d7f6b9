"""From options to who says what a topic holds: its offsets, and where its tiered segments are."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.offsets import BrokerOffsetReader
from tiered_stream.broker.open import open_client
from tiered_stream.errors import BrokerError
from tiered_stream.fetch.plugin import fetcher_for
from tiered_stream.locate.archive import ArchiveLocator
from tiered_stream.locate.archive_offsets import ArchiveOffsetReader
from tiered_stream.locate.archived import open_archive
from tiered_stream.locate.base import Locator
from tiered_stream.locate.metadata_topic import MetadataTopicLocator
from tiered_stream.locate.prefer_local import PreferLocal
from tiered_stream.locate.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from tiered_stream.locate.storage_check import CheckedStorage
from tiered_stream.offsets import OffsetReader
from tiered_stream.options import Options

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tier:
    """Who tells the offsets of partitions, and who locates their tiered segments (None: all is left to the brokers)."""

    offset_reader: OffsetReader
    locator: Locator | None

    def close(self) -> None:
        """Let go of connections."""
        if self.locator is not None:
            self.locator.close()
        self.offset_reader.close()


def open_tier(options: Options) -> Tier:
    """What the options `remote.log.locator` and `remote.prefer` ask for.

    Raises:
        ConfigurationError: the storage or the brokers are not configured well.
        BrokerError: the brokers cannot be asked.
    """
    if options.locator == "archive":
        return _open_archive(options)
    client = open_client(options.kafka)
    offset_reader = BrokerOffsetReader(client, options.isolation_level)
    locator = _locator(options, client)
    log.info("remote.log.locator=%s: segments are located by %s", options.locator, locator.name if locator else "none")
    if locator is not None and options.prefer == "local":
        locator = PreferLocal(locator, offset_reader)
    return Tier(offset_reader, locator)


def _open_archive(options: Options) -> Tier:
    archive, fetcher = open_archive(options.storage, options.topic_ids), fetcher_for(options)
    locator = ArchiveLocator(archive, fetcher, options.isolation_level)
    log.info("remote.log.locator=archive: topics, offsets and segments come from the manifests in the storage")
    return Tier(ArchiveOffsetReader(archive, fetcher, options.isolation_level), CheckedStorage(locator, fetcher))


def _locator(options: Options, client: BrokerClient) -> Locator | None:
    if options.locator == "none" or (options.locator == "auto" and not _can_follow(options, client)):
        return None
    fetcher = fetcher_for(options)
    locator = MetadataTopicLocator(client, fetcher, options.isolation_level, options.topic_ids)
    return CheckedStorage(locator, fetcher)


def _can_follow(options: Options, client: BrokerClient) -> bool:
    """Whether the metadata topic and a storage are there; says why not."""
    if options.storage.uri is None and options.fetcher_class is None:
        log.warning("everything is read through the brokers: no remote.storage.uri says where tiered segments are")
        return False
    try:
        client.metadata([REMOTE_LOG_METADATA_TOPIC])
    except BrokerError as error:
        if error.retriable:
            raise
        log.warning("everything is read through the brokers: %s cannot be read: %s", REMOTE_LOG_METADATA_TOPIC, error)
        return False
    return True
