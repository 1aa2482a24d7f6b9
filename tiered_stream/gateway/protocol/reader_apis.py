"""APIs that readers use, which are the only ones that the gateway passes on. No I/O.

Readers are Kafka's own consumers and group tools, librdkafka, franz-go, kafkajs, kafka-python and our own client.
Producers and admin clients must connect to the brokers.
"""

from __future__ import annotations

from tiered_stream.broker.wire.kafka_python import ApiKey

FETCH, METADATA, FIND_COORDINATOR = ApiKey.Fetch, ApiKey.Metadata, ApiKey.FindCoordinator
SASL_HANDSHAKE, API_VERSIONS = ApiKey.SaslHandshake, ApiKey.ApiVersions

READER_APIS = frozenset(
    {
        API_VERSIONS, SASL_HANDSHAKE, ApiKey.SaslAuthenticate, METADATA, ApiKey.ListOffsets, FETCH,
        ApiKey.OffsetForLeaderEpoch, FIND_COORDINATOR, ApiKey.JoinGroup, ApiKey.SyncGroup, ApiKey.Heartbeat,
        ApiKey.LeaveGroup, ApiKey.ConsumerGroupHeartbeat, ApiKey.OffsetCommit, ApiKey.OffsetFetch,
        ApiKey.DescribeGroups, ApiKey.ConsumerGroupDescribe, ApiKey.DescribeConfigs,
    }
)  # fmt: skip
"""APIs of consumers and of their group tools. By DescribeConfigs, a reader's tools ask whether a topic is tiered."""

SHOWN_VERSIONS = {ApiKey.Produce: (3, 3)}
"""Versions (oldest, newest) of APIs that ApiVersions responses list although the gateway refuses them.

Produce is listed for librdkafka. If a broker does not list Produce version 3, librdkafka's consumers assume a broker
older than Kafka 0.11, and send Fetch requests that no current broker understands.
"""
