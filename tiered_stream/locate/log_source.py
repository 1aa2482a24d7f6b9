"""Functions that open the offset reader and the locator of a query, as the options say."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from tiered_stream.broker.broker_check import meet_brokers
from tiered_stream.broker.client import BrokerClient, open_client, supported_feature
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE, SIGNED_LOCATIONS
from tiered_stream.errors import BrokerAuthorizationError, BrokerError, ConfigurationError
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.metadata_topic.metadata_log import check_readable
from tiered_stream.locate.metadata_topic.metadata_snapshots import open_snapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import PATIENCE_MS, MetadataTopicLocator
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from tiered_stream.locate.storage_failures import StorageCheck
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition
from tiered_stream.options.choices import Fallback, LocatorName, Prefer
from tiered_stream.options.parsing import Options
from tiered_stream.options.remote_options import FALLBACK, LOCATOR, RSM_CONFIG_PREFIX, STORAGE_URI
from tiered_stream.storage.open_fetcher import fetcher_for

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WhyBrokers:
    """Reason why all records are read from the brokers, also tiered records, although the options ask for the storage.

    `reason` is the reason's name in metrics. `text` is the reason in messages.
    """

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class LogSource:
    """Offset reader and locator of one query.

    `locator` finds tiered segments; None: all records are read from the brokers. `why_brokers` is the reason why
    `locator` is None. It is None if there is a locator, or if `remote.log.locator=none` asks for the brokers.
    """

    offset_reader: OffsetReader
    locator: Locator | None
    why_brokers: WhyBrokers | None = None

    def close(self) -> None:
        """Close the locator and the offset reader."""
        if self.locator is not None:
            self.locator.close()
        self.offset_reader.close()


def open_log_source(options: Options, *, warns: bool = True) -> LogSource:
    """Open the offset reader and the locator of a query, which `remote.log.locator` and `remote.prefer` choose.

    If everything is read through the brokers, although the options ask for the storage, and `warns` is true, log a
    warning.

    Raises:
        ConfigurationError: the storage or the brokers are configured wrongly.
        BrokerAuthorizationError: the user is not authorized to READ `__remote_log_metadata`.
        BrokerError: the brokers do not respond, or respond with an error.
    """
    if options.locator is LocatorName.ARCHIVE:
        return _open_archive(options)
    client = open_client(options.kafka)
    meet_brokers(client)
    offset_reader = BrokerOffsetReader(client, options.isolation_level)
    found = _locator(options, client, offset_reader)
    locator, why = (None, found) if isinstance(found, WhyBrokers) else (found, None)
    if why is not None and warns:
        log.warning("everything is read through the brokers: %s", why.text)
    log.info("remote.log.locator=%s: segments are located by %s", options.locator, locator.name if locator else "none")
    return LogSource(offset_reader, locator, why)


def _open_archive(options: Options) -> LogSource:
    # Imported here, so that queries with a cluster start faster.
    from tiered_stream.locate.archive.archive_locator import ArchiveLocator
    from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
    from tiered_stream.locate.archive.archived_partitions import open_archive

    archive, fetcher = open_archive(options.storage, options.topic_ids), fetcher_for(options)
    locator = ArchiveLocator(archive, fetcher, options.isolation_level)
    locator.storage_check = StorageCheck(fetcher, falls_back=True)
    log.info("remote.log.locator=archive: topics, offsets and segments come from the manifests in the storage")
    reader = ArchiveOffsetReader(archive, fetcher, options.isolation_level, options.limits)
    return LogSource(reader, locator)


def _locator(options: Options, client: BrokerClient, offset_reader: BrokerOffsetReader) -> Locator | WhyBrokers | None:
    if options.locator in (LocatorName.AUTO, LocatorName.BROKER):
        broker_locator = _broker_locator(options, client)
        if broker_locator is not None:
            return broker_locator
    if options.locator is LocatorName.NONE:
        return None
    why_brokers = _why_no_metadata_topic(options, client) if options.locator is LocatorName.AUTO else None
    if why_brokers is not None:
        return why_brokers
    fetcher = fetcher_for(options)
    falls_back = options.fallback is Fallback.BROKER
    patience_ms = PATIENCE_MS if falls_back else None
    locator = MetadataTopicLocator(
        client, fetcher, options.isolation_level, falls_back=falls_back, patience_ms=patience_ms,
        snapshots=open_snapshots(options.metadata_snapshot_dir),
    )  # fmt: skip
    locator.storage_check = StorageCheck(fetcher, falls_back=falls_back)
    if options.prefer is Prefer.LOCAL:
        locator.limit = partial(not_local, offset_reader, patience_ms)
    return locator


def _broker_locator(options: Options, client: BrokerClient) -> Locator | None:
    """Return the locator of KIP-1248 if it can be used; None if it cannot, and `remote.log.locator` is `auto`.

    It can be used if the brokers support KIP-1248. In addition, the brokers must send signed URLs, or the options must
    name a storage.

    Raises:
        ConfigurationError: it cannot be used, and `remote.log.locator` is `broker`.
    """
    version, readable = supported_feature(client, LOCATION_FEATURE), _has_fetcher(options)
    if version >= SIGNED_LOCATIONS or (version and readable):
        falls_back = options.fallback is Fallback.BROKER
        locator = BrokerLocator(
            client, options.isolation_level, part_bytes=options.split_bytes, local_too=options.prefer is Prefer.TIERED,
            signed_only=not readable, falls_back=falls_back,
        )  # fmt: skip
        if readable:
            locator.storage_check = StorageCheck(fetcher_for(options), falls_back=falls_back)
        return locator
    if options.locator is LocatorName.AUTO:
        return None
    if version:
        raise ConfigurationError(
            f"option {LOCATOR.name}: the brokers' locations are not signed, so {STORAGE_URI.name} must say where the "
            "storage is"
        )
    raise no_location_feature()


def no_location_feature() -> ConfigurationError:
    """Return the error for `remote.log.locator=broker` with brokers that do not support KIP-1248."""
    return ConfigurationError(
        f"option {LOCATOR.name}: broker needs brokers that say where segments are (feature {LOCATION_FEATURE}): stock "
        "brokers do not. Point kafka.bootstrap.servers at a gateway, or use metadata-topic"
    )


def _has_fetcher(options: Options) -> bool:
    """Return whether a storage or a fetcher class is configured."""
    return options.storage.uri is not None or options.fetcher_class is not None


def _why_no_metadata_topic(options: Options, client: BrokerClient) -> WhyBrokers | None:
    """Return the reason if no storage is configured, or if `__remote_log_metadata` cannot be read; else None.

    Raises:
        BrokerAuthorizationError: the user is not authorized to READ the topic, and has not asked for a fallback.
        BrokerError: the error is retriable.
    """
    if not _has_fetcher(options):
        fix = f"Set it, or copy the brokers' own {RSM_CONFIG_PREFIX.default}*"
        return WhyBrokers("no_storage", f"no {STORAGE_URI.name} says where tiered segments are. {fix}")
    try:
        check_readable(client)
    except BrokerAuthorizationError as error:
        if not options.asks_for_fallback:
            raise BrokerAuthorizationError(
                f"{REMOTE_LOG_METADATA_TOPIC} cannot be read: {error}. Grant READ and DESCRIBE on the topic "
                f"{REMOTE_LOG_METADATA_TOPIC}, or use a gateway. To let the brokers send everything, set "
                f"{FALLBACK.name}={Fallback.BROKER}"
            ) from error
        return _no_metadata(error)
    except BrokerError as error:
        if error.retriable:
            raise
        return _no_metadata(error)
    return None


def _no_metadata(error: BrokerError) -> WhyBrokers:
    return WhyBrokers("no_metadata", f"{REMOTE_LOG_METADATA_TOPIC} cannot be read: {error}")


def not_local(
    reader: BrokerOffsetReader, patience_ms: int | None, ranges: PartitionRanges
) -> dict[TopicPartition, OffsetRange]:
    """Return `ranges` without the offsets that the partitions' leaders still have on their own disks.

    A partition is left out if its leader has no offset on its disk.

    Args:
        reader: reader of the first offset that a leader has on its disk.
        patience_ms: maximum time in ms to wait for a leader. A partition whose leader does not respond in that time is
            left out. None: a leader that does not respond is an error.

    Raises:
        BrokerError, CorruptDataError: a leader's response is an error.
    """
    local = reader.earliest_local(ranges, patience_ms)
    return {
        partition: OffsetRange(offsets.start, min(offsets.end, max(offsets.start, begin)))
        for partition, offsets in ranges.items()
        if (begin := local[partition]) is not None
    }
