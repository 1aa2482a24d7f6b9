"""Placeholders such as `${strimzienv:NAME}`, which a broker or Kafka Connect fills in, and nobody here. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tiered_stream.errors import ConfigurationError

_PLACEHOLDER = re.compile(r"\$\{(?P<provider>[A-Za-z0-9_.-]+):[^}]*\}")


def check_placeholders(values: Mapping[str, str], prefixes: tuple[str, ...]) -> None:
    """Refuse placeholders of Kafka's config providers in the options whose names, in lower case, begin so.

    Taken as they are written, they would be sent as passwords and keys. The message shows the provider alone: the text
    may be a secret that only looks like a placeholder.

    Raises:
        ConfigurationError: names the option.
    """
    for name in sorted(values):
        found = _PLACEHOLDER.search(values[name]) if name.lower().startswith(prefixes) else None
        if found is not None:
            provider = found["provider"]
            raise ConfigurationError(
                f"option {name} has a placeholder ${{{provider}:…}}, which only a broker or Kafka Connect fills in "
                f"(config.providers={provider}): give the value itself"
            )
