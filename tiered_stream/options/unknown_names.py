"""Search for the known name of an option or property that the user probably meant by an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from tiered_stream.errors import ConfigurationError

MIN_SIMILARITY = 0.84
"""Smallest similarity (`SequenceMatcher.ratio`) at which an unknown name counts as a misspelled known name."""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the name in `known` that is most similar to `name`, even if not very similar. `known` is not empty."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def is_typing_error(name: str, known: str) -> bool:
    """Return whether `name` may be a misspelled `known`: their similarity is at least `MIN_SIMILARITY`."""
    return difflib.SequenceMatcher(None, name, known).ratio() >= MIN_SIMILARITY


def hint_for(name: str, known: Iterable[str], form: str) -> str:
    """Return `form` with the most similar known name in place of `{}`, or '' if no known name is similar to `name`."""
    nearest = nearest_name(name, known)
    return form.replace("{}", nearest) if is_typing_error(name.lower(), nearest.lower()) else ""


def is_one_letter_away(name: str, known: str) -> bool:
    """Return whether `name` becomes `known` by adding, removing or replacing one letter, or swapping two neighbors."""
    pairs = enumerate(zip(name, known, strict=False))
    at = next((at for at, (letter, other) in pairs if letter != other), min(len(name), len(known)))
    rest, wanted = name[at:], known[at:]
    if rest[1:] == wanted[1:] or rest == wanted[1:] or rest[1:] == wanted:
        return name != known
    return rest[:2] == wanted[1::-1] and rest[2:] == wanted[2:]


def unknown_setting(name: str, known: Mapping[str, str]) -> ConfigurationError:
    """Return the error for the unknown setting `name`, which suggests the nearest known name.

    `known` maps each known name in lower case to the name as the documentation writes it.
    """
    nearest = nearest_name(name.lower(), known)
    return ConfigurationError(f"setting {name} is unknown; the nearest known one is {known[nearest]}")
