"""Names that nobody knows, and the known ones that were probably meant. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from tiered_stream.errors import ConfigurationError

LIKENESS_OF_A_SLIP = 0.84
"""From here on (`SequenceMatcher.ratio`) a name that nobody knows is a known one, mistyped."""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that is most like `name`, however little."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def is_slip(name: str, known: str) -> bool:
    """Whether `name` looks like `known`, mistyped."""
    return difflib.SequenceMatcher(None, name, known).ratio() >= LIKENESS_OF_A_SLIP


def unknown_setting(name: str, known: Mapping[str, str]) -> ConfigurationError:
    """The error for a setting that nobody knows; `known`: from names in lower case to names as they are documented."""
    nearest = nearest_name(name.lower(), known)
    return ConfigurationError(f"setting {name} is unknown; the nearest known one is {known[nearest]}")
