"""Typed reading of Kafka client properties; every complaint names `kafka.<name>` and, unless secret, the value.

Defaults are those of `property_table`, unless the caller has another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tiered_stream.broker.config.property_table import CLIENT_PROPERTIES
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.types import INT_MAX, LONG_MAX, trimmed, whole_number


class ConfigValues:
    """Kafka client properties by name, as a user gives them: text, without the `kafka.` prefix."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.read: set[str] = set()
        """The names that were asked for."""

    def __repr__(self) -> str:
        return f"ConfigValues({', '.join(sorted(self._properties))})"

    def __contains__(self, name: str) -> bool:
        return name in self._properties

    def text(self, name: str, default: str | None = None) -> str:
        """The value without surrounding blanks."""
        given = self.secret(name)
        return trimmed(_default(name, default) if given is None else given)

    def secret(self, name: str) -> str | None:
        """The value as it is; never to be shown."""
        self.read.add(name)
        return self._properties.get(name)

    def integer(self, name: str, default: int | None = None, low: int = 0, high: int = INT_MAX) -> int:
        """A whole number from `low` to `high`.

        Raises:
            ConfigurationError: it is not.
        """
        value = self.text(name, None if default is None else str(default))
        try:
            number = whole_number(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ConfigurationError(f"kafka.{name} = {value!r}: must be a whole number from {low} to {high}")
        return number

    def milliseconds(self, name: str, low: int = 0) -> int:
        """As `integer` where Kafka takes 64 bits; at most `INT_MAX`, which is 24 days."""
        return min(INT_MAX, self.integer(name, low=low, high=LONG_MAX))

    def fraction(self, name: str, low: float, high: float) -> float:
        """A number from `low` to `high`.

        Raises:
            ConfigurationError: it is not.
        """
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ConfigurationError(f"kafka.{name} = {value!r}: must be a number from {low} to {high}")
        return number

    def boolean(self, name: str) -> bool:
        """`true` or `false` in any case, as Kafka reads it.

        Raises:
            ConfigurationError: it is neither.
        """
        return self.choice(name, ("true", "false")) == "true"

    def choice(self, name: str, allowed: Collection[str], default: str | None = None) -> str:
        """One of the `allowed` words, in any case; returned as spelled in `allowed`.

        Raises:
            ConfigurationError: it is another.
        """
        value = self.text(name, default)
        for word in allowed:
            if word.lower() == value.lower():
                return word
        raise self._not_one_of(name, value, allowed)

    def word(self, name: str, allowed: Collection[str]) -> str:
        """One of the `allowed` words, exactly as spelled there.

        Raises:
            ConfigurationError: it is another.
        """
        value = self.text(name)
        if value not in allowed:
            raise self._not_one_of(name, value, allowed)
        return value

    @staticmethod
    def _not_one_of(name: str, value: str, allowed: Collection[str]) -> ConfigurationError:
        return ConfigurationError(f"kafka.{name} = {value!r}: must be one of {', '.join(allowed)}")


def _default(name: str, default: str | None) -> str:
    return CLIENT_PROPERTIES[name].default if default is None else default
