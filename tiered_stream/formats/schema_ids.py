"""Which schemas the values of a batch name, in front of the value or in a record header (Confluent's wire format).

In front: a zero byte, and the schema's id (int32, big endian). In the header `__key_schema_id` or `__value_schema_id`:
a byte 1 and the schema's GUID (16 bytes), or what would be in front; the value is then the content alone. Of protobuf,
which message of the schema it is follows in the same place. A header counts before what is in front.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from tiered_stream.formats.byte_slices import ByteSlices
from tiered_stream.formats.decoded import Decoded

Rows = np.ndarray[Any, Any]

NONE, BAD_HEADER = -1, -2
"""In place of a schema's number: the value names none, or its header is none of a schema."""
NOT_FRAMED = "the value does not begin with a zero byte and the id of a schema"
WHY_NONE = {
    NONE: NOT_FRAMED,
    BAD_HEADER: "its header for the schema's id holds neither an id nor a GUID",
}
PREFIX_SIZE = 5
_GUID_SIZE = 17
_FIRST_GUID = 1 << 31
"""Ids are smaller: numbers from here on stand for GUIDs."""
_MOST_GUIDS = 10_000
_MOST_HEADER = 512
"""Bytes of a header that are looked at: a GUID, and 64 numbers that say which message."""


@dataclass(frozen=True, slots=True)
class NamedSchemas:
    """What the values of one batch name."""

    numbers: Rows
    """For each value the schema's id, the number that stands for a GUID, `NONE` or `BAD_HEADER`."""
    sizes: Rows
    """Bytes in front of each value's content."""
    guids: dict[int, UUID] = field(default_factory=dict)
    """By number."""
    headers: Rows | None = None
    """For each value the place in `behind` of its header, -1 where it has none."""
    behind: tuple[bytes, ...] = ()
    """What headers hold behind the id or the GUID."""

    def name(self, number: int) -> str:
        """How messages call the schema."""
        return str(self.guids.get(number, number))


class SchemaIds:
    """Reads what values name; one decoder's own, so that a GUID keeps its number."""

    def __init__(self, header: str) -> None:
        """`header` is the record header's name."""
        self._header = header
        self._numbers: LRUCache[UUID, int] = LRUCache(_MOST_GUIDS)
        self._next = _FIRST_GUID

    def named(self, slices: ByteSlices, headers: pa.ListArray | None) -> NamedSchemas:
        """`headers` are those of the values' records; None: they are not looked at."""
        numbers = prefixed_ids(slices)
        sizes = np.where(numbers >= 0, PREFIX_SIZE, 0)
        found = None if headers is None else _headers_called(self._header, headers)
        if found is None:
            return NamedSchemas(numbers, sizes)
        places, contents = found
        guids: dict[int, UUID] = {}
        parsed = [self._parsed(content, guids) for content in contents]
        rows = np.flatnonzero((places >= 0) & (slices.valid != 0))
        numbers[rows] = np.array([number for number, _ in parsed], np.int64)[places[rows]]
        sizes[rows] = 0
        places[slices.valid == 0] = -1
        return NamedSchemas(numbers, sizes, guids, places, tuple(rest for _, rest in parsed))

    def _parsed(self, content: bytes, guids: dict[int, UUID]) -> tuple[int, bytes]:
        """The number of the schema that a header names, and what is behind it."""
        if content[:1] == b"\1" and len(content) >= _GUID_SIZE:
            guid = UUID(bytes=content[1:_GUID_SIZE])
            number = self._numbers.get(guid)
            if number is None:
                # Never one that was in use: decoders keep what they know by numbers.
                number = self._numbers[guid] = self._next
                self._next += 1
            guids[number] = guid
            return number, content[_GUID_SIZE:]
        schema_id = int.from_bytes(content[1:PREFIX_SIZE])
        if content[:1] == b"\0" and len(content) >= PREFIX_SIZE and schema_id < _FIRST_GUID:
            return schema_id, content[PREFIX_SIZE:]
        return BAD_HEADER, b""


class NamingDecoder(ABC):
    """Decodes values that name their schemas. One thread uses it, for as many batches as there are."""

    def __init__(self, header: str) -> None:
        self._ids = SchemaIds(header)

    @property
    @abstractmethod
    def kind(self) -> pa.DataType:
        """As `ValueDecoder.kind`."""

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        """Any bytes give a row or a reason; `headers` as in `SchemaIds.named`.

        Raises:
            SchemaRegistryError: the registry cannot be asked. What it does not know is a value's reason.
            UnsupportedDataError: a number becomes wider in two ways.
        """
        slices = ByteSlices.of(values)
        return self._decode(values, slices, self._ids.named(slices, headers))

    @abstractmethod
    def _decode(self, values: pa.BinaryArray, slices: ByteSlices, named: NamedSchemas) -> Decoded:
        """`slices` are the values."""


def prefixed_ids(slices: ByteSlices) -> Rows:
    """The id in front of each value, `NONE` for those that have none."""
    starts = slices.starts.astype(np.int64)
    ids = np.full(len(slices), NONE, np.int64)
    framed = np.flatnonzero((slices.valid != 0) & (slices.stops - starts >= PREFIX_SIZE))
    framed = framed[slices.data[starts[framed]] == 0]
    named = np.zeros(len(framed), np.int64)
    for at in range(1, PREFIX_SIZE):
        named = named << 8 | slices.data[starts[framed] + at]
    ids[framed] = np.where(named < _FIRST_GUID, named, NONE)
    return ids


def _headers_called(name: str, headers: pa.ListArray) -> tuple[Rows, list[bytes]] | None:
    """For each record the place of its last header of that name among different ones, or -1; None: nobody has it."""
    flat = pc.list_flatten(headers)
    hits = pc.indices_nonzero(pc.equal(pc.struct_field(flat, ["key"]), name))
    if not len(hits):
        return None
    contents = pc.binary_slice(pc.struct_field(flat, ["value"]).take(hits), 0, _MOST_HEADER).dictionary_encode()
    places = np.full(len(headers), -1, np.int64)
    # Of several the last one stays; one without a value says nothing.
    places[np.asarray(pc.list_parent_indices(headers).take(hits))] = np.asarray(pc.fill_null(contents.indices, -1))
    return places, contents.dictionary.to_pylist()
