"""Reading of an offset range from the brokers, with one Fetch always in flight ahead of the reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.list_offsets import list_offsets
from tiered_stream.broker.record_fetch import FetchedRecords, FetchTerms, fetch
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError, FetchTimeoutError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import LATEST
from tiered_stream.options.spark_options import POLL_TIMEOUT_MS
from tiered_stream.records.header import LAST_OFFSET_DELTA, MAGIC, whole_batches


def read_range(
    client: BrokerClient,
    topic_partition: TopicPartition,
    offsets: OffsetRange,
    isolation: IsolationLevel,
    *,
    poll_timeout_ms: int,
    topic_id: UUID | None = None,
) -> Iterator[FetchedRecords]:
    """Yield the records of `offsets` in order, in responses of about `client.config.fetch_max_bytes`.

    Each response has at least one whole batch. The next Fetch is under way while the caller holds a response, so at
    most two responses are in memory. The first and the last batch may reach beyond the range. The iterator ends early
    at the end of the log (high watermark, or last stable offset under read_committed).

    Raises:
        FetchTimeoutError: no whole batch came within `poll_timeout_ms` of waiting, although the log has more offsets.
        CorruptDataError: a response is not a sequence of batches, or does not reach the requested offset.
        OffsetOutOfRangeError: an offset of the range lies outside the log.
        TopicRecreatedError: the topic does not have the id `topic_id` any more.
        UnknownTopicError, BrokerAuthorizationError: the broker refused the request.
    """
    if not len(offsets):
        return
    config = client.config
    terms = FetchTerms(isolation, config.fetch_max_bytes, config.fetch_max_wait_ms, config.fetch_min_bytes, topic_id)
    position = _Position(client, topic_partition, offsets.start, terms, poll_timeout_ms)
    while (fetched := position.poll()) is not None:
        if position.offset < offsets.end:
            position.start_fetch(position.patience())
        yield fetched
        if position.offset >= offsets.end:
            return


@dataclass(slots=True)
class _Position:
    """Position of a reader in a partition: the next offset to fetch, and the Fetch from there that is under way."""

    client: BrokerClient
    partition: TopicPartition
    offset: int
    terms: FetchTerms
    poll_timeout_ms: int
    _fetch: Future[FetchedRecords] | None = None

    def patience(self) -> Deadline:
        """Return a deadline `kafkaConsumer.pollTimeoutMs` from now."""
        return Deadline(self.poll_timeout_ms, POLL_TIMEOUT_MS.name)

    def start_fetch(self, deadline: Deadline) -> Future[FetchedRecords]:
        """Start a Fetch at the next offset, repeated until `deadline`, and return a future of its result."""
        self._fetch = self.client.start(partial(fetch, self.client, self.partition, self.offset, self.terms, deadline))
        return self._fetch

    def poll(self) -> FetchedRecords | None:
        """Wait for a response with whole batches, move the next offset past these batches, and return the response.

        None: the log ends at the next offset.
        """
        patience, reason = self.patience(), BrokerUnavailableError("the responses had no record")
        while True:
            try:
                fetched = self._fetched(patience)
                following = offset_after(fetched)
                if following is not None:
                    self.offset = following
                    return fetched
                if fetched.records:  # a broker sends the first batch whole, however large it is (KIP-74)
                    raise _corrupt(fetched, f"no whole batch in {len(fetched.records)} bytes")
                if self._at_log_end(fetched, patience):
                    return None
            except BrokerUnavailableError as error:
                # A Fetch that was under way while the caller was busy may have reached its own deadline: try again.
                reason = error
            else:  # for example, remote storage did not respond to the broker in time
                time.sleep(self.client.config.retry_backoff_ms / 1000)
            if not patience.remaining_ms:
                raise FetchTimeoutError(
                    f"partition {self.partition}: cannot fetch record for offset {self.offset} in {patience}: {reason}"
                ) from reason

    def _fetched(self, patience: Deadline) -> FetchedRecords:
        under_way, self._fetch = self._fetch or self.start_fetch(patience), None
        return under_way.result()

    def _at_log_end(self, fetched: FetchedRecords, patience: Deadline) -> bool:
        isolation, partition = self.terms.isolation, self.partition
        committed = isolation is IsolationLevel.READ_COMMITTED
        if self.offset < (fetched.last_stable_offset if committed else fetched.high_watermark):
            return False
        # A new leader's high watermark lags for a moment; ListOffsets waits until it is up to date (KIP-207).
        ends = self.client.run(lambda: list_offsets(self.client, {partition: LATEST}, isolation, patience))
        return ends[partition] <= self.offset


def offset_after(fetched: FetchedRecords) -> int | None:
    """Return the offset after the last whole batch in the records; None: there is no whole batch.

    Raises:
        CorruptDataError: the records are not batches, or the last whole batch ends before the requested offset.
    """
    following = None
    try:
        for position, base_offset, magic in whole_batches(fetched.records):
            delta = LAST_OFFSET_DELTA.unpack_from(fetched.records, position)[0] if magic == MAGIC else 0
            following = base_offset + delta + 1
    except CorruptDataError as error:
        raise _corrupt(fetched, str(error)) from error
    if following is not None and following <= fetched.fetch_offset:
        raise _corrupt(fetched, f"the last batch ends before offset {following}")
    return following


def _corrupt(fetched: FetchedRecords, what: str) -> CorruptDataError:
    return CorruptDataError(f"Fetch of partition {fetched.topic_partition}, offset {fetched.fetch_offset}: {what}")
