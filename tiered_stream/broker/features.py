"""Which features the brokers speak (Kafka: ApiVersions, KIP-584)."""

from __future__ import annotations

from kafka.protocol.metadata import ApiVersionsRequest

from tiered_stream.broker.client import BrokerClient

_FIRST_WITH_FEATURES = 3


def supported_feature(client: BrokerClient, name: str) -> int:
    """The newest version of the feature that the broker which answers first supports; 0: it does not know it.

    Raises:
        BrokerError: no broker answers.
    """
    response = client.ask_any_broker(
        lambda: ApiVersionsRequest(client_software_name="tiered-stream", client_software_version="1")
    )
    if response.API_VERSION < _FIRST_WITH_FEATURES:
        return 0
    return max(
        (feature.max_version for feature in response.supported_features or () if feature.name == name), default=0
    )
