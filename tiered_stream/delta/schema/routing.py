"""Routing, which decides for each topic the table that gets the topic's rows.

The driver puts the routing into an option of the source (`TaskSettings`), and tasks take it from there. So the driver
and the tasks get the same result.
"""

from __future__ import annotations

import pickle
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tiered_stream.delta.schema.row_plan import errors_name, registered, resolved
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.schema.sql_types import sql_name
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import check_keys
from tiered_stream.delta.settings.row_settings import APPEND, DEAD_LETTER_TABLE
from tiered_stream.errors import ConfigurationError, TableError, one_line
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import DEAD_LETTER_SCHEMA, RowFormat, plain_rows
from tiered_stream.model import is_topic_name
from tiered_stream.options.spark_options import INCLUDE_HEADERS

_EXCLUDE = (
    ". If the topic has no rows, as Debezium's topics of heartbeats, transactions and schema changes, exclude it from "
    "the pattern, such as (?!__debezium-heartbeat).*"
)
"""Advice in errors about a topic's schemas."""


@dataclass(frozen=True, slots=True)
class Route:
    """Rule that sends topics whose whole name matches `pattern` to `table`, whose folder is the URI `folder`.

    `pattern` is a regular expression. `{topic}` stands for the topic in `table` and in `folder`. If `in_lower_case` is
    true, the topic is written in lower case in `folder`, because Spark's catalog names folders in lower case.
    """

    pattern: str
    table: str
    folder: str
    in_lower_case: bool = False

    def uri_for(self, topic: str) -> str:
        """Return the URI of the folder of the topic's table.

        Raises:
            TableError: `folder` contains `{topic}`, and Kafka does not allow a topic with this name.
        """
        if ingest.TOPIC in self.folder and not is_topic_name(topic):
            raise TableError(f"{topic!r:.300} is no name that Kafka allows a topic: it gets no table of its own")
        return self.folder.replace(ingest.TOPIC, topic.lower() if self.in_lower_case else topic)


@dataclass(frozen=True)
class Routing:
    """All routes of a query from topics to tables, with the settings and row formats of the topics.

    A topic goes to the table of the first route whose pattern matches the topic.
    """

    spec: ingest.TableSpec
    """Settings of the tables of all topics that are not in `topics`; the attribute `uri` is not used."""
    routes: tuple[Route, ...]
    topics: Mapping[str, ingest.TableSpec] = field(default_factory=dict)
    """Settings of each topic that has settings of its own, by topic; `storage` and `tasks` are taken from `spec`."""
    rows: Mapping[str, RowFormat] = field(default_factory=lambda: {"": plain_rows(True)})
    """Formats of the tables' rows that the driver has planned, by topic; '' stands for all topics without an entry."""
    dead_letter_folders: Mapping[str, str] = field(default_factory=dict)
    """Folders (URIs) of the tables for dead letters, by the value of `ingest.deadLetterTable`."""
    has_rules: bool = False
    """True if the row formats in `rows` already include the rules of their tables (`RowFormat.rules`)."""
    _targets: dict[str, ingest.TableSpec] = field(default_factory=dict, init=False, compare=False, repr=False)
    _registered: dict[str, RowFormat] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a table for dead letters is also the table of a route."""
        folders = set(self.dead_letter_folders.values())
        for route in self.routes:
            if route.folder in folders:
                raise shared_table_error(route.table)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the caches of tables and row formats, which may be large."""
        return {**self.__dict__, "_targets": {}, "_registered": {}}

    def target(self, topic: str) -> ingest.TableSpec:
        """Return the specification of the table that gets the topic's rows.

        Raises:
            ConfigurationError: the topic's table has `ingest.mode=upsert` and no key columns, or the topic's schema is
                malformed.
            SchemaRegistryError: the topic's schema comes from a registry, which does not return it.
            TableError: the topic has no table, or the folder's name contains the topic and Kafka does not allow this
                topic name.
        """
        if topic not in self._targets:
            self._targets[topic] = self._make(topic)
        return self._targets[topic]

    def route(self, topic: str) -> Route:
        """Return the first route whose pattern matches the topic; raise TableError if there is none."""
        route = next((route for route in self.routes if re.fullmatch(route.pattern, topic, re.ASCII)), None)
        if route is None:
            raise TableError(
                f"no table is named for topic {one_line(topic)}: set ingest.table, or name one in ingest.route"
            )
        return route

    def check_separate_tables(self, topics: Iterable[str]) -> None:
        """Check that no two topics lead to the same folder by a route whose table contains `{topic}`.

        Topics may share a table that a route names without `{topic}`. A table named with `{topic}` must not be a table
        for dead letters either.

        Raises:
            ConfigurationError: two topics share a table, or a topic shares one with dead letters.
            TableError: a topic has no table, or a name that Kafka does not allow.
        """
        owners = dict.fromkeys(self.dead_letter_folders.values(), "the dead letters")
        for topic in topics:
            route = self.route(topic)
            owner = owners.setdefault(route.uri_for(topic), topic) if ingest.TOPIC in route.table else topic
            if owner != topic:
                raise ConfigurationError(
                    f"topic {topic} and {owner} would share the table {table_for(route.table, topic)}. Name a table "
                    f"for the topic by ingest.topic.{topic}.table, or leave the topic out of the query"
                )

    def registered(self, topics: Iterable[str]) -> dict[str, RowFormat]:
        """Return the row formats of topics whose newest schema comes from a schema registry, by topic.

        The registry is asked once for each topic. Topics with an entry in `rows` are left out. The result is empty if
        the row format for topics without an entry does not need a schema from the registry.

        Raises:
            SchemaRegistryError: the registry does not return a schema.
            ConfigurationError: the registry's settings are wrong, or the schema does not suit the format.
        """
        shared = self.rows.get("")
        if shared is None or shared.is_resolved:
            return {}
        unresolved = {topic for topic in topics if topic not in self.rows}
        for topic in unresolved - self._registered.keys():
            with errors_name(f"topic {topic}", _EXCLUDE):
                self._registered[topic] = registered(shared, topic)
        return {topic: self._registered[topic] for topic in unresolved}

    def _make(self, topic: str) -> ingest.TableSpec:
        route = self.route(topic)
        spec, row_format = self.topics.get(topic, self.spec), self._row_format(topic)
        check_keys(spec, topic)
        return replace(
            spec, uri=route.uri_for(topic), storage=self.spec.storage, tasks=self.spec.tasks,
            name=table_for(route.table, topic), columns=spark_columns(row_format.written, spec.day_column),
            row_format=row_format,
        )  # fmt: skip

    def _row_format(self, topic: str) -> RowFormat:
        row_format = self.rows.get(topic) or self.registered((topic,)).get(topic) or self.rows[""]
        with errors_name(f"topic {topic}", _EXCLUDE):
            return resolved(row_format, topic)

    def dead_letters(self, spec: ingest.TableSpec) -> ingest.TableSpec | None:
        """Return the specification of the table that gets dead letters whose records were meant for the table `spec`.

        The result is None if `ingest.deadLetterTable` is not set in `spec`.
        """
        name = spec.rows.dead_letter_table
        return None if name is None else dead_letters_of(spec, self.dead_letter_folders.get(name, name))


def dead_letters_of(spec: ingest.TableSpec, uri: str) -> ingest.TableSpec:
    """Return the specification of the table that gets dead letters whose records were meant for the table `spec`.

    `uri` is the URI of the result's folder. `spec` must have `ingest.deadLetterTable`.
    """
    return replace(
        spec, uri=uri, name=spec.rows.dead_letter_table or "", day_column=None, cluster_by=(), keys=(),
        mode=APPEND,
        columns=spark_columns(DEAD_LETTER_SCHEMA, None), row_format=None,
        on_landed_offsets=ingest.LAND,  # a record may become a dead letter of several queries
        rows=replace(spec.rows, schema_evolution=Evolution.NONE),
    )  # fmt: skip


_SETTINGS = "ingest.secret.tables"
"""Name of the option with pickled `TaskSettings`. Spark redacts values of names with `secret`."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings that the driver passes to the Python processes that plan and write the data files of a query's tables.

    The driver pickles the settings into one option of the source. Options named by topic would not do, because names
    of Spark's options ignore case, and topics do not.
    """

    routing: Routing
    parked_file: str = ""
    """Path of a file with the keys (folder URIs) of parked tables; empty: there is no such file.

    A table is parked if it could not be written, and the query continues without it (`ingest.onTableError=park`).
    """
    only: str | None = None
    """Key (folder URI) of the only table that is written; None: all tables are written."""
    transaction: tuple[str, int | None] = ("", None)
    """Query id and batch id that dead letters get: the ids of the application transaction in which they are committed.

    "" stands for the id of Spark's query, and None for the id of Spark's batch.
    """

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TaskSettings:
        """Return the settings that `added_to` has put into options of the source."""
        (pickled,) = (value for name, value in options.items() if name.lower() == _SETTINGS)
        settings: TaskSettings = pickle.loads(b64decode(pickled))
        return settings

    def added_to(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of the source's `options` with these settings in one more option.

        `includeHeaders` becomes `true` if rows or dead letters need the records' headers.
        """
        routing = self.routing
        needed = routing.dead_letter_folders or any(row_format.needs_headers for row_format in routing.rows.values())
        options = ingest.with_overrides(options, {INCLUDE_HEADERS.name: "true"} if needed else {})
        return {**options, _SETTINGS: b64encode(pickle.dumps(self)).decode()}


# Names of tables in Spark's catalog as SQL, and the table that a name with `{topic}` means for a topic.
#
# A topic's name may have characters that mean something in SQL: `--` begins a comment, and `.` separates parts of a
# name. So each part of a name is quoted, and a topic never adds a part.

PLAIN = re.compile(r"\w+", re.ASCII)
_PART = r"(?:\s*`(?:[^`]|``)+`\s*|[^`.]+)"


def name_parts(table: str) -> tuple[str, ...]:
    """Return the parts of a table's name in the catalog, without quotes: (catalog, database, table), or fewer.

    Parts are separated by dots. A part may be in back quotes, in which two back quotes stand for one.

    Raises:
        ConfigurationError: a part is empty, has a single back quote, or has control characters.
    """
    whole = re.fullmatch(rf"{_PART}(?:\.{_PART})*", table)
    parts = [part.strip() for part in re.findall(_PART, table)] if whole else []
    parts = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]
    if not parts or not all(part and part.isprintable() for part in parts):
        raise ConfigurationError(
            f"{table!r:.300} is no name of a table: write table, database.table or catalog.database.table, each part "
            "in back quotes if it has other characters than letters, digits and _"
        )
    return tuple(parts)


def quoted_name(parts: Sequence[str]) -> str:
    """Return a catalog name as SQL text, which `name_parts` parses into `parts` again.

    A part with other characters than ASCII letters, digits and _ is put in back quotes.

    Raises:
        ConfigurationError: a part has `${`, which begins a variable in Spark's SQL.
    """
    return ".".join(part if PLAIN.fullmatch(part) else sql_name([part]) for part in parts)


def comparable_name(table: str) -> str:
    """Return the same text for names of a table that differ by case, which a catalog may ignore.

    The same is true of paths that differ by a slash at the end.
    """
    return table.rstrip("/") if "/" in table else table.lower()


def shared_table_error(table: str) -> ConfigurationError:
    """Return the error for a table that is named for rows, and for dead letters, too."""
    return ConfigurationError(
        f"the table {table} is for rows, and cannot be the table for dead letters, too: name another table in "
        f"{DEAD_LETTER_TABLE.name}"
    )


def table_for(table: str, topic: str) -> str:
    """Return the path or catalog name `table` with the topic in place of `{topic}`.

    In a catalog name, the topic stays within one part, which gets back quotes if it needs them.

    Raises:
        ConfigurationError: `table` has `{topic}` and is a malformed catalog name, or the topic has `${`.
    """
    if "/" in table or ingest.TOPIC not in table:
        return table.replace(ingest.TOPIC, topic)
    return quoted_name([part.replace(ingest.TOPIC, topic) for part in name_parts(table)])
