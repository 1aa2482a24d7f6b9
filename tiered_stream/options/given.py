"""The raw options of one query: looked up in any case, read through their declarations, checked for unknown names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.placeholders import check_placeholders
from tiered_stream.options.remote_options import BROKER_PROPERTIES, RSM_CONFIG_PREFIX
from tiered_stream.options.spark_options import GROUP_ID
from tiered_stream.options.tables import OPTIONS
from tiered_stream.options.types import HiddenValueError, Option, Queries
from tiered_stream.options.unknown_names import is_slip, nearest_name

logger = logging.getLogger("tiered_stream.options.parsing")

T = TypeVar("T")

_SHOWN_CHARACTERS = 200
_NAMES = {option.name.lower(): option.name for option in OPTIONS}


def is_known(name: str) -> bool:
    """Whether it is an option of the source; in lower case."""
    return name in _NAMES


class GivenOptions:
    """What the user gave. A value is parsed when it is read: as in Spark, what nobody asks for is not checked."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(raw[name]) for name in raw if raw[name] is not None}

    def has(self, option: Option[Any]) -> bool:
        return option.name.lower() in self._values

    def read(self, option: Option[T]) -> T:
        """The option's value, its default when it is not given.

        Raises:
            ConfigurationError: names the option, its value unless that is secret, and what it should be.
        """
        value = self._values.get(option.name.lower())
        if value is None:
            return option.default
        try:
            return option.parse(value)
        except ConfigurationError:
            raise
        except ValueError as error:
            secret = option.secret or isinstance(error, HiddenValueError)
            shown = "the value" if secret else repr(value[:_SHOWN_CHARACTERS])
            raise ConfigurationError(f"option {option.name}: {shown} {error}") from (None if secret else error)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """The options whose names begin with `prefix`, it taken off; names in lower case."""
        return {name.removeprefix(prefix): value for name, value in self._values.items() if name.startswith(prefix)}

    def or_else(self, values: Mapping[str, str]) -> GivenOptions:
        """These options, and `values` for what the user has not given."""
        return GivenOptions({**values, **self._values})

    @property
    def plugin_prefix(self) -> str:
        """What the names of the storage plugin's own properties begin with."""
        return self.read(RSM_CONFIG_PREFIX).lower()

    def check_names(self) -> None:
        """An unknown `remote.*` is an error; another is ignored, as in Spark. A placeholder of a broker's is an error.

        Raises:
            ConfigurationError: names the unknown option and the nearest known one, or one that has a placeholder.
        """
        check_placeholders(self._values, ("remote.", "kafka.", self.plugin_prefix))
        for name, nearest in self._unknown():
            if name.startswith("remote."):
                raise ConfigurationError(f"option {name} is unknown; the nearest known one is {_NAMES[nearest]}")

    def warn(self, queries: Queries, besides: Collection[Option[Any]] = ()) -> None:
        """Of what is given but has no effect, in queries of this kind or in any, and of what looks like a slip.

        `besides`: options of the other kind that do have an effect.
        """
        for name, nearest in self._unknown():
            if is_slip(name, nearest):
                logger.warning("option %s is unknown and ignored; did you mean %s?", name, _NAMES[nearest])
        for option in OPTIONS:
            if option.queries not in (Queries.ALL, queries) and self.has(option) and option not in besides:
                logger.warning("option %s is ignored in %s queries", option.name, queries.value)
        if self.has(GROUP_ID):
            logger.warning("option %s has no effect: no consumer group is joined", GROUP_ID.name)

    def _unknown(self) -> Iterator[tuple[str, str]]:
        """Names that nobody knows, in lower case, each with the nearest known one."""
        for name in self._values:
            if name not in _NAMES and name not in BROKER_PROPERTIES and not name.startswith(self.plugin_prefix):
                yield name, nearest_name(name, _NAMES)
