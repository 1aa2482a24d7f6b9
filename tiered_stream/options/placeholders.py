"""Check for placeholders such as `${strimzienv:NAME}`, which only a broker or Kafka Connect can fill in. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tiered_stream.errors import ConfigurationError

_PLACEHOLDER = re.compile(r"\$\{(?P<provider>[A-Za-z0-9_.-]+):[^}]*\}")


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
