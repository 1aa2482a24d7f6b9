"""Options as the user gave them: look-up by name, parsing by their declarations, and checks of names and values."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from tiered_stream.errors import ConfigurationError
from tiered_stream.options import remote_options, spark_options
from tiered_stream.options.types import HiddenValueError, Option, Queries, declared_in
from tiered_stream.options.unknown_names import is_one_letter_away, is_typing_error, nearest_name

OPTIONS_WITHOUT_LIMITS: tuple[Option[Any], ...] = (
    *declared_in(vars(spark_options)),
    *spark_options.REFUSED,
    *declared_in(vars(remote_options)),
)
OPTIONS = (*OPTIONS_WITHOUT_LIMITS, *remote_options.LIMIT_OPTIONS.values())
"""All options of the source."""


_MAY_BE_LOGIN = re.compile(r"@|://.*\?", re.DOTALL)
"""Pattern of values that may be URIs with a password or, in the query, a token."""
_PLACEHOLDER = re.compile(r"\$\{(?P<provider>[A-Za-z0-9_.-]+):[^}]*\}")
T = TypeVar("T")
_OPTION = "option"
logger = logging.getLogger("tiered_stream.options.parsing")
_SHOWN_CHARACTERS = 200
_NAMES = {option.name.lower(): option.name for option in OPTIONS}
JOB_PREFIX = "ingest."
"""Prefix of the settings of an ingest job and of `land`, which the source does not read."""


def check_placeholders(values: Mapping[str, str], prefixes: tuple[str, ...]) -> None:
    """Check that no option whose name begins with one of `prefixes` has a placeholder of a Kafka config provider.

    Without this check, a placeholder would be sent as a password or a key.

    Args:
        values: the options' texts, by name.
        prefixes: prefixes in lower case; upper and lower case in the options' names are the same.

    Raises:
        ConfigurationError: an option has a placeholder. The message names the option and the provider only, because the
            rest of the text may be a secret that looks like a placeholder.
    """
    for name in sorted(values):
        placeholder = _PLACEHOLDER.search(values[name]) if name.lower().startswith(prefixes) else None
        if placeholder is not None:
            provider = placeholder["provider"]
            raise ConfigurationError(
                f"option {name} has a placeholder ${{{provider}:…}}, which only a broker or Kafka Connect fills in "
                f"(config.providers={provider}): give the value itself"
            )


def of(option: Option[T]) -> T:
    """Return a dataclass field for the value of `option`, with the option's default. The repr leaves out a secret."""
    bound: T = field(default=option.default, repr=not option.secret, metadata={_OPTION: option})
    return bound


def declared(kind: type[Any]) -> dict[str, Option[Any]]:
    """Return the option of each field of the dataclass `kind` that the function `of` has made, by field name."""
    return {member.name: member.metadata[_OPTION] for member in fields(kind) if _OPTION in member.metadata}


def read_fields(kind: type[Any], given: GivenOptions, queries: Queries = Queries.ALL) -> dict[str, Any]:
    """Return the parsed value, or the default, of each option that is a field of the dataclass `kind`, by field name.

    Fields that the function `of` has not made have no option. If `queries` is STREAMING or BATCH, options that are only
    for the other kind of query are left out.

    Raises:
        ConfigurationError: a value is malformed.
    """
    return {
        name: given.read(option)
        for name, option in declared(kind).items()
        if queries is Queries.ALL or option.queries in (Queries.ALL, queries)
    }


def is_known(name: str) -> bool:
    """Return whether the source has an option `name`, which must be in lower case."""
    return name in _NAMES


class GivenOptions:
    """Options that the user gave, as text by name in lower case. Options whose value is None are left out.

    A value is parsed, and so checked, only when it is read, as in Spark.
    """

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(raw[name]) for name in raw if raw[name] is not None}

    def has(self, option: Option[Any]) -> bool:
        """Return whether the user gave the option."""
        return option.name.lower() in self._values

    def read(self, option: Option[T]) -> T:
        """Return the option's parsed value, or its default if it is not given.

        Raises:
            ConfigurationError: the value is malformed. The message names the option, its value unless that may hold a
                secret, and the right form.
        """
        value = self._values.get(option.name.lower())
        if value is None:
            return option.default
        try:
            return option.parse(value)
        except ConfigurationError:
            raise
        except ValueError as error:
            secret = option.secret or isinstance(error, HiddenValueError) or _MAY_BE_LOGIN.search(value)
            shown = "the value" if secret else repr(value[:_SHOWN_CHARACTERS])
            raise ConfigurationError(f"option {option.name}: {shown} {error}") from (None if secret else error)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the text of each option whose name begins with `prefix`, by name in lower case without the prefix.

        `prefix` must be in lower case.
        """
        return {name.removeprefix(prefix): value for name, value in self._values.items() if name.startswith(prefix)}

    def with_defaults(self, values: Mapping[str, str]) -> GivenOptions:
        """Return a copy of these options, with `values` added for options that the user has not given."""
        return GivenOptions({**values, **self._values})

    @property
    def plugin_prefix(self) -> str:
        """Return the prefix, in lower case, of options that are storage plugin properties; by default `rsm.config.`."""
        return self.read(remote_options.RSM_CONFIG_PREFIX).lower()

    def check_names(self) -> None:
        """Check that each option is known, and that no value is a placeholder that only a broker fills in.

        Placeholders are searched for in `remote.*`, `kafka.*` and the storage plugin's properties. Unknown options
        that do not begin with `remote.` are ignored, as in Spark, unless they are one letter away from a known name.

        Raises:
            ConfigurationError: an option is unknown, or a value has a placeholder. The message names the option, and
                for an unknown option the nearest known name.
        """
        check_placeholders(self._values, ("remote.", "kafka.", self.plugin_prefix))
        for name, nearest in self._unknown():
            if name.startswith("remote.") or is_one_letter_away(name, nearest):
                raise ConfigurationError(f"option {name} is unknown; the nearest known one is {_NAMES[nearest]}")

    def warn(self, queries: Queries, effective: Collection[Option[Any]] = ()) -> None:
        """Log a warning for each given option without effect, and for each unknown name that looks like a typing error.

        An option has no effect if it is only for the other kind of query (streaming or batch). `kafka.group.id` and
        settings of an ingest job (`ingest.*`) have no effect either.

        Args:
            queries: the kind of this query.
            effective: options for the other kind of query that nevertheless have an effect in this query.
        """
        for name, nearest in self._unknown():
            if is_typing_error(name, nearest):
                logger.warning("option %s is unknown and ignored; did you mean %s?", name, _NAMES[nearest])
        for option in OPTIONS:
            if option.queries not in (Queries.ALL, queries) and self.has(option) and option not in effective:
                logger.warning("option %s is ignored in %s queries", option.name, queries.value)
        if of_job := sorted(name for name in self._values if name.startswith(JOB_PREFIX)):
            logger.warning("%s: no effect on format('tiered_stream'), but on `land` and ingest jobs", ", ".join(of_job))
        if self.has(spark_options.GROUP_ID):
            logger.warning("option %s has no effect: no consumer group is joined", spark_options.GROUP_ID.name)

    def _unknown(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each given option that is unknown, and the nearest known name, both in lower case."""
        for name in self._values:
            if (
                name not in _NAMES
                and name not in remote_options.BROKER_PROPERTIES
                and not name.startswith(self.plugin_prefix)
            ):
                yield name, nearest_name(name, _NAMES)
