"""A stream's first micro-batch, whose start Spark does not store.

For a Python source, Spark stores the ends of micro-batches, but not the initial offsets. After a crash it asks for the
initial offsets again, to repeat the first batch. By then the initial offsets may have moved, partitions may have been
added, or a timestamp may no longer have a match. So a first batch whose start might not be found again is planned
empty: its end is the start, and the offset log stores it. (Spark's `kafka` source stores the start in its own file:
`KafkaSourceInitialOffsetWriter`.)
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import PartitionOffsets, TopicPartition, listed
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.parsing import Options
from tiered_stream.options.positions import LogEnd
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.lookup import OffsetLookup
from tiered_stream.plan.starting import InitialOffsets, fitted_initial_offsets, initial_offsets

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FirstBatch:
    """First micro-batch of a run, if no micro-batch was committed before.

    The batch is either planned in this run, or repeated from an earlier run. `initial` is its start. `refused` is the
    error of the start position in the options. The error is raised only if the batch is planned in this run, because
    the checkpoint has the end of a repeated batch.
    """

    initial: InitialOffsets
    refused: ConfigurationError | None = None
    never_reads: bool = False
    """True if the stream starts at the end of an archive, so that it will never read a record."""
    _planned: bool = False
    _repeated_end: PartitionOffsets | None = None

    @classmethod
    def of(cls, options: Options, lookup: OffsetLookup) -> FirstBatch:
        """Return the first batch, with the start that the options now mean.

        Raises:
            BrokerError, StorageError: the offsets cannot be looked up.
        """
        try:
            never_reads = options.locator is LocatorName.ARCHIVE and options.starting is LogEnd.LATEST
            return cls(initial_offsets(options, lookup), never_reads=never_reads)
        except ConfigurationError as error:
            return cls(fitted_initial_offsets(options, lookup), error)

    def begins(self, start: PartitionOffsets) -> bool:
        """Return True, once, if the micro-batch from `start` is the first one and is not a repeated one.

        Raises:
            ConfigurationError: `starting.initial_offsets` has raised it.
        """
        if self._planned or self._repeated_end is not None or start != self.initial.offsets:
            return False
        if self.refused is not None:
            raise self.refused
        if self.never_reads:
            logger.warning(
                "an archive gets no new records, and the query starts at its end (startingOffsets=latest): nothing is "
                "read. Set startingOffsets=earliest, and take a new checkpoint"
            )
        self._planned = True
        return True

    def is_empty(self, *, only_one: bool) -> bool:
        """Return whether the first batch is planned empty, only to store its start in the offset log.

        It is planned empty if a partition starts at its log end. It is also planned empty if the start of a partition
        may move, and other batches follow. A partition that starts at offset 0 counts as not moving: its start was 0,
        even if the log start moves later.

        Args:
            only_one: no other batch follows (`Trigger.Once`).
        """
        initial = self.initial
        moving = any(offset for partition, offset in initial.offsets.items() if partition not in initial.explicit)
        return bool(initial.at_end) or (moving and not only_one)

    def is_repeated(self, start: PartitionOffsets, end: PartitionOffsets) -> bool:
        """Return whether the micro-batch from `start` to `end` is the first one, and was planned in an earlier run.

        The first call for such a micro-batch keeps `end`. Later calls return False for any other end.
        """
        if self._planned or start != self.initial.offsets:
            return False
        if self._repeated_end is None:
            self._repeated_end = dict(end)
            self._warn_of_empty(end)
        return end == self._repeated_end

    def start_of(self, end: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the start of the repeated batch that ends at `end`; partitions that were added later are left out.

        A partition whose start the options name starts there. A partition that starts at its log end starts at `end`.
        Any other partition starts at its current initial offset, but not after `end`.
        """
        starts = self.initial.offsets
        return {
            partition: starts[partition] if partition in self.initial.explicit else self._moved_start(partition, until)
            for partition, until in end.items()
            if partition in starts
        }

    def check_start(self, end: PartitionOffsets, earliest: PartitionOffsets, data_loss: DataLossPolicy) -> None:
        """Report data loss if the repeated batch may have had records below the current log start.

        Args:
            end: end of the repeated batch.
            earliest: current log starts.

        Raises:
            DataLossError: the batch may have had such records, and the policy is to fail.
        """
        for partition, start in sorted(self.start_of(end).items()):
            log_start = earliest.get(partition, start)
            # An empty batch ended at the log start of that time. If that has moved, the batch's start is unknown.
            known = partition in self.initial.explicit or start == end[partition] == log_start
            if not known and 0 < start <= log_start:
                data_loss.report(
                    "COULD_NOT_READ_OFFSET_RANGE",
                    f"the first micro-batch, up to offset {end[partition]} of {partition}, is read again. Where it "
                    f"started is not in the checkpoint, and what it held before offset {log_start}, where the log "
                    "begins now, is gone.",
                )

    def _moved_start(self, partition: TopicPartition, until: int) -> int:
        return until if partition in self.initial.at_end else min(self.initial.offsets[partition], until)

    def _warn_of_empty(self, end: PartitionOffsets) -> None:
        starts = self.start_of(end)
        empty = [
            partition
            for partition, start in starts.items()
            if partition not in self.initial.explicit and 0 < start == end[partition]
        ]
        if empty:
            logger.warning(
                "the first micro-batch was not committed; it is taken to be empty, as tiered_stream plans it, in %s. "
                "If Spark's kafka source planned it, let that source finish it: its records are not read here",
                listed(empty),
            )
