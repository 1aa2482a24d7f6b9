"""Reader of the Kafka client properties that a user gives, by their declarations in `property_table`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.types import Option, trimmed

T = TypeVar("T")


class ConfigValues:
    """Kafka client properties as a user gives them: text by name, without the `kafka.` prefix."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.names_read: set[str] = set()
        """Names of all properties that were read, also of properties that the user did not give."""

    def __repr__(self) -> str:
        return f"ConfigValues({', '.join(sorted(self._properties))})"

    def __contains__(self, name: str) -> bool:
        return name in self._properties

    def secret(self, name: str) -> str | None:
        """Return the property's value unchanged; None: it is not given. Callers must never show the value."""
        self.names_read.add(name)
        return self._properties.get(name)

    def text(self, name: str) -> str:
        """Return the property's value without surrounding blanks, or an empty text if it is not given."""
        return trimmed(self.secret(name) or "")

    def read(self, option: Option[T]) -> T:
        """Return the parsed value of the property that `option` declares, or the option's default if it is not given.

        Blanks around the value are removed.

        Raises:
            ConfigurationError: the value is malformed. The message names the property, its value and the right form.
        """
        text = self.secret(option.name.removeprefix("kafka."))
        if text is None:
            return option.default
        value = trimmed(text)
        try:
            return option.parse(value)
        except ValueError as error:
            raise ConfigurationError(f"{option.name} = {value!r}: {error}") from error
