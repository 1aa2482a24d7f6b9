"""Kafka 4.3's definitions of answers that kafka-python does not have (clients/src/main/resources/common/message)."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ShareFetchResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc]
    """Records for a member of a share group."""


class ShareAcknowledgeResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc]
    """What became of acknowledgements."""
