from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.model import uuid_from_text, uuid_to_text


def test_the_text_is_kafkas() -> None:
    # `Uuid.METADATA_TOPIC_ID`, and bytes that need both characters in which URL-safe base64 differs.
    assert uuid_to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(UUID(bytes=b"\xfb\xff" * 8)) == "-__7__v_-__7__v_-__7_w"


@given(st.uuids())
def test_a_uuid_survives_its_text(value: UUID) -> None:
    assert uuid_from_text(uuid_to_text(value)) == value


@pytest.mark.parametrize("text", ["", "short", "oWwjcqPvwSyGn_KzJjVIwQ==", "oWwjcqPvwSyGn/KzJjVIwQ", "ö" * 22])
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka UUID"):
        uuid_from_text(text)
