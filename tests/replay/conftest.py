from __future__ import annotations

import pytest

from tests.replay.topics import ReplayedTopics, fill_topics
from tests.stack.tiered_stack import TieredStack


@pytest.fixture(scope="session")
def topics(stack: TieredStack) -> ReplayedTopics:
    return fill_topics(stack, seed=1)
