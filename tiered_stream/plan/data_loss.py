"""`failOnDataLoss`: what happens when records that the query was to read are gone."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tiered_stream.errors import DataLossError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataLossPolicy:
    """Fails on data loss, or lets the query go on with a warning."""

    fail: bool

    def report(self, condition: str, reason: str) -> None:
        """Say that records are gone; `condition` is Spark's name under `KAFKA_DATA_LOSS`.

        Raises:
            DataLossError: the query is to fail.
        """
        if self.fail:
            raise DataLossError(
                f"[KAFKA_DATA_LOSS.{condition}] Records may be lost: {reason} "
                "To go on without them, set failOnDataLoss to false."
            )
        logger.warning(
            "[KAFKA_DATA_LOSS.%s] Records may be lost: %s To fail then, set failOnDataLoss to true.", condition, reason
        )
