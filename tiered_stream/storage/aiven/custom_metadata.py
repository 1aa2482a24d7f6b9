"""Decoder and encoder of the Aiven plugin's custom metadata of a segment (`custom.metadata.fields.include`).

The bytes are a section of Kafka's tagged fields (Aiven: `SegmentCustomMetadataSerde`):

    uvarint  count
    then each field
        uvarint  tag        0 remote size, 1 object prefix, 2 object key; ascending
        uvarint  size       number of bytes of the value below
        0: varlong          number of bytes of the segment in the storage
        1: compact string   key prefix with which the segment was written
        2: compact string   key without prefix and suffix
    compact string: uvarint size + 1, UTF-8
"""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import CorruptDataError
from tiered_stream.records.flexible_versions import Reader, compact_string, tagged_fields

_OBJECT_PREFIX = 1
_OBJECT_KEY = 2


@dataclass(frozen=True, slots=True)
class SegmentCustomMetadata:
    """Key prefix and key of a segment's objects, from the segment's custom metadata; each is None if it is not there.

    If `object_prefix` is None, the plugin's `key.prefix` is the prefix. If `object_key` is None, the key follows from
    the segment's ids (see `main_path`).
    """

    object_prefix: str | None = None
    object_key: str | None = None


def parse_custom_metadata(data: bytes | None) -> SegmentCustomMetadata:
    """Parse custom metadata; unknown fields are skipped. If `data` is None, no field is set.

    Raises:
        CorruptDataError: `data` has another form.
    """
    if not data:
        return SegmentCustomMetadata()
    try:
        fields = Reader(data).tags()
        return SegmentCustomMetadata(
            *(_text(fields[tag]) if tag in fields else None for tag in (_OBJECT_PREFIX, _OBJECT_KEY))
        )
    except ValueError as error:
        raise CorruptDataError(
            f"the segment's custom metadata ({len(data)} bytes) is not of the Aiven plugin's form: {error}"
        ) from error


def custom_metadata(object_prefix: str) -> bytes:
    """Return custom metadata with one field: the key prefix of a segment's objects."""
    return tagged_fields({_OBJECT_PREFIX: compact_string(object_prefix)})


def _text(field: bytes) -> str:
    """Decode a field that is one compact string. Raises ValueError if it is not."""
    reader = Reader(field)
    text = reader.compact_string()
    if reader.position != len(field):
        raise ValueError(f"{len(field) - reader.position} bytes follow a text")
    return text
