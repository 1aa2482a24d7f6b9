"""APIs that readers use, which are the only ones that the gateway passes on. No I/O.

Readers are Kafka's own consumers and group tools, librdkafka, franz-go, kafkajs, kafka-python and our own client.
Producers and admin clients must connect to the brokers.
"""

from __future__ import annotations

from tiered_stream.broker.wire.kafka_python import api_name
from tiered_stream.gateway.protocol.frames import FrameError

FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, DESCRIBE_CLUSTER = 1, 3, 10, 17, 18, 60

READER_APIS = frozenset(
    {
        FETCH, 2, METADATA,  # ListOffsets
        8, 9, FIND_COORDINATOR, 11, 12, 13, 14,  # OffsetCommit, -Fetch; JoinGroup, Heartbeat, LeaveGroup, SyncGroup
        15,  # DescribeGroups
        SASL_HANDSHAKE, API_VERSIONS, 36,  # SaslAuthenticate
        23,  # OffsetForLeaderEpoch
        32,  # DescribeConfigs: a reader's tools ask whether a topic is tiered
        DESCRIBE_CLUSTER,
        68, 69,  # ConsumerGroupHeartbeat, ConsumerGroupDescribe (KIP-848)
    }
)  # fmt: skip

SHOWN_VERSIONS = {0: (3, 3)}
"""Versions (oldest, newest) of APIs that ApiVersions responses list although the gateway refuses them.

Produce is listed for librdkafka: its consumers take a broker without Produce version 3 for one older than Kafka 0.11,
and send Fetch requests that no current broker understands.
"""


def check_api(api_key: int) -> None:
    """Raise FrameError if the API is not one that readers use.

    Raises:
        FrameError: the message names the API and says what to do.
    """
    if api_key not in READER_APIS:
        raise FrameError(
            f"{api_name(api_key)} requests are refused: the gateway passes on what readers send. "
            "Clients that write or administer connect to the brokers"
        )
