"""Typed reading of Kafka client properties. Every error names `kafka.<name>` and, unless it is secret, the value.

A property that is not given has the default in `property_table`, unless the caller gives another default.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tiered_stream.broker.properties.property_table import CLIENT_PROPERTIES
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.types import INT_MAX, LONG_MAX, trimmed, whole_number


class ConfigValues:
    """Kafka client properties as a user gives them: text by name, without the `kafka.` prefix."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.read: set[str] = set()
        """Names of all properties that were read, given or not."""

    def __repr__(self) -> str:
        return f"ConfigValues({', '.join(sorted(self._properties))})"

    def __contains__(self, name: str) -> bool:
        return name in self._properties

    def text(self, name: str, default: str | None = None) -> str:
        """Return the property's value, or its default, without surrounding blanks."""
        given = self.secret(name)
        return trimmed(_default(name, default) if given is None else given)

    def secret(self, name: str) -> str | None:
        """Return the property's value unchanged, or None if it is not given. Callers must never show it."""
        self.read.add(name)
        return self._properties.get(name)

    def integer(self, name: str, default: int | None = None, low: int = 0, high: int = INT_MAX) -> int:
        """Return the property's value as a whole number from `low` to `high`.

        Raises:
            ConfigurationError: the value is not such a number.
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
        """Return the property's value in milliseconds. Kafka takes 64 bits; this returns at most `INT_MAX` (24 days).

        Raises:
            ConfigurationError: the value is not a whole number from `low` to 2^63 - 1.
        """
        return min(INT_MAX, self.integer(name, low=low, high=LONG_MAX))

    def fraction(self, name: str, low: float, high: float) -> float:
        """Return the property's value as a number from `low` to `high`.

        Raises:
            ConfigurationError: the value is not such a number.
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
        """Return whether the property is `true`; upper and lower case are the same, as in Kafka.

        Raises:
            ConfigurationError: the value is neither `true` nor `false`.
        """
        return self.choice(name, ("true", "false")) == "true"

    def choice(self, name: str, allowed: Collection[str], default: str | None = None) -> str:
        """Return the property's value, one of the `allowed` words in any case, as it is spelled in `allowed`.

        Raises:
            ConfigurationError: the value is not one of the words.
        """
        value = self.text(name, default)
        for word in allowed:
            if word.lower() == value.lower():
                return word
        raise self._not_one_of(name, value, allowed)

    def word(self, name: str, allowed: Collection[str]) -> str:
        """Return the property's value, which must be exactly one of the `allowed` words.

        Raises:
            ConfigurationError: the value is not one of the words.
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
