"""Settings of topics by DescribeConfigs; against a real broker they are asked for in `tests/cli`."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from tests.broker.scripted import MetadataRequest, ScriptedClient, metadata
from tiered_stream.broker.list_offsets import topic_configs

TOPIC_AUTHORIZATION_FAILED = 29


def answer(node_id: int, message: Any) -> Any:
    if isinstance(message, MetadataRequest):
        return metadata()
    kind = DescribeConfigsResponse.DescribeConfigsResult
    config = kind.DescribeConfigsResourceResult
    return DescribeConfigsResponse(
        results=[
            kind(
                error_code=TOPIC_AUTHORIZATION_FAILED * (each.resource_name == "secret"),
                resource_name=each.resource_name,
                configs=[
                    config(name=name, value=value)
                    for name, value in (("retention.ms", "7"), ("empty", None))
                    if name in each.configuration_keys
                ],
            )
            for each in message.resources
        ]
    )


def test_topics_are_asked_for_together_and_those_that_are_refused_left_out() -> None:
    client = ScriptedClient(answer)
    found = topic_configs(client, ["t", "secret"], ["retention.ms", "empty", "remote.copy.lag.ms"])
    assert found == {"t": {"retention.ms": "7"}}
    assert len(client.asked(DescribeConfigsRequest)) == 1
