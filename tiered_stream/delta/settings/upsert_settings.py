"""Declaration and checks of the settings for tables of the latest state (`ingest.mode=upsert`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiered_stream.delta.settings.row_settings import ENVELOPE, ON_DECODE_ERROR, TRANSFORM
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Envelope, OnDecodeError, placeholder_bytes
from tiered_stream.options import types
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.types import Option, option, optional

APPEND, UPSERT = "append", "upsert"


def column_names(value: str) -> tuple[str, ...]:
    """Parse names of columns, separated by commas; raise ValueError if a name is empty or occurs twice."""
    names = tuple(name.strip() for name in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("must name columns, separated by commas, each once")
    return names


MODE = option(
    "ingest.mode", types.one_of(APPEND, UPSERT), APPEND,
    "`append`: each record becomes a row. `upsert`: the table has the latest row of each key.",
)  # fmt: skip
KEYS: Option[tuple[str, ...]] = Option(
    "ingest.keys", column_names, (), "",
    "With `ingest.mode=upsert`: columns that identify a row, separated by commas.",
)  # fmt: skip
ORDER_BY = optional(
    "ingest.orderBy", types.text,
    "With `ingest.mode=upsert`: column whose largest value is the latest. It is needed if a key occurs in several "
    "partitions.",
    shown="the offset",
)  # fmt: skip
MERGE_ON = optional(
    "ingest.mergeOn", types.text,
    "With `ingest.mode=upsert`: condition in SQL on `target` (the table) and `source` (the new rows) that limits the "
    "files in which keys are searched.",
)  # fmt: skip
OWN_COLUMNS: Option[tuple[str, ...]] = Option(
    "ingest.ownColumns", column_names, (), "",
    "With `ingest.mode=upsert`: columns of the table that records never set, separated by commas. They keep their "
    "values in an update. Each other column that a record does not have becomes null.",
)  # fmt: skip
_DEBEZIUM_PLACEHOLDER = "__debezium_unavailable_value"
"""Default of the setting `unavailable.value.placeholder` of Debezium's connectors."""


def _placeholder(text: str) -> str:
    placeholder_bytes(text)
    return text


UNAVAILABLE_VALUE = optional(
    "ingest.unavailableValue", _placeholder,
    "With `ingest.mode=upsert`: placeholder of values that the database does not send "
    "(`unavailable.value.placeholder` of Debezium's connector). An update keeps the row's value in their place.",
    shown=f"{_DEBEZIUM_PLACEHOLDER} if ingest.envelope is set",
)  # fmt: skip
UPSERT_OPTIONS: tuple[Option[Any], ...] = (MODE, KEYS, ORDER_BY, MERGE_ON, OWN_COLUMNS, UNAVAILABLE_VALUE)


def is_upsert(settings: Mapping[str, str]) -> bool:
    """Return whether the query keeps the latest row of each key (`ingest.mode=upsert`)."""
    return GivenOptions(settings).read(MODE) == UPSERT


def placeholder_of(settings: Mapping[str, str]) -> str:
    """Return the placeholder of values that the database does not send; '': there is none."""
    options = GivenOptions(settings)
    default = "" if options.read(ENVELOPE) is Envelope.NONE else _DEBEZIUM_PLACEHOLDER
    return options.read(UNAVAILABLE_VALUE) or default


def check_keys(settings: Mapping[str, str], topic: str | None = None) -> None:
    """Raise ConfigurationError if the settings ask for a table of the latest state and name no key columns.

    `topic` is the topic of the settings, for the error; None: they are for all topics.
    """
    if is_upsert(settings) and not GivenOptions(settings).read(KEYS):
        given = KEYS.name if topic is None else f"{KEYS.name}, or ingest.topic.{topic}.keys,"
        raise ConfigurationError(f"{MODE.name} is {UPSERT}: set {given} to the columns that identify a row")


def _check_append(options: GivenOptions) -> None:
    """Raise ConfigurationError if a setting is for tables of the latest state only."""
    for given in UPSERT_OPTIONS[1:]:
        if options.has(given):
            raise ConfigurationError(f"{given.name} is set, but {MODE.name} is {APPEND}: set {MODE.name}={UPSERT}")
    if options.read(ENVELOPE) is Envelope.FLATTENED:
        raise ConfigurationError(
            f"{ENVELOPE.name}={Envelope.FLATTENED} deletes rows, but {MODE.name} is {APPEND}: set "
            f"{MODE.name}={UPSERT}, or remove the envelope to land the column __deleted"
        )


def check_upsert(settings: Mapping[str, str], refused: Mapping[str, str], *, needs_keys: bool = True) -> None:
    """Check the settings for a table of the latest state against each other and against other settings.

    `refused` are names of settings that are given and do not go with `ingest.mode=upsert`, each with the advice.
    `needs_keys` is False for settings of all topics, if single topics have their own `ingest.keys`.

    Raises:
        ConfigurationError: a setting is missing, malformed, or does not go with another setting.
    """
    options = GivenOptions(settings)
    if not is_upsert(settings):
        _check_append(options)
        return
    if needs_keys:
        check_keys(settings)
    for text in (MERGE_ON, UNAVAILABLE_VALUE):
        options.read(text)
    own = {name.lower() for name in options.read(OWN_COLUMNS)}
    for name in (*options.read(KEYS), options.read(ORDER_BY) or ""):
        if name.lower() in own:
            raise ConfigurationError(f"{OWN_COLUMNS.name} has {name}, which records must set: remove it there")
    for name, advice in refused.items():
        raise ConfigurationError(f"{name} does not go with {MODE.name}={UPSERT}: {advice}")
    if options.has(TRANSFORM):
        raise ConfigurationError(
            f"{TRANSFORM.name} does not go with {MODE.name}={UPSERT}, because a function could drop deletes: land the "
            "records with the function in a table that appends, or remove it"
        )
    if options.read(ON_DECODE_ERROR) is OnDecodeError.NULL:
        raise ConfigurationError(
            f"{ON_DECODE_ERROR.name}={OnDecodeError.NULL} does not go with {MODE.name}={UPSERT}, because a row of "
            f"nulls would replace the row of its key: set {OnDecodeError.FAIL} or {OnDecodeError.DEAD_LETTER}"
        )
