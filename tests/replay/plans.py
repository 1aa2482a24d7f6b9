"""A replay's plan, read by a batch query."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.replay.replay_plan import ReplayPlan


def batch_options(plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
    """As `ReplayPlan.stream_options`, for a batch query."""
    options = plan.stream_options(given)
    ends = options.pop("remote.stream.ending.offsets")
    return {**options, "endingOffsets": ends}
