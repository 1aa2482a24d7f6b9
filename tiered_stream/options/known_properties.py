"""Declarations of properties of Kafka's clients and of storage plugins: each with its effect on the source. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tiered_stream.options.types import Option


class Use(Enum):
    """Effect of a property of another program on the source: honoured, accepted without effect, or refused."""

    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    REFUSED = "an error"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """Declaration of a property of Kafka's clients or of the storage plugin.

    Args:
        doc: the effect of an honoured property; for another property, the reason why it has no effect or is refused.
        default: the default for the documentation; empty: there is none.
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
        """Return whether the property with this value is an error; an empty value is not.

        `replaced_by` is not considered.
        """
        return self.use is Use.REFUSED and value.strip().lower() not in ("", *map(str.lower, self.accepted))


def properties_of(
    use: Use, names_by_doc: Mapping[str, str], replaced_by: tuple[Option[Any], ...] = ()
) -> Iterator[KnownProperty]:
    """Yield a property for each name in `names_by_doc`, all with the effect `use` and with `replaced_by`.

    `names_by_doc` maps a text for `doc` to names separated by blanks.
    """
    for doc, names in names_by_doc.items():
        yield from (KnownProperty(name, use, doc, replaced_by=replaced_by) for name in names.split())
