"""Committer of a query's offsets to a consumer group (option `kafka.consumer.commit.groupid`)."""

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
    """Committer of a query's offsets to a consumer group, so that lag tools show the query.

    Commits run in the background, one at a time, and always with the newest offsets. If a commit fails, only a warning
    is logged.
    """

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._newest: PartitionOffsets = {}
        self._committed: PartitionOffsets = {}
        self._commit: Future[None] | None = None
        self._warned = False

    def begin(self, initial: PartitionOffsets) -> None:
        """Set the start offsets of the query; they are not committed."""
        self._newest = self._committed = initial

    def follow(self, offsets: PartitionOffsets) -> None:
        """Commit `offsets`, before which all records are processed, in the background.

        If a commit is still running, a later call of `follow` or `settle` commits the newest offsets.
        """
        self._newest = offsets
        if self._commit is not None and self._commit.done():
            self._report(self._commit.exception())
            self._commit = None
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
            self.follow(self._newest)

    def _report(self, error: BaseException | None) -> None:
        """Log a warning for the first of consecutive failed commits; `error` is None if the commit succeeded."""
        if error is not None and not self._warned:
            log.warning(
                "the query's offsets are not committed to the consumer group %s, and lag tools do not see how far it "
                "is; the query itself goes on: %s", self._offsets.group, error,
            )  # fmt: skip
        self._warned = error is not None


def open_group(properties: Mapping[str, str], group: str) -> GroupFollower:
    """Return the committer for the consumer group `group` in the cluster that the client's `properties` name."""
    return GroupFollower(GroupOffsets(open_client(properties), group))
