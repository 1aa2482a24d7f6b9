"""Committed offsets of a consumer group, read and written without joining it (Kafka: `OffsetFetch`, `OffsetCommit`).

A group accepts commits from a client that is not a member while the group has no members
(Kafka: `GroupMetadataManager.validateOffsetCommit`). `GroupCommitter` commits a query's offsets (option
`kafka.consumer.commit.groupid`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from kafka.protocol.consumer.group import (
    DEFAULT_GENERATION_ID,
    UNKNOWN_MEMBER_ID,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from tiered_stream.broker.client import BrokerClient, open_client
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.kafka_errors import code_name, is_retriable, response_fault
from tiered_stream.broker.leader_requests import by_topic
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError, TieredStreamError
from tiered_stream.model import PartitionOffsets, TopicPartition

_NO_OFFSET = -1
_ONE_COORDINATOR, _TOPIC_NAMES, _ONE_GROUP = 3, 9, 7
"""Newest versions that we send of FindCoordinator, OffsetCommit and OffsetFetch.

Newer versions have several keys, topic ids, or several groups.
"""
_PATIENCE_MS = 10_000
log = logging.getLogger(__name__)


class GroupOffsets:
    """Committed offsets of one consumer group, read from and written to the group's coordinator.

    Raises (all methods):
        BrokerAuthorizationError: the user is not authorized to read the group.
        BrokerError: the coordinator refuses the request, for example a commit while the group has members.
        BrokerUnavailableError: no broker responded in time.
    """

    def __init__(self, client: BrokerClient, group: str) -> None:
        self.group = group
        self._client = client

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed offset by partition: the next offset to read. None: no offset is committed.

        If an open transaction contains a commit of the group, the call waits until the transaction ends.

        Raises:
            CorruptDataError: the coordinator's response lacks a partition.
        """
        if not partitions:
            return {}
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [
            topic(name=name, partition_indexes=[partition.partition for partition in of_topic])
            for name, of_topic in by_topic(partitions).items()
        ]
        build = partial(
            OffsetFetchRequest, group_id=self.group, topics=topics, require_stable=True, max_version=_ONE_GROUP
        )
        results = self._client.run(lambda: self._ask(build, self._client.deadline()))
        if not results.keys() >= set(partitions):
            raise CorruptDataError(
                f"consumer group {self.group!r}: the coordinator left partitions out of its response"
            )
        committed = {partition: results[partition].committed_offset for partition in partitions}
        return {partition: None if offset <= _NO_OFFSET else offset for partition, offset in committed.items()}

    def start_commit(self, offsets: PartitionOffsets) -> Future[Any]:
        """Start a commit of `offsets` for the group, and return a future that is done when the commit has ended.

        The future has the error of the commit, if there is one. The commit fails after 10 s, or after
        `default.api.timeout.ms` if that is shorter.
        """
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        kind = topic.OffsetCommitRequestPartition
        topics = [
            topic(
                name=name,
                partitions=[
                    kind(partition_index=at.partition, committed_offset=offsets[at], committed_metadata="")
                    for at in of_topic
                ],
            )
            for name, of_topic in by_topic(offsets).items()
        ]
        build = partial(
            OffsetCommitRequest,
            group_id=self.group,
            generation_id_or_member_epoch=DEFAULT_GENERATION_ID,
            member_id=UNKNOWN_MEMBER_ID,
            topics=topics,
            max_version=_TOPIC_NAMES,
        )
        return self._client.start(lambda: self._ask(build, self._client.deadline(_PATIENCE_MS)))

    async def _ask(self, build: Callable[[], Any], deadline: Deadline) -> dict[TopicPartition, Any]:
        """Send the request that `build` makes to the coordinator, and return the result of each partition.

        The request is repeated until `deadline` after errors that may pass, for example while the coordinator moves to
        another broker.
        """
        attempts = 0
        while True:
            try:
                coordinator = await self._coordinator(deadline)
                return self._results(await self._client.request(coordinator, build(), deadline))
            except BrokerUnavailableError:
                await self._client.back_off(attempts, deadline)
                if not deadline.remaining_ms:
                    raise
            await self._client.fetch_metadata((), deadline)  # the coordinator may be a broker that is new to the client
            attempts += 1

    async def _coordinator(self, deadline: Deadline) -> int:
        response = await self._client.ask_any(
            lambda: FindCoordinatorRequest(
                key=self.group, key_type=CoordinatorType.GROUP, max_version=_ONE_COORDINATOR
            ),
            deadline,
        )
        self._check(response.error_code, f"consumer group {self.group!r}")
        return int(response.node_id)

    def _results(self, response: Any) -> dict[TopicPartition, Any]:
        """Return the result of each partition in a response."""
        self._check(getattr(response, "error_code", 0), f"consumer group {self.group!r}")
        results = {}
        for topic in response.topics or ():
            for result in topic.partitions or ():
                partition = TopicPartition(topic.name, result.partition_index)
                self._check(result.error_code, f"partition {partition} of consumer group {self.group!r}")
                results[partition] = result
        return results

    def _check(self, error_code: int, subject: str) -> None:
        if error_code and is_retriable(error_code):
            raise BrokerUnavailableError(f"{subject}: the coordinator responded with {code_name(error_code)}")
        if error_code:
            raise response_fault(error_code, subject, "READ on the group and on the topic")


class GroupCommitter:
    """Committer of a query's offsets to a consumer group, so that lag tools show the query.

    Commits run in the background, one at a time, and always with the newest offsets. If a commit fails, only a warning
    is logged. If it fails because no broker responded in time, the next call of `commit` repeats it.
    """

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._newest: PartitionOffsets = {}
        self._committed: PartitionOffsets = {}
        self._commit: Future[Any] | None = None
        self._warned = False

    def begin(self, initial: PartitionOffsets) -> None:
        """Set the start offsets of the query; they are not committed."""
        self._newest = self._committed = initial

    def commit(self, offsets: PartitionOffsets) -> None:
        """Start to commit `offsets` in the background. All records before `offsets` must have been processed.

        If an earlier commit is still running, nothing is started. A later call of `commit` or `settle` then commits the
        newest offsets.
        """
        self._newest = offsets
        if self._commit is not None and self._commit.done():
            self._take_result(self._commit)
        if self._commit is None and offsets and offsets != self._committed:
            self._committed = offsets
            try:
                self._commit = self._offsets.start_commit(offsets)
            except TieredStreamError as error:  # the client was closed
                self._report(error)

    def settle(self) -> None:
        """Wait until the commit of the newest offsets has succeeded or failed; each commit has a deadline."""
        while self._commit is not None:
            wait([self._commit])
            has_newer = self._newest != self._committed
            self._take_result(self._commit)
            if has_newer:
                self.commit(self._newest)

    def _take_result(self, commit: Future[Any]) -> None:
        error, self._commit = commit.exception(), None
        self._report(error)
        if isinstance(error, BrokerUnavailableError):
            self._committed = {}

    def _report(self, error: BaseException | None) -> None:
        """Log a warning for the first of consecutive failed commits; `error` is None if the commit succeeded."""
        if error is not None and not self._warned:
            log.warning(
                "the query's offsets are not committed to the consumer group %s, and lag tools do not see how far it "
                "is; the query itself goes on: %s", self._offsets.group, error,
            )  # fmt: skip
        self._warned = error is not None


def open_group(properties: Mapping[str, str], group: str) -> GroupCommitter:
    """Return the committer for the consumer group `group`, in the cluster that the client properties name.

    The names of the `properties` are without the `kafka.` prefix.
    """
    return GroupCommitter(GroupOffsets(open_client(properties), group))
