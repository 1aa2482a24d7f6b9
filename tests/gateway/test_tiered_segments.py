"""What the gateway knows of the tier, of a real broker."""

from __future__ import annotations

from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, recreate_topic
from tiered_stream.broker.client import BrokerClient
from tiered_stream.gateway.tiered_segments import TieredSegments
from tiered_stream.model import TopicPartition
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher


def test_a_topic_that_was_made_again_is_looked_at_anew_however_fresh_its_predecessor_is(
    stack: TieredStack, topic: str
) -> None:
    here = TopicPartition(topic, 0)
    create_tiered_topic(stack.broker, topic)
    with BrokerClient({"bootstrap.servers": stack.bootstrap_servers}) as client:
        tier = TieredSegments(client, LocalLayoutFetcher(FileStore(stack.tier_dir)), 1 << 20, fresh_seconds=1e9)
        before = client.metadata([topic])[topic].topic_id
        assert tier.visible({here: before}) == {here: ()}
        recreate_topic(stack.broker, topic)
        after = client.metadata([topic])[topic].topic_id
        assert tier.visible({here: after}) == {here: ()}
        assert tier.visible({here: before}) == {}
        tier.close()
