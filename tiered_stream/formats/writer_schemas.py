"""Which schemas the values of a batch name (Confluent's wire format): a zero byte, and an id (int32, big endian)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from cachetools import LRUCache

from tiered_stream.errors import UnknownSchemaError
from tiered_stream.formats.byte_slices import ByteSlices
from tiered_stream.formats.schema_registry import RegisteredSchema, SchemaRegistry

T = TypeVar("T")
Rows = np.ndarray[Any, Any]

HEADER_SIZE = 5
NOT_FRAMED = "the value does not begin with a zero byte and the id of a schema"
_MOST_KEPT = 100
_MOST_UNKNOWN = 1000
"""Ids that are asked for in vain, in one batch: garbage must not become a flood of requests."""
_NOT_ASKED = f"its schema's id was not asked for: the registry lacks {_MOST_UNKNOWN} others that its batch has"


class WriterSchemas(Generic[T]):
    """Schemas by their ids, as `parse` reads them; a text says why there is none."""

    def __init__(self, registry: SchemaRegistry, parse: Callable[[int, RegisteredSchema], T | str]) -> None:
        self._registry = registry
        self._parse = parse
        self._kept: LRUCache[int, T | str] = LRUCache(_MOST_KEPT)

    def of(self, ids: Rows) -> dict[int, T | str]:
        """Of the ids of a batch's values, -1 being none. What many values name is asked for first.

        Raises:
            SchemaRegistryError: the registry cannot be asked; what it does not know is no error.
        """
        found, counts = np.unique(ids, return_counts=True)
        often = found[np.argsort(-counts)].tolist()
        writers: dict[int, T | str] = {}
        unknown = 0
        for each in often:
            known = self._kept.get(each)
            if each >= 0 and known is None and unknown < _MOST_UNKNOWN:
                try:
                    known = self._kept[each] = self._parse(each, self._registry.by_id(each))
                except UnknownSchemaError as error:
                    unknown += 1
                    known = str(error)
            writers[each] = _NOT_ASKED if known is None else known
        return writers


def schema_ids(slices: ByteSlices) -> Rows:
    """The id that each value names, -1 for those that name none."""
    starts = slices.starts.astype(np.int64)
    ids = np.full(len(slices), -1, np.int64)
    framed = np.flatnonzero((slices.valid != 0) & (slices.stops - starts >= HEADER_SIZE))
    framed = framed[slices.data[starts[framed]] == 0]
    named = np.zeros(len(framed), np.int64)
    for at in range(1, HEADER_SIZE):
        named = named << 8 | slices.data[starts[framed] + at]
    ids[framed] = np.where(named < 1 << 31, named, -1)
    return ids
