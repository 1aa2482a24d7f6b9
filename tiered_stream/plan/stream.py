"""Offsets of a stream: its start, the end of each micro-batch, and the offset ranges of each micro-batch.

(Spark: `KafkaMicroBatchStream`.) One planner serves one run of one query, on the driver, one call at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.locate.locator import Locator
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import Notes, StreamOffsets, notes_of
from tiered_stream.options.parsing import Options
from tiered_stream.options.positions import AtOffsets
from tiered_stream.plan.batch_limits import Backlog, ends_at_segments, ends_by_bytes, proportional_ends
from tiered_stream.plan.data_loss import DataLossPolicy, check_topic_ids, ends_within, offset_ranges, within_log
from tiered_stream.plan.offset_lookup import Assignment, OffsetLookup
from tiered_stream.plan.stream_bounds import FirstBatch, StreamEnd, check_target


class StreamPlanner:
    """Planner of one run of a stream: it chooses the start, and the end and the offset ranges of each micro-batch.

    It keeps the initial offsets, the time of the last trigger, topic ids, and the run's end offsets under
    `Trigger.AvailableNow`. Every method raises BrokerError or StorageError if a look-up fails after all retries. It
    raises DataLossError if records are lost (`plan.data_loss`). `clock` returns milliseconds, `sleep` takes seconds.
    """

    def __init__(
        self,
        options: Options,
        reader: OffsetReader,
        locator: Locator | None = None,
        *,
        clock: Callable[[], float] = lambda: time.monotonic() * 1000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._lookup = OffsetLookup.of(options, reader, sleep)
        self._locator = locator
        self._clock = clock
        self._data_loss = DataLossPolicy(options.fail_on_data_loss)
        self._first: FirstBatch | None = None
        self._latest: PartitionOffsets | None = None
        self._last_trigger_ms: float | None = None
        self.available_now = options.available_now
        """True under `Trigger.AvailableNow`: the run ends at the log ends that `next_end` first looks up."""
        self._target: PartitionOffsets | None = None
        self._end = StreamEnd(options.ending, self._lookup) if options.bounded_streaming else None
        self.topic_ids: dict[str, UUID] = dict(options.topic_ids)
        """Known ids of the topics that are read, by topic; at first, the ids in the options and in the checkpoint."""
        self._noted: set[str] = set()
        """Topics whose ids were taken over from the checkpoint."""

    def initial(self) -> StreamOffsets:
        """Return the offsets at which the stream starts if it has no checkpoint; only the first call looks them up."""
        return StreamOffsets(self._first_batch().initial.offsets, Notes(initial=True))

    def _first_batch(self) -> FirstBatch:
        if self._first is None:
            self._first = FirstBatch.of(self._options, self._lookup)
        return self._first

    def latest(self) -> PartitionOffsets | None:
        """Return by partition the end offset (exclusive) up to which the run may read, as of the last look-up.

        Return None before the first look-up, or if there is no partition.
        """
        return self._latest or None

    def next_end(self, start: PartitionOffsets, *, limited: bool) -> PartitionOffsets:
        """Return the end offsets of the micro-batch from `start`, or `start` itself if there is nothing to read yet.

        The returned offsets have notes (`StreamOffsets.notes`): the topics' ids, the start of a first micro-batch, and
        the known end of a bounded stream. If the note about the end has changed, the micro-batch may be empty, so that
        the offset log stores the note.

        Args:
            limited: true if the options `…PerTrigger` limit the micro-batch; false: it reads all available offsets.

        Raises:
            ConfigurationError: the start position in the options does not fit the partitions.
        """
        notes = notes_of(start)
        self._take_over(notes)
        if notes.initial:
            self._first_batch().check()
        latest = self._latest_for(start)
        known_end = self._end.written if self._end else None
        if not latest or (limited and self._waits(start, latest)):
            end: PartitionOffsets = start
        else:
            end = self._limited_end(start, latest) if limited and latest != start else latest
        is_new = end != start or notes.initial or (known_end is not None and known_end != notes.end)
        if not is_new:
            return start
        topics = {partition.topic for partition in end}
        ids = {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in topics}
        return StreamOffsets(end, Notes(False, dict(start) if notes.initial else None, known_end, ids))

    def ranges(self, start: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, OffsetRange]:
        """Return the offset ranges that the micro-batch from `start` to `end` reads; a range may be empty.

        A first micro-batch starts at the start in the notes of `end`, whatever the options mean now.

        Raises:
            DataLossError: records of the ranges are gone, or partitions were deleted, added or recreated, and the
                policy is to fail.
            OpenTransactionError: offsets up to `end` cannot be read while a transaction is open.
        """
        self._take_over(notes_of(end))
        self._take_over(notes_of(start))
        written = notes_of(end).start
        unnoted = self._first_batch() if notes_of(start).initial and written is None else None
        if unnoted is not None:
            start = unnoted.start_of(end)
        elif notes_of(start).initial and written is not None:
            start = written
        bounds = self._lookup.bounds(start, end, idle=unnoted is not None)
        if unnoted is not None:
            unnoted.check_start(start, end, bounds.earliest, self._data_loss)
        if self._target is not None and start != end:
            check_target(self._target, end, bounds.latest)
        new = end.keys() - start.keys()
        earliest_of_new = {partition: at for partition, at in bounds.earliest.items() if partition in new}
        group_id_given = "group.id" in self._options.kafka
        ranges = offset_ranges(start, end, earliest_of_new, self._data_loss, group_id_given=group_id_given)
        self._check_topic_ids(bounds.assignment)
        return within_log(ranges, bounds.earliest, bounds.latest, self._data_loss)

    def _latest_for(self, start: PartitionOffsets) -> PartitionOffsets:
        if self._target is None:
            ending = self._options.ending
            ends = ending.offsets if isinstance(ending, AtOffsets) and self._end is None else None
            # The option's ends are passed as known offsets, so that a log end below one of them is requested again.
            assignment, self._latest = self._lookup.latest(known=ends or start)
            self._check_topic_ids(assignment)
            if ends is not None:
                self._latest = ends_within(self._latest, ends, self._data_loss)
            if self._end is not None:
                self._latest = self._end.within(start, self._latest)
            if self.available_now:
                self._target = self._latest
        return self._latest or {}

    def _take_over(self, notes: Notes) -> None:
        """Add the topic ids in `notes`, which come from the checkpoint, to the known ids, once for each topic.

        Raises:
            DataLossError: a known id differs from the id in the notes, and the policy is to fail.
        """
        ids = {topic: topic_id for topic, topic_id in notes.topic_ids.items() if topic not in self._noted}
        check_topic_ids(ids, self.topic_ids, self._data_loss)
        self.topic_ids = {**ids, **self.topic_ids}
        self._noted |= ids.keys()

    def _check_topic_ids(self, assignment: Assignment) -> None:
        check_topic_ids(self.topic_ids, assignment.topic_ids, self._data_loss)
        self.topic_ids.update(assignment.topic_ids)

    def _waits(self, start: PartitionOffsets, latest: PartitionOffsets) -> bool:
        """Return whether `minOffsetsPerTrigger` delays the micro-batch; if it does not, record this trigger's time.

        As in Spark, all offsets from 0 on count as new in a partition that is not in `start`.
        Under `Trigger.AvailableNow`, the option never delays a micro-batch, because the run would then end too early.
        """
        minimum, delay_ms = self._options.min_offsets_per_trigger, self._options.max_trigger_delay_ms
        if minimum is None or self.available_now:
            return False
        now = self._clock()
        waited_ms = delay_ms if self._last_trigger_ms is None else now - self._last_trigger_ms
        new_offsets = sum(end - start.get(partition, 0) for partition, end in latest.items())
        if waited_ms < delay_ms and new_offsets < minimum:
            return True
        self._last_trigger_ms = now
        return False

    def _limited_end(self, start: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return by partition the micro-batch's end offset by `maxBytesPerTrigger` and `maxOffsetsPerTrigger`.

        The lower of the two ends counts. If `maxOffsetsPerTrigger` is set and `remote.segment.aligned.ends` is true, it
        is then moved back to the end of a segment.
        """
        known = {**self._lookup.earliest(latest.keys() - start.keys()), **start}
        backlog = Backlog(known, latest, self._locator)
        ends = ends_by_bytes(backlog, self._options.max_bytes_per_trigger)
        max_offsets = self._options.max_offsets_per_trigger
        if max_offsets is None:
            return ends
        by_offsets = proportional_ends(known, latest, max_offsets)
        ends = {partition: min(end, by_offsets[partition]) for partition, end in ends.items()}
        if not self._options.segment_aligned_ends:
            return ends
        return ends_at_segments(backlog, ends)
