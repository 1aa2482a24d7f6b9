"""A consumer group that follows a query, so that lag tools see it (option `kafka.consumer.commit.groupid`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait

from tiered_stream.broker.client import open_client
from tiered_stream.broker.group_offsets import GroupOffsets
from tiered_stream.errors import TieredStreamError
from tiered_stream.model import PartitionOffsets

log = logging.getLogger(__name__)


class GroupFollower:
    """Lets a group's committed offsets follow a query, so that lag tools show it.

    It works in the background, one commit at a time and the newest offsets next; what goes wrong is a warning.
    """

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._wanted: PartitionOffsets = {}
        self._sent: PartitionOffsets = {}
        self._under_way: Future[None] | None = None
        self._warned = False

    def begin(self, initial: PartitionOffsets) -> None:
        """The query starts there, and has read nothing yet."""
        self._wanted = self._sent = initial

    def follow(self, offsets: PartitionOffsets) -> None:
        """All before these offsets is done."""
        self._wanted = offsets
        if self._under_way is not None and self._under_way.done():
            self._tell(self._under_way)
            self._under_way = None
        if self._under_way is None and offsets and offsets != self._sent:
            self._sent = offsets
            try:
                self._under_way = self._offsets.start_commit(offsets)
            except TieredStreamError as error:  # the client was closed
                self._warn(error)

    def settle(self) -> None:
        """The run is at its end: wait for what is under way, which has a deadline."""
        while self._under_way is not None:
            wait([self._under_way])
            self.follow(self._wanted)

    def _tell(self, done: Future[None]) -> None:
        error = done.exception()
        if error is None:
            self._warned = False
        else:
            self._warn(error)

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            log.warning(
                "the query's offsets are not committed to the consumer group %s, and lag tools do not see how far it "
                "is; the query itself goes on: %s", self._offsets.group, error,
            )  # fmt: skip
        self._warned = True


def open_group(properties: Mapping[str, str], group: str) -> GroupFollower:
    """The follower of the group in the cluster with these client properties."""
    return GroupFollower(GroupOffsets(open_client(properties), group))
