"""The raw options of one query: lookup in any case, parsing by their declarations, and checks for unknown names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.placeholders import check_placeholders
from tiered_stream.options.remote_options import BROKER_PROPERTIES, RSM_CONFIG_PREFIX
from tiered_stream.options.source_options import OPTIONS
from tiered_stream.options.spark_options import GROUP_ID
from tiered_stream.options.types import HiddenValueError, Option, Queries
from tiered_stream.options.unknown_names import is_typing_error, nearest_name

logger = logging.getLogger("tiered_stream.options.parsing")

T = TypeVar("T")

_SHOWN_CHARACTERS = 200
_NAMES = {option.name.lower(): option.name for option in OPTIONS}


def is_known(name: str) -> bool:
    """Return whether `name`, in lower case, is an option of the source."""
    return name in _NAMES


class GivenOptions:
    """Options that the user gave, as text. A value is parsed, and so checked, only when it is read, as in Spark."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(raw[name]) for name in raw if raw[name] is not None}

    def has(self, option: Option[Any]) -> bool:
        """Return whether the user gave the option."""
        return option.name.lower() in self._values

    def read(self, option: Option[T]) -> T:
        """Return the option's parsed value, or its default if it is not given.

        Raises:
            ConfigurationError: the value is malformed. The message names the option, its value unless it is secret, and
                the right form.
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
        """Return the texts of the options whose names begin with `prefix`, by the rest of the name in lower case."""
        return {name.removeprefix(prefix): value for name, value in self._values.items() if name.startswith(prefix)}

    def with_defaults(self, values: Mapping[str, str]) -> GivenOptions:
        """Return these options, with `values` for options that the user has not given."""
        return GivenOptions({**values, **self._values})

    @property
    def plugin_prefix(self) -> str:
        """Prefix of the storage plugin's own properties, in lower case."""
        return self.read(RSM_CONFIG_PREFIX).lower()

    def check_names(self) -> None:
        """Check that no `remote.*` option is unknown, and that no value is a placeholder that only a broker fills in.

        Other unknown options are ignored, as in Spark.

        Raises:
            ConfigurationError: names the unknown option and the nearest known one, or the option with a placeholder.
        """
        check_placeholders(self._values, ("remote.", "kafka.", self.plugin_prefix))
        for name, nearest in self._unknown():
            if name.startswith("remote."):
                raise ConfigurationError(f"option {name} is unknown; the nearest known one is {_NAMES[nearest]}")

    def warn(self, queries: Queries, honoured: Collection[Option[Any]] = ()) -> None:
        """Log a warning of each given option without effect, and of each unknown option that looks like a typing error.

        `queries` is the kind of this query. `honoured` are options for the other kind that have an effect here.
        """
        for name, nearest in self._unknown():
            if is_typing_error(name, nearest):
                logger.warning("option %s is unknown and ignored; did you mean %s?", name, _NAMES[nearest])
        for option in OPTIONS:
            if option.queries not in (Queries.ALL, queries) and self.has(option) and option not in honoured:
                logger.warning("option %s is ignored in %s queries", option.name, queries.value)
        if self.has(GROUP_ID):
            logger.warning("option %s has no effect: no consumer group is joined", GROUP_ID.name)

    def _unknown(self) -> Iterator[tuple[str, str]]:
        """Yield each unknown option's name, in lower case, with the nearest known name."""
        for name in self._values:
            if name not in _NAMES and name not in BROKER_PROPERTIES and not name.startswith(self.plugin_prefix):
                yield name, nearest_name(name, _NAMES)
