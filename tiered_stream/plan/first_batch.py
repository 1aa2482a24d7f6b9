"""A stream's first micro-batch, whose start is not in Spark's checkpoint.

For a Python source, Spark stores the ends of micro-batches, but not the initial offsets. After a crash it asks for the
initial offsets again, to repeat the first batch. By then the initial offsets may have moved, partitions may have been
added, or a timestamp may no longer have a match. So the start of the first batch is in the notes of its end, which the
offset log stores (`options.offset_json`). (Spark's `kafka` source stores the start in its own file:
`KafkaSourceInitialOffsetWriter`.)

Spark's `kafka` source and older releases of this package have written ends without notes. An older release planned an
empty first batch if the start could move: its end is the start.
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
    """First micro-batch of a stream that has no committed micro-batch.

    The batch is either planned in this run, or repeated from an earlier run. `initial` is the start that the options
    mean now. `refused` is the error of the start position in the options. The error is raised only if the batch is
    planned in this run, because the checkpoint has the end of a repeated batch.
    """

    initial: InitialOffsets
    refused: ConfigurationError | None = None
    never_reads: bool = False
    """True if the stream starts at the end of an archive, so that it will never read a record."""
    _warned: bool = False

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

    def check(self) -> None:
        """Check that the batch can be planned in this run.

        Raises:
            ConfigurationError: `starting.initial_offsets` has raised it.
        """
        if self.refused is not None:
            raise self.refused
        if self.never_reads and not self._warned:
            self._warned = True
            logger.warning(
                "an archive gets no new records, and the query starts at its end (startingOffsets=latest): nothing is "
                "read. Set startingOffsets=earliest, and take a new checkpoint"
            )

    def start_of(self, end: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the start of the repeated batch that ends at `end`, which has no notes.

        Partitions that were added later are left out. A partition whose start the options name starts there. A
        partition that starts at its log end starts at `end`. Any other partition starts at its current initial offset,
        but not after `end`. A warning names the partitions that are taken to be empty.
        """
        starts = {
            partition: offset if partition in self.initial.explicit else self._moved_start(partition, end[partition])
            for partition, offset in self.initial.offsets.items()
            if partition in end
        }
        empty = {partition for partition, start in starts.items() if 0 < start == end[partition]}
        if not self._warned and empty - self.initial.explicit:
            self._warned = True
            logger.warning(
                "the first micro-batch was not committed; it is taken to be empty, as older releases of tiered_stream "
                "plan it, in %s. If Spark's kafka source planned it, let that source finish it: its records are not "
                "read here",
                listed(empty - self.initial.explicit),
            )
        return starts

    def check_start(
        self, start: PartitionOffsets, end: PartitionOffsets, earliest: PartitionOffsets, data_loss: DataLossPolicy
    ) -> None:
        """Report data loss if the repeated batch may have had records below the current log start.

        Args:
            start: result of `start_of`.
            end: end of the repeated batch.
            earliest: current log starts.

        Raises:
            DataLossError: the batch may have had such records, and the policy is to fail.
        """
        for partition, offset in sorted(start.items()):
            log_start = earliest.get(partition, offset)
            # An empty batch ended at the log start of that time. If that has moved, the batch's start is unknown.
            known = partition in self.initial.explicit or offset == end[partition] == log_start
            if not known and 0 < offset <= log_start:
                data_loss.report(
                    "COULD_NOT_READ_OFFSET_RANGE",
                    f"the first micro-batch, up to offset {end[partition]} of {partition}, is read again. Where it "
                    f"started is not in the checkpoint, and what it held before offset {log_start}, where the log "
                    "begins now, is gone.",
                )

    def _moved_start(self, partition: TopicPartition, until: int) -> int:
        return until if partition in self.initial.at_end else min(self.initial.offsets[partition], until)
