"""Reader of topic settings that the user is authorized to read (Kafka: DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Collection

from kafka.protocol.admin import DescribeConfigsRequest

from tiered_stream.broker.client import BrokerClient

_TOPIC_RESOURCE = 2


def topic_configs(client: BrokerClient, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return, by topic, the values of the settings in `names` that the brokers report, by setting name.

    Topics whose settings the brokers do not report, because of an error or a missing ACL, are left out.

    Raises:
        BrokerError: no broker responds, or the broker does not support DescribeConfigs.
    """
    kind = DescribeConfigsRequest.DescribeConfigsResource
    response = client.ask_any_broker(
        lambda: DescribeConfigsRequest(
            resources=[
                kind(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names))
                for topic in sorted(topics)
            ]
        )
    )
    return {
        result.resource_name: {config.name: config.value for config in result.configs if config.value is not None}
        for result in response.results
        if not result.error_code
    }
