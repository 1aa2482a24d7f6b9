"""APIs that readers use, which are the only ones that the gateway passes on. No I/O.

Readers are Kafka's own consumers and group tools, librdkafka, franz-go, kafkajs, kafka-python and our own client.
Producers and admin clients must connect to the brokers.
"""

from __future__ import annotations

FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS = 1, 3, 10, 17, 18

READER_APIS = frozenset(
    {
        FETCH, 2, METADATA,  # ListOffsets
        8, 9, FIND_COORDINATOR, 11, 12, 13, 14,  # OffsetCommit, -Fetch; JoinGroup, Heartbeat, LeaveGroup, SyncGroup
        15,  # DescribeGroups
        SASL_HANDSHAKE, API_VERSIONS, 36,  # SaslAuthenticate
        23,  # OffsetForLeaderEpoch
        32,  # DescribeConfigs: a reader's tools ask whether a topic is tiered
        68, 69,  # ConsumerGroupHeartbeat, ConsumerGroupDescribe (KIP-848)
    }
)  # fmt: skip

SHOWN_VERSIONS = {0: (3, 3)}
"""Versions (oldest, newest) of APIs that ApiVersions responses list although the gateway refuses them.

Produce is listed for librdkafka: its consumers take a broker without Produce version 3 for one older than Kafka 0.11,
and send Fetch requests that no current broker understands.
"""
