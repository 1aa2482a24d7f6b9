"""Encoding and decoding of the field types in flexible versions of Kafka's messages (KIP-482).

    uvarint         seven bits a byte, lowest first; at most five bytes
    compact string  uvarint of the number of bytes + 1 (0: null), then the bytes; compact bytes likewise
    compact array   uvarint of the number of items + 1 (0: null), then the items
    tagged fields   uvarint of the number of fields; for each field its tag and its size as uvarints, then its bytes

Functions encode, and `Reader` decodes. `Reader` raises ValueError for malformed bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from struct import Struct
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

NO_TAGS = b"\0"

_LAST_UVARINT_SHIFT = 4 * 7
_NO_UUID = bytes(16)


class Reader:
    """Decoder of `data`, from `position` on. Each method decodes one value, and moves `position` past the value.

    A length or a number of items that exceeds the available bytes is an error, before memory is allocated for it.

    Raises (all methods):
        ValueError: the bytes end too early or are malformed.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, size: int, what: str = "a field") -> bytes:
        """Return the next `size` bytes. `what` names them in an error message."""
        start = self.position
        self.skip(size, what)
        return self.data[start : self.position]

    def skip(self, size: int, what: str = "a field") -> None:
        """Skip the next `size` bytes. `what` names them in an error message."""
        if self.position + size > len(self.data):
            raise ValueError(f"{what} is cut off")
        self.position += size

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Read fields of fixed size, as `layout` describes them, and return their values."""
        try:
            fields = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise ValueError("a number is cut off") from error
        self.position += layout.size
        return fields

    def uvarint(self) -> int:
        value = shift = 0
        try:
            while (byte := self.data[self.position]) >= 0x80:
                self.position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > _LAST_UVARINT_SHIFT:
                    raise ValueError("a number is too long")
        except IndexError as error:
            raise ValueError("a number is cut off") from error
        self.position += 1
        return value | byte << shift

    def compact_bytes(self) -> bytes | None:
        size = self.uvarint()
        return self.take(size - 1, "a text") if size else None

    def nullable_string(self) -> str | None:
        size = self.uvarint()
        return self.take(size - 1, "a text").decode() if size else None

    def compact_string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ValueError("a text is null")
        return value

    def uuid(self) -> UUID | None:
        """Read a UUID of 16 bytes. Return None if all bytes are zero, which means that there is no id."""
        value = self.take(16)
        return None if value == _NO_UUID else UUID(bytes=value)

    def array(self, min_item_bytes: int, read: Callable[[Reader], T]) -> list[T]:
        """Read a compact array, and return its items, each read by `read`. A null array gives an empty list.

        `min_item_bytes` is the minimum size of an encoded item. An array with more items than the available bytes can
        hold is an error.
        """
        return [read(self) for _ in range(self._count(min_item_bytes))]

    def structs(self, layout: Struct) -> Iterable[tuple[Any, ...]]:
        """Read a compact array of structs of fixed size, and return the values of each struct, without tagged fields.

        `layout` describes one struct. It must end with `x` (one byte), because a struct without tagged fields ends with
        one zero byte.
        """
        count = self._count(layout.size)
        if not count:
            return ()
        end = self.position + count * layout.size
        block = self.data[self.position : end]
        if any(block[layout.size - 1 :: layout.size]):
            return [self._one_struct(layout) for _ in range(count)]
        self.position = end
        return layout.iter_unpack(block)

    def _one_struct(self, layout: Struct) -> tuple[Any, ...]:
        fields = self.unpack(layout)
        self.position -= len(NO_TAGS)
        self.tags()
        return fields

    def _count(self, min_item_bytes: int) -> int:
        size = self.uvarint()
        if (size - 1) * min_item_bytes > len(self.data) - self.position:
            raise ValueError(f"{size - 1} items in {len(self.data) - self.position} bytes")
        return size and size - 1

    def tags(self) -> dict[int, bytes]:
        """Read a section of tagged fields, and return the encoded value of each field by tag."""
        if self.data[self.position : self.position + 1] == NO_TAGS:  # almost always true
            self.position += 1
            return {}
        fields = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            fields[tag] = self.take(self.uvarint(), "a tagged field")
        return fields


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else uvarint(len(value) + 1) + value


def compact_string(value: str | None) -> bytes:
    return compact_bytes(None if value is None else value.encode())


def compact_array(items: Collection[bytes]) -> bytes:
    """Return the compact array of `items`, which are already encoded, as bytes."""
    return array_length(items) + b"".join(items)


def array_length(items: Sized) -> bytes:
    """Return the encoded length that precedes `items` in a compact array."""
    return uvarint(len(items) + 1)


def uuid_bytes(value: UUID | None) -> bytes:
    return _NO_UUID if value is None else value.bytes


def tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """Return an encoded section of tagged fields; `fields` has the encoded values by tag."""
    return b"".join(tagged_field_pieces(fields))


def tagged_field_pieces(fields: Mapping[int, bytes]) -> list[bytes]:
    """Return an encoded section of tagged fields in several pieces, so that large values are not copied.

    `fields` has the encoded values by tag.
    """
    pieces = [uvarint(len(fields))]
    for tag, value in sorted(fields.items()):
        pieces += uvarint(tag), uvarint(len(value)), value
    return pieces
