"""An offset range of a partition, fetched with one request always in flight ahead of its reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from struct import Struct
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.fetch import FetchedRecords, FetchTerms, fetch
from tiered_stream.broker.offsets import BrokerOffsetReader
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError
from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.options import IsolationLevel

# A log is a sequence of entries that begin alike (Kafka: DefaultRecordBatch, AbstractLegacyRecordBatch):
#   0  int64  base offset (magic 2) or offset of the message, of the last one in a compressed set (magic 0, 1)
#   8  int32  length of what follows this field
#  12  int32  partition leader epoch (magic 2) or CRC (magic 0, 1)
#  16  int8   magic
#  23  int32  last offset delta (magic 2)
_START = Struct(">qiib")
_DELTA = Struct(">i")
_DELTA_AT = 23
_BEFORE_LENGTH = 12
_SMALLEST_BATCH = 49  # 61 bytes of header, less 12
_SMALLEST_MESSAGE = 14


def read_range(
    client: BrokerClient,
    topic_partition: TopicPartition,
    offsets: OffsetRange,
    isolation: IsolationLevel,
    *,
    max_bytes: int | None = None,
    topic_id: UUID | None = None,
) -> Iterator[FetchedRecords]:
    """The records of `offsets`, in order, in answers of about `max_bytes` (None: `max.partition.fetch.bytes`).

    Each answer brings at least one whole batch; the next Fetch is under way while the caller holds one, so two answers
    are in memory at most. The first and the last batch may reach beyond the range. Ends early at the end of the log
    (high watermark, or last stable offset under read_committed).

    Raises:
        BrokerUnavailableError: nothing came for `default.api.timeout.ms`, though the log goes on.
        CorruptDataError: the answer is not a sequence of batches, or does not reach the offset asked for.
        OffsetOutOfRangeError, DataLossError, UnknownTopicError, BrokerAuthorizationError: as `fetch_records`.
    """
    if not len(offsets):
        return
    config = client.config
    terms = FetchTerms(
        isolation, max_bytes or config.fetch_max_bytes, config.fetch_max_wait_ms, config.fetch_min_bytes, topic_id
    )
    offset, patience = offsets.start, client.deadline()
    answer = _ahead(client, topic_partition, offset, terms)
    while True:
        fetched = answer.result()
        following = offset_after(fetched)
        if following is None:
            if not fetched.records and _at_log_end(client, fetched, isolation):
                return
            terms = _ask_again(client, fetched, terms, patience)
            answer = _ahead(client, topic_partition, offset, terms)
            continue
        offset, patience = following, client.deadline()
        if offset >= offsets.end:
            yield fetched
            return
        answer = _ahead(client, topic_partition, offset, terms)
        yield fetched


def offset_after(fetched: FetchedRecords) -> int | None:
    """The offset after the last whole batch, None: there is no whole batch.

    Raises:
        CorruptDataError: the bytes are not batches, or none reaches the offset that was asked for.
    """
    records, position, following = fetched.records, 0, None
    while position + _START.size <= len(records):
        base_offset, length, _, magic = _START.unpack_from(records, position)
        if base_offset < 0 or length < (_SMALLEST_BATCH if magic >= 2 else _SMALLEST_MESSAGE):
            raise _corrupt(fetched, f"at byte {position}: offset {base_offset}, length {length}, magic {magic}")
        end = position + _BEFORE_LENGTH + length
        if end > len(records):
            break
        last_delta = _DELTA.unpack_from(records, position + _DELTA_AT)[0] if magic >= 2 else 0
        following = base_offset + last_delta + 1
        position = end
    if following is not None and following <= fetched.fetch_offset:
        raise _corrupt(fetched, f"the last batch ends before offset {following}")
    return following


def _ahead(client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms) -> Future[FetchedRecords]:
    return client.start(partial(fetch, client, partition, offset, terms))


def _at_log_end(client: BrokerClient, fetched: FetchedRecords, isolation: IsolationLevel) -> bool:
    committed = isolation is IsolationLevel.READ_COMMITTED
    if fetched.fetch_offset < (fetched.last_stable_offset if committed else fetched.high_watermark):
        return False
    # A new leader's high watermark lags for a moment; ListOffsets waits until it is right (KIP-207).
    partition = fetched.topic_partition
    return BrokerOffsetReader(client, isolation).latest([partition])[partition] <= fetched.fetch_offset


def _ask_again(client: BrokerClient, fetched: FetchedRecords, terms: FetchTerms, patience: Deadline) -> FetchTerms:
    """The terms for a second Fetch at the same offset, after a short sleep."""
    if not patience.remaining_ms:
        raise BrokerUnavailableError(
            f"partition {fetched.topic_partition}, offset {fetched.fetch_offset}: no record came within "
            f"{patience.timeout_ms} ms (kafka.default.api.timeout.ms), though the log ends at {fetched.high_watermark}"
        )
    if fetched.records:  # a piece of a batch
        largest = int(client.config.net["receive_message_max_bytes"]) // 2
        if terms.max_bytes >= largest:
            raise _corrupt(fetched, f"no whole batch in {terms.max_bytes} bytes")
        return replace(terms, max_bytes=min(2 * terms.max_bytes, largest))
    time.sleep(client.config.retry_backoff_ms / 1000)  # as when remote storage did not answer the broker in time
    return terms


def _corrupt(fetched: FetchedRecords, what: str) -> CorruptDataError:
    return CorruptDataError(f"Fetch of partition {fetched.topic_partition}, offset {fetched.fetch_offset}: {what}")
