"""A consumer group that follows a query, so that lag tools show the query (option `kafka.consumer.commit.groupid`)."""

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
    """Commits a query's offsets to a consumer group, so that lag tools show them.

    Commits run in the background, one at a time, and always with the newest offsets. A failed commit is only a warning.
    """

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._wanted: PartitionOffsets = {}
        self._sent: PartitionOffsets = {}
        self._under_way: Future[None] | None = None
        self._warned = False

    def begin(self, initial: PartitionOffsets) -> None:
        """Set the start offsets of the query, which has read nothing yet."""
        self._wanted = self._sent = initial

    def follow(self, offsets: PartitionOffsets) -> None:
        """Commit these offsets, because all records before them are processed."""
        self._wanted = offsets
        if self._under_way is not None and self._under_way.done():
            self._report(self._under_way.exception())
            self._under_way = None
        if self._under_way is None and offsets and offsets != self._sent:
            self._sent = offsets
            try:
                self._under_way = self._offsets.start_commit(offsets)
            except TieredStreamError as error:  # the client was closed
                self._report(error)

    def settle(self) -> None:
        """Wait for the last commits at the end of the run; each commit has a deadline."""
        while self._under_way is not None:
            wait([self._under_way])
            self.follow(self._wanted)

    def _report(self, error: BaseException | None) -> None:
        """Log the first of consecutive failed commits; `error` is None after a commit that did not fail."""
        if error is not None and not self._warned:
            log.warning(
                "the query's offsets are not committed to the consumer group %s, and lag tools do not see how far it "
                "is; the query itself goes on: %s", self._offsets.group, error,
            )  # fmt: skip
        self._warned = error is not None


def open_group(properties: Mapping[str, str], group: str) -> GroupFollower:
    """Return the follower that commits to the group in the cluster with these client properties."""
    return GroupFollower(GroupOffsets(open_client(properties), group))
