"""Support for dataclasses whose fields have the values of options. Each field refers to its option."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, TypeVar

from tiered_stream.options.given import GivenOptions
from tiered_stream.options.types import Option, Queries

T = TypeVar("T")
_OPTION = "option"


def of(option: Option[T]) -> T:
    """Return a dataclass field with the default of `option`. If the option is secret, the field is not in the repr."""
    bound: T = field(default=option.default, repr=not option.secret, metadata={_OPTION: option})
    return bound


def declared(kind: type[Any]) -> dict[str, Option[Any]]:
    """Return the options of the dataclass `kind` by field name. Fields that were not made by `of` are left out."""
    return {member.name: member.metadata[_OPTION] for member in fields(kind) if _OPTION in member.metadata}


def read_fields(kind: type[Any], given: GivenOptions, queries: Queries = Queries.ALL) -> dict[str, Any]:
    """Return the parsed values of the options of the dataclass `kind`, or their defaults, by field name.

    Fields that were not made by `of` are left out. If `queries` is STREAMING or BATCH, options that are only for the
    other kind of query are left out.

    Raises:
        ConfigurationError: a value is malformed.
    """
    return {
        name: given.read(option)
        for name, option in declared(kind).items()
        if queries is Queries.ALL or option.queries in (Queries.ALL, queries)
    }
