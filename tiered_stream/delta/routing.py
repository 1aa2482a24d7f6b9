"""Which table a topic's rows go to: driver and tasks work it out alike, from what travels in the source's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import orjson
from pyspark.sql.types import StructType

from tiered_stream.delta.ingest_settings import ROUTES, TableFiles, as_options, table_files, with_overrides
from tiered_stream.delta.row_schema import registered, resolved, spark_columns, written_columns
from tiered_stream.delta.row_settings import DEAD_LETTER_TABLE, SCHEMA_EVOLUTION, registry_properties
from tiered_stream.errors import TableError
from tiered_stream.formats.row_choices import Evolution
from tiered_stream.formats.row_format import DEAD_LETTER_SCHEMA, RowFormat, plain_rows, row_format
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.spark_options import INCLUDE_HEADERS

TOPIC = "{topic}"
"""Stands for the topic in a table's path or name."""
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class TableTarget:
    """One table of a query. `settings` are the query's, those of its topics on top; `schema` are its columns.

    `rows` says how its rows are made of records; None: it is for dead letters.
    """

    name: str
    """As the user has it: a path, or a name in the catalog."""
    files: TableFiles
    schema: StructType
    settings: Mapping[str, str]
    rows: RowFormat | None = None

    @property
    def key(self) -> str:
        """What data files name it by: its folder, so that whoever names it twice has it once."""
        return self.files.uri


@dataclass(frozen=True, slots=True)
class Route:
    """Topics whose whole name matches `pattern` go to `table`, whose folder is `place`, a URI.

    `{topic}` stands for the topic in both. `in_lower_case`: a catalog has named the folder.
    """

    pattern: str
    table: str
    place: str
    in_lower_case: bool = False

    def name_for(self, topic: str) -> str:
        return self.table.replace(TOPIC, topic)

    def uri_for(self, topic: str) -> str:
        """The table's folder.

        Raises:
            TableError: it would be another one than it seems, as the topic has an odd name.
        """
        if TOPIC in self.place and (not _LEGAL_TOPIC.fullmatch(topic) or topic in (".", "..")):
            raise TableError(f"{topic!r:.300} is no name that Kafka allows a topic: it gets no table of its own")
        return self.place.replace(TOPIC, topic.lower() if self.in_lower_case else topic)


@dataclass(frozen=True)
class Routing:
    """All tables of a query. `overrides` are settings of single topics, by topic and the setting's name."""

    settings: Mapping[str, str]
    files: TableFiles
    """What holds for every table; its `uri` says nothing."""
    routes: tuple[Route, ...]
    overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rows: Mapping[str, RowFormat] = field(default_factory=dict)
    """What rows are, as the driver has resolved it: by topic where a topic has settings of its own, else by ''."""
    dead_letter_places: Mapping[str, str] = field(default_factory=dict)
    """The folders of the tables for dead letters, by `ingest.deadLetterTable`."""
    has_rules: bool = False
    """Whether `rows` have the rules of their tables already."""
    _targets: dict[str, TableTarget] = field(default_factory=dict, init=False, compare=False, repr=False)
    _registered: dict[str, RowFormat] = field(default_factory=dict, init=False, compare=False, repr=False)

    def target(self, topic: str) -> TableTarget:
        """The table of a topic.

        Raises:
            ConfigurationError: a setting of the topic is malformed.
            TableError: it has none, or as `Route.uri_for`.
        """
        if topic not in self._targets:
            self._targets[topic] = self._make(topic)
        return self._targets[topic]

    def route(self, topic: str) -> Route:
        """The first that fits; TableError: none does."""
        route = next((each for each in self.routes if re.fullmatch(each.pattern, topic, re.ASCII)), None)
        if route is None:
            raise TableError(f"no table is named for topic {topic}: set ingest.table, or name one in ingest.route")
        return route

    def registered(self, topics: Iterable[str]) -> dict[str, RowFormat]:
        """Of those topics whose newest schema a registry has to tell, what rows are; each is asked for once.

        Raises: as `row_schema.registered`.
        """
        how = self.rows.get("")
        if how is None or how.is_resolved:
            return {}
        asked = {topic for topic in topics if topic not in self.rows}
        self._registered.update({topic: registered(how, topic) for topic in asked if topic not in self._registered})
        return {topic: self._registered[topic] for topic in asked}

    def _make(self, topic: str) -> TableTarget:
        route = self.route(topic)
        settings = with_overrides(self.settings, self.overrides.get(topic, {}))
        files = replace(
            table_files(settings), uri=route.uri_for(topic), storage=self.files.storage, tasks=self.files.tasks
        )
        rows = self._rows(topic, settings)
        return TableTarget(route.name_for(topic), files, written_columns(rows, files.day_column), settings, rows)

    def _rows(self, topic: str, settings: Mapping[str, str]) -> RowFormat:
        told = self.rows.get(topic) or self.registered((topic,)).get(topic) or self.rows.get("")
        return resolved(told or plain_rows(GivenOptions(settings).read(INCLUDE_HEADERS)), topic)

    def dead_letters(self, target: TableTarget) -> TableTarget | None:
        """Where dead letters of that table's topics go, if anywhere."""
        name = GivenOptions(target.settings).read(DEAD_LETTER_TABLE)
        if name is None:
            return None
        uri = self.dead_letter_places.get(name, name)
        files = replace(target.files, uri=uri, day_column=None)
        # A table that an earlier version made gets the columns that it lacks.
        settings = with_overrides(target.settings, {SCHEMA_EVOLUTION.name: Evolution.ADD})
        return TableTarget(name, files, spark_columns(DEAD_LETTER_SCHEMA, None), settings)


def routing_options(routing: Routing) -> dict[str, str]:
    """The source's options from which `routing_of` knows the tables; Spark redacts those that hold secrets."""
    routes = [[each.pattern, each.table, each.place, each.in_lower_case] for each in routing.routes]
    rows = {topic: how.to_json() for topic, how in routing.rows.items()}
    # Spark's options have no case: topics do
    told = {"routes": routes, "topics": routing.overrides, "rows": rows, "dead": routing.dead_letter_places,
            "has_rules": routing.has_rules}  # fmt: skip
    options = {**as_options(routing.settings, routing.files), ROUTES.name: orjson.dumps(told).decode()}
    # Dead letters have them, whatever the tables get.
    needed = routing.dead_letter_places or any(how.needs_headers for how in routing.rows.values())
    return dict(with_overrides(options, {INCLUDE_HEADERS.name: "true"} if needed else {}))


def routing_of(options: Mapping[str, str]) -> Routing:
    """Inverse of `routing_options`."""
    told = orjson.loads(GivenOptions(options).read(ROUTES))
    registry = registry_properties(options)
    rows = {topic: row_format(text, registry) for topic, text in told["rows"].items()}
    routes = tuple(Route(*each) for each in told["routes"])
    return Routing(options, table_files(options), routes, told["topics"], rows, told["dead"], told["has_rules"])
