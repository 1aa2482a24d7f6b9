"""Check whether a query leaves all tiered offsets to the brokers, although its options ask for the storage.

A query that starts near the log's end also reads nothing from the storage, because its offsets are not tiered yet. So
if the first micro-batch reads nothing from the storage, the brokers are asked once up to which offsets the partitions
are tiered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.locate.log_source import LogSource, WhyBrokers
from tiered_stream.model import Split, TopicPartition
from tiered_stream.observe.read_metrics import FIND_REASON
from tiered_stream.options.choices import Fallback, LocatorName, Prefer
from tiered_stream.options.parsing import Options

log = logging.getLogger(__name__)

_NOT_LOCATED = WhyBrokers("not_located", "no segment of them was located; warnings above may name the reason")


class BrokerSplitMarker:
    """Marker of splits that brokers must send although their offsets are tiered, in the micro-batches of one run.

    Splits are marked if the first micro-batch with splits reads nothing from the storage, and until a micro-batch reads
    something from there. No split is marked if the options ask for the brokers (`remote.log.locator=none`,
    `remote.prefer=local`), or name an archive: a bucket that is read without its Kafka cluster.

    Raises:
        ConfigurationError: `remote.fallback` is `fail`, and no storage can be read: none is named, or the metadata
            topic cannot be read.
    """

    def __init__(self, options: Options, source: LogSource) -> None:
        asked_for = options.locator in (LocatorName.NONE, LocatorName.ARCHIVE)
        self._source = source
        self._fails = options.fallback is Fallback.FAIL
        self._is_settled = asked_for or (source.locator is not None and options.prefer is Prefer.LOCAL)
        self._tiered_ends: dict[TopicPartition, int] | None = None
        self._why = source.why_brokers or _NOT_LOCATED
        if self._fails and source.why_brokers is not None:
            raise ConfigurationError(
                f"remote.fallback=fail: nothing can be read from storage: {self._why.text}. {FIND_REASON}"
            )

    def marked(self, splits: Sequence[Split], plan_again: Callable[[], Sequence[Split]]) -> Sequence[Split]:
        """Return the splits of a micro-batch, with a reason (`Split.why_brokers`) in each split that is to be marked.

        A split is marked if it has no bytes in the storage, although the brokers say that its offsets are tiered.

        Args:
            splits: the splits of the micro-batch as planned.
            plan_again: plans the same micro-batch again. It is called once, because segments may have become tiered
                after `splits` were planned.

        Raises:
            ConfigurationError: `remote.fallback` is `fail`, and the first micro-batch has tiered offsets, but no
                location.
        """
        if self._is_settled or not splits:
            return splits
        if self._tiered_ends is None:
            splits = self._checked(splits, plan_again)
        self._is_settled = self._is_settled or any(split.locations for split in splits)
        if self._is_settled:
            return splits
        return [replace(split, why_brokers=self._why.reason) if self._is_tiered(split) else split for split in splits]

    def _checked(self, splits: Sequence[Split], plan_again: Callable[[], Sequence[Split]]) -> Sequence[Split]:
        """Return the splits of the first micro-batch, planned again if tiered offsets seem to have no location."""
        if any(split.locations for split in splits):
            return splits
        self._tiered_ends = self._look_up({split.topic_partition for split in splits})
        if not any(map(self._is_tiered, splits)):
            self._is_settled = True
            return splits
        splits = plan_again()
        tiered = [split for split in splits if self._is_tiered(split)]
        if tiered and not any(split.locations for split in splits):
            text = f"offsets from {tiered[0].offsets.start} on of {tiered[0].topic_partition} are tiered, but"
            if self._fails:
                raise ConfigurationError(f"remote.fallback=fail: {text} {self._why.text}. {FIND_REASON}")
            log.warning("%s they come from the brokers: %s. %s", text, self._why.text, FIND_REASON)
        return splits

    def _look_up(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return self._source.offset_reader.tiered_ends(partitions)
        except TieredStreamError as error:
            log.info("the brokers do not say how far the partitions are tiered: %s", error)
            return {}

    def _is_tiered(self, split: Split) -> bool:
        end = (self._tiered_ends or {}).get(split.topic_partition, 0)
        return not split.locations and split.offsets.start < end
