"""Transactional producers (KIP-98) whose every step a test decides: they may interleave and span segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.errors import ConcurrentTransactionsError, RetriableError, for_code
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from tests.rigs.stack.batches import ProducerState, record_batch
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import Closing, wait_until
from tests.rigs.stack.produce import send_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.wire import BrokerConnection, check

NEWEST_ADD_PARTITIONS = 3
"""Newer versions are for brokers only."""
NEWEST_END = 4
"""The last version that leaves the producer its epoch: transactions of the kind that all clients know."""


class TransactionalProducer(Closing):
    """One transactional id. A transaction begins with the first `send` after the last `commit` or `abort`.

    Markers carry the broker's clock: records after one need later timestamps where `segment.ms` is to roll segments.
    """

    def __init__(self, broker: KafkaBroker, transactional_id: str, timeout_ms: int = 600_000) -> None:
        self.transactional_id = transactional_id
        self._connection = BrokerConnection(broker.bootstrap_servers)
        self._sequences: dict[tuple[str, int], int] = {}
        self._joined: set[tuple[str, int]] = set()
        wait_until(self._has_coordinator, "the transaction coordinator")
        wait_until(lambda: self._initialized(timeout_ms), f"{transactional_id} to get a producer id")

    def send(self, topic: str, records: Iterable[Record], partition: int = 0, codec: str = "none") -> int:
        """All the records as one batch of the current transaction; returns its base offset."""
        target = (topic, partition)
        if target not in self._joined:
            self._join(topic, partition)
        values = list(records)
        sequence = self._sequences.get(target, 0)
        state = ProducerState(self.producer_id, self._epoch, sequence, transactional=True)
        offset = send_batch(
            self._connection, topic, partition, record_batch(values, codec, state), self.transactional_id
        )
        self._sequences[target] = sequence + len(values)
        return offset

    def commit(self) -> None:
        """End the transaction; its markers are in the log when this returns."""
        self._end(committed=True)

    def abort(self) -> None:
        """As `commit`, with markers that void its records."""
        self._end(committed=False)

    def close(self) -> None:
        """Drop the connection. An open transaction stays open until it times out."""
        self._connection.close()

    def _has_coordinator(self) -> bool:
        request = FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION.value, coordinator_keys=[self.transactional_id], min_version=4
        )
        (coordinator,) = self._connection.request(request).coordinators
        self._coordinator = int(coordinator.node_id)
        return _settled(coordinator.error_code, self.transactional_id)

    def _ask(self, message: ApiMessage) -> Any:
        return self._connection.request(message, self._coordinator)

    def _initialized(self, timeout_ms: int) -> bool:
        answer = self._ask(
            InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        )
        if not _settled(answer.error_code, self.transactional_id):
            return False
        self.producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)
        return True

    def _join(self, topic: str, partition: int) -> None:
        topics = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def joined() -> bool:  # the last transaction's markers may still be on their way
            answer = self._ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self._epoch,
                    v3_and_below_topics=[topics(name=topic, partitions=[partition])],
                    max_version=NEWEST_ADD_PARTITIONS,
                )
            )
            (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            return _settled(result.partition_error_code, f"{topic}-{partition}")

        wait_until(joined, f"{self.transactional_id} to join {topic}-{partition}", pause=0.02)
        self._joined.add((topic, partition))

    def _end(self, *, committed: bool) -> None:
        if not self._joined:
            raise StackError(f"{self.transactional_id} has no open transaction")

        def ended() -> bool:
            answer = self._ask(
                EndTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self._epoch,
                    committed=committed,
                    max_version=NEWEST_END,
                )
            )
            return _settled(answer.error_code, self.transactional_id)

        wait_until(ended, f"the transaction of {self.transactional_id} to end", pause=0.02)
        wait_until(self._completed, f"the markers of {self.transactional_id}", pause=0.02)
        self._joined.clear()

    def _completed(self) -> bool:
        """Return true if every partition has its marker: the response to EndTxn comes before they are written."""
        answer = self._ask(DescribeTransactionsRequest(transactional_ids=[self.transactional_id]))
        (transaction,) = answer.transaction_states
        done = transaction.transaction_state in ("CompleteCommit", "CompleteAbort")
        return _settled(transaction.error_code, self.transactional_id) and done


def _settled(error_code: int, what: str) -> bool:
    """Return true if the request succeeded, and False if it can be repeated."""
    error = for_code(error_code)
    if error_code and issubclass(error, RetriableError | ConcurrentTransactionsError):
        return False
    check(error_code, what)
    return True
