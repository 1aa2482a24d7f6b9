"""Fetch of small first record batches at given offsets, from many partitions in one request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leaders import ask_each_leader
from tiered_stream.broker.record_fetch import FetchedRecords, FetchTerms, RecordFetch
from tiered_stream.model import PartialAnswer, TopicPartition
from tiered_stream.options.choices import IsolationLevel

_RESPONSE_BYTES = 16 << 20
"""Maximum number of record bytes in one response."""


def fetch_first_batches(
    client: BrokerClient,
    offsets: Mapping[TopicPartition, int],
    max_bytes: int,
    isolation: IsolationLevel,
    patience_ms: int | None = None,
) -> PartialAnswer[TopicPartition, FetchedRecords]:
    """Fetch at most `max_bytes` of records from each partition's offset on, without waiting for new records.

    The result has the records or an error for each partition. If a partition's first batch is larger than `max_bytes`,
    the broker usually returns no records for the partition (KIP-74). Partitions are requested in groups whose records
    fit into 16 MiB, one group after the other, with one request to each leader.

    `patience_ms` is the time limit of one group; None: `default.api.timeout.ms`.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    answer: PartialAnswer[TopicPartition, FetchedRecords] = PartialAnswer({}, {})
    terms = FetchTerms(isolation, max_bytes, max_wait_ms=0, response_bytes=_RESPONSE_BYTES)
    partitions, request_size = list(offsets), max(1, _RESPONSE_BYTES // max_bytes)
    for start in range(0, len(partitions), request_size):
        requested = {partition: offsets[partition] for partition in partitions[start : start + request_size]}
        request = RecordFetch(client, requested, terms)
        fetched = client.run(partial(ask_each_leader, client, request, requested, patience_ms))
        answer.found.update(fetched.found)
        answer.faults.update(fetched.faults)
    return answer
