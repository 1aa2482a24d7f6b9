"""Checks of Kafka client properties by name: a property that is unknown or has no effect gets a warning or an error."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping

from tiered_stream.broker.config.property_table import CLIENT_PROPERTIES, Use
from tiered_stream.errors import ConfigurationError
from tiered_stream.options import spark_options
from tiered_stream.options.types import declared_in

_log = logging.getLogger(__name__)

_OF_THE_SOURCE = {option.name.removeprefix("kafka.") for option in declared_in(vars(spark_options))}


def check_names(properties: Mapping[str, str]) -> None:
    """Log a warning for each property that is unknown or has no effect; an unknown one may be for a Java plug-in.

    Raises:
        ConfigurationError: a property is not supported here.
    """
    for name in sorted(properties):
        known = CLIENT_PROPERTIES.get(name)
        if known is None and name not in _OF_THE_SOURCE:
            near = difflib.get_close_matches(name, CLIENT_PROPERTIES, 1)
            hint = f" (kafka.{near[0]}?)" if near else ""
            _log.warning("kafka.%s is not a known Kafka client property%s", name, hint)
        elif known is not None and known.use is Use.NO_EFFECT:
            _log.warning("kafka.%s has no effect: %s", name, known.doc)
        elif known is not None and known.use is Use.REFUSED and properties[name].strip():
            raise ConfigurationError(f"kafka.{name} is not supported: {known.doc}")


def warn_of_unread(given: Collection[str], read: Collection[str], security: str) -> None:
    """Log a warning for each honoured property that was not read, such as `ssl.*` without TLS: it has no effect."""
    for name in sorted(set(given).difference(read)):
        known = CLIENT_PROPERTIES.get(name)
        if known is not None and known.use is Use.HONOURED:
            _log.warning("kafka.%s has no effect beside the other settings (%s)", name, security)
