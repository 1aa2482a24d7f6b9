"""Properties of other programs that users give to the source, each with its effect here. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tiered_stream.options.types import Option


class Use(Enum):
    """Effect of a property that a user gives."""

    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    REFUSED = "an error"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """Property of Kafka's clients or of the storage plugin.

    Args:
        doc: what the property does if it is honoured, else why it has no effect or is refused.
        accepted: values of a refused property that are accepted; upper and lower case are the same.
        replaced_by: options that replace a refused property. If one of them is given, the property is not an error.
    """

    name: str
    use: Use
    doc: str
    default: str = ""
    accepted: tuple[str, ...] = ()
    replaced_by: tuple[Option[Any], ...] = ()

    def refuses(self, value: str) -> bool:
        """Return whether this value of the property is an error."""
        return self.use is Use.REFUSED and value.strip().lower() not in ("", *map(str.lower, self.accepted))


def properties_of(
    use: Use, names_by_doc: Mapping[str, str], replaced_by: tuple[Option[Any], ...] = ()
) -> Iterator[KnownProperty]:
    """Yield properties with the same effect. `names_by_doc` has their names, separated by blanks, by their `doc`."""
    for doc, names in names_by_doc.items():
        yield from (KnownProperty(name, use, doc, replaced_by=replaced_by) for name in names.split())
