from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import NAMES, golden
from tests.storage.golden_aiven import KEY_PREFIX, manifests
from tiered_stream.errors import CorruptDataError
from tiered_stream.locate.metadata_topic.remote_log_metadata import SegmentMetadata, decode_remote_log_metadata
from tiered_stream.storage.aiven.custom_metadata import SegmentCustomMetadata, custom_metadata, parse_custom_metadata

# What a broker wrote: three fields; 0, the size, 4 bytes; 1, the prefix, "plain/"; 2, the key, of 74 bytes.
GOLDEN = (
    b"\x03\x00\x04\xde\xfa\xfe\x01\x01\x07\x07plain/\x02KK"
    + b"plain-TC3QWMMPTXCRm2eTtHMtjQ/1/00000000000000000000-Bm7-kf5iTWOr-P7cMeCP1A"
)
KEY = "plain-TC3QWMMPTXCRm2eTtHMtjQ/1/00000000000000000000-Bm7-kf5iTWOr-P7cMeCP1A"


def test_prefix_and_key_are_read() -> None:
    assert parse_custom_metadata(GOLDEN) == SegmentCustomMetadata("plain/", KEY)


@pytest.mark.parametrize("name", NAMES)
def test_the_brokers_custom_metadata_names_the_objects_in_the_bucket(name: str) -> None:
    records = [decode_remote_log_metadata(value) for _, _, value in golden(name).remote_log_metadata()]
    segments = [record.segment for record in records if isinstance(record, SegmentMetadata)]
    places = {parse_custom_metadata(segment.custom_metadata) for segment in segments}
    assert {SegmentCustomMetadata(KEY_PREFIX[name], key) for key in manifests(name)} <= places


@given(st.text(max_size=300))
def test_a_prefix_that_is_written_is_read_again(prefix: str) -> None:
    assert parse_custom_metadata(custom_metadata(prefix)) == SegmentCustomMetadata(prefix)


@pytest.mark.parametrize("data", [None, b"", b"\0"])
def test_none_is_no_field(data: bytes | None) -> None:
    assert parse_custom_metadata(data) == SegmentCustomMetadata()


def test_a_field_that_is_not_known_is_passed_over() -> None:
    assert parse_custom_metadata(b"\2\2\3\3ab\x63\2xy") == SegmentCustomMetadata(None, "ab")


@pytest.mark.parametrize("size", range(1, len(GOLDEN)))
def test_a_section_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError, match="custom metadata"):
        parse_custom_metadata(GOLDEN[:size])


@given(st.binary(max_size=60))
def test_any_bytes_give_fields_or_our_error(data: bytes) -> None:
    try:
        assert isinstance(parse_custom_metadata(data), SegmentCustomMetadata)
    except CorruptDataError:
        pass
