"""Dataclasses whose fields are options: each field names its declaration, and is read by it."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, TypeVar

from tiered_stream.options.given import GivenOptions
from tiered_stream.options.types import Option, Queries

T = TypeVar("T")
_OPTION = "option"


def of(option: Option[T]) -> T:
    """The field of this option: its default is the option's; a secret stays out of the repr."""
    bound: T = field(default=option.default, repr=not option.secret, metadata={_OPTION: option})
    return bound


def declared(kind: type[Any]) -> dict[str, Option[Any]]:
    """The options of a dataclass, by field."""
    return {each.name: each.metadata[_OPTION] for each in fields(kind) if _OPTION in each.metadata}


def read_fields(kind: type[Any], given: GivenOptions, queries: Queries = Queries.ALL) -> dict[str, Any]:
    """What was given for a dataclass's fields; those of other queries are left out. Raises: as `GivenOptions.read`."""
    return {
        name: given.read(option)
        for name, option in declared(kind).items()
        if queries is Queries.ALL or option.queries in (Queries.ALL, queries)
    }
