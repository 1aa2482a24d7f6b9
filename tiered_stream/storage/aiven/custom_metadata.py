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

_OBJECT_PREFIX = 1
_OBJECT_KEY = 2


@dataclass(frozen=True, slots=True)
class SegmentCustomMetadata:
    """Key prefix and key of a segment's objects, as far as its custom metadata has them.

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
        fields = _tagged_fields(data)
        return SegmentCustomMetadata(
            *(_compact_string(fields[tag]) if tag in fields else None for tag in (_OBJECT_PREFIX, _OBJECT_KEY))
        )
    except (ValueError, IndexError) as error:
        raise CorruptDataError(
            f"the segment's custom metadata ({len(data)} bytes) is not of the Aiven plugin's form: {error}"
        ) from error


def custom_metadata(object_prefix: str) -> bytes:
    """Return custom metadata with one field: the key prefix of a segment's objects."""
    text = object_prefix.encode()
    field = _encoded(len(text) + 1) + text
    return _encoded(1) + _encoded(_OBJECT_PREFIX) + _encoded(len(field)) + field


def _encoded(value: int) -> bytes:
    """Return `value` as an unsigned varint."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _tagged_fields(data: bytes) -> dict[int, bytes]:
    fields = {}
    count, at = _uvarint(data, 0)
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        if size > len(data) - at:
            raise ValueError(f"field {tag} is cut off")
        fields[tag] = data[at : at + size]
        at += size
    return fields


def _compact_string(data: bytes) -> str:
    size, at = _uvarint(data, 0)
    if size - 1 != len(data) - at:
        raise ValueError(f"a text of {size - 1} bytes is said to be in {len(data) - at}")
    return data[at:].decode("utf-8")


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read the unsigned varint at the position `at`, and return its value and the position after it.

    Raises:
        IndexError: the data ends in the varint.
        ValueError: the varint has more than 5 bytes.
    """
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is too long")
