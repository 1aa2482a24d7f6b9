"""The APIs that the gateway passes on: those that readers send. No I/O.

Readers are Kafka's own consumers and tools that look at groups, librdkafka, franz-go, kafkajs, kafka-python and our own
client. Whoever writes or administers connects to the brokers.
"""

from __future__ import annotations

from tiered_stream.broker.kafka_python import api_name
from tiered_stream.gateway.frames import FrameError

FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, DESCRIBE_CLUSTER = 1, 3, 10, 17, 18, 60

READER_APIS = frozenset(
    {
        FETCH, 2, METADATA,  # ListOffsets
        8, 9, FIND_COORDINATOR, 11, 12, 13, 14,  # offsets; then Join-, Leave- and SyncGroup, Heartbeat
        15,  # DescribeGroups
        SASL_HANDSHAKE, API_VERSIONS, 36,  # SaslAuthenticate
        23,  # OffsetForLeaderEpoch
        32,  # DescribeConfigs: a reader's tools ask whether a topic is tiered
        DESCRIBE_CLUSTER,
        68, 69,  # ConsumerGroupHeartbeat, ConsumerGroupDescribe (KIP-848)
    }
)  # fmt: skip

SHOWN_VERSIONS = {0: (3, 3)}
"""Versions of APIs that are listed in ApiVersions answers and refused all the same.

Produce: librdkafka's consumers take a broker without it for one of before Kafka 0.11, and send Fetch requests that no
broker understands.
"""


def check_api(api_key: int) -> None:
    """Refuse what readers do not send.

    Raises:
        FrameError: names the API, and says what to do.
    """
    if api_key not in READER_APIS:
        raise FrameError(
            f"{api_name(api_key)} requests are refused: the gateway passes on what readers send. "
            "Clients that write or administer connect to the brokers"
        )
