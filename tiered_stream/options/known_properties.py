"""Declarations of properties of Kafka's clients and of storage plugins: each with its effect on the source. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tiered_stream.options.types import Option


class Use(Enum):
    """Effect of a property of another program on the source: as in that program, none, or an error."""

    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    REFUSED = "an error"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """Declaration of a property of Kafka's clients or of the storage plugin.

    Args:
        doc: the effect of a property with the use HONOURED; for another property, the reason why it has no effect or is
            refused.
        default: the default value, as the documentation shows it; empty: the property has no default.
        accepted: values with which a refused property is not an error; upper and lower case are the same.
        replaced_by: options that replace a refused property. If one of them is given, the property is not an error.
    """

    name: str
    use: Use
    doc: str
    default: str = ""
    accepted: tuple[str, ...] = ()
    replaced_by: tuple[Option[Any], ...] = ()

    def refuses(self, value: str) -> bool:
        """Return whether the property is an error if it has this value, without regard to `replaced_by`.

        A property with an empty value is never an error.
        """
        return self.use is Use.REFUSED and value.strip().lower() not in ("", *map(str.lower, self.accepted))


def properties_of(use: Use, names_by_doc: Mapping[str, str]) -> Iterator[KnownProperty]:
    """Yield the declaration of each property in `names_by_doc`, all with the effect `use`.

    A key of `names_by_doc` is a declaration's `doc`; its value has the properties' names, separated by blanks.
    """
    for doc, names in names_by_doc.items():
        yield from (KnownProperty(name, use, doc) for name in names.split())
