"""Typed reading of Kafka client properties; every complaint names `kafka.<name>` and, unless secret, the value."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tiered_stream.errors import ConfigurationError

INT_MAX = 2**31 - 1


class ConfigValues:
    """Kafka client properties by name, as a user gives them: text, without the `kafka.` prefix."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def __repr__(self) -> str:
        return f"ConfigValues({', '.join(sorted(self._properties))})"

    def __contains__(self, name: str) -> bool:
        return name in self._properties

    def text(self, name: str, default: str = "") -> str:
        """The value without surrounding blanks."""
        return self._properties.get(name, default).strip()

    def secret(self, name: str) -> str | None:
        """The value as it is; never to be shown."""
        return self._properties.get(name)

    def integer(self, name: str, default: int, low: int = 0, high: int = INT_MAX) -> int:
        """A whole number from `low` to `high`.

        Raises:
            ConfigurationError: it is not.
        """
        value = self.text(name, str(default))
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ConfigurationError(f"kafka.{name} = {value!r}: must be a whole number from {low} to {high}")
        return number

    def boolean(self, name: str, default: bool) -> bool:
        """`true` or `false` in any case, as Kafka reads it.

        Raises:
            ConfigurationError: it is neither.
        """
        return self.choice(name, "true" if default else "false", ("true", "false")) == "true"

    def choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        """One of the `allowed` words, in any case; returned as spelled in `allowed`.

        Raises:
            ConfigurationError: it is another.
        """
        value = self.text(name, default)
        for word in allowed:
            if word.lower() == value.lower():
                return word
        raise ConfigurationError(f"kafka.{name} = {value!r}: must be one of {', '.join(allowed)}")
