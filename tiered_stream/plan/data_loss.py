"""Reaction to lost records by the option `failOnDataLoss`: the query fails, or a warning is logged."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tiered_stream.errors import DataLossError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataLossPolicy:
    """Reaction to data loss: the query fails if `fail` is true; otherwise a warning is logged and the query goes on."""

    fail: bool

    def report(self, condition: str, reason: str) -> None:
        """Raise an error or log a warning that records are gone.

        Args:
            condition: Spark's name of the error under `KAFKA_DATA_LOSS`.
            reason: whole sentence that names the records, ending with a full stop.

        Raises:
            DataLossError: the policy is to fail.
        """
        if self.fail:
            raise DataLossError(
                f"[KAFKA_DATA_LOSS.{condition}] Records may be lost: {reason} "
                "To go on without them, set failOnDataLoss to false."
            )
        logger.warning(
            "[KAFKA_DATA_LOSS.%s] Records may be lost: %s To fail then, set failOnDataLoss to true.", condition, reason
        )
