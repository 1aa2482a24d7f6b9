"""Plan of an ingest job: the queries that its settings describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered_stream.delta.checkpoint.query_run import AVAILABLE_NOW
from tiered_stream.delta.schema.routing import comparable_name, table_for
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.ingest_settings import TOPIC
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.settings_files import without
from tiered_stream.options.spark_options import SUBSCRIBE


@dataclass(frozen=True)
class Ingest:
    """Settings of one ingest query.

    `options` are the source's options and the `ingest.*` settings of the query's rows and files. The other fields are
    the values of `ingest.table`, `ingest.checkpointLocation`, `ingest.trigger` and `ingest.lane`, and the topic if
    another query of the job has the same table.
    """

    options: Mapping[str, str] = field(repr=False)  # it may have secrets
    table: str
    checkpoint: str
    trigger: str
    lane: str = "auto"
    topic: str = ""

    @property
    def name(self) -> str:
        """The query's name. It differs from the names of the job's other queries, because Spark needs this."""
        return f"ingest {self.topic} into {self.table}" if self.topic else f"ingest {self.table}"


def plan_ingests(settings: Mapping[str, str]) -> list[Ingest]:
    """Return the ingest queries that the settings describe: one query, or one for each topic in `subscribe`.

    There is one query for each topic if `ingest.checkpointLocation` contains `{topic}`.

    Raises:
        ConfigurationError: a setting is missing, unknown or malformed, or settings do not go together.
    """
    ingest.check_names(settings, ingest.JOB_SETTINGS)
    own = ingest.job_settings(settings)
    missing = [name for name in (ingest.TABLE, ingest.CHECKPOINT) if not own.get(name)]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set, in the settings file or with --option")
    table, checkpoint = own[ingest.TABLE], own[ingest.CHECKPOINT]
    trigger_and_lane = own.get(ingest.TRIGGER, AVAILABLE_NOW), own.get(ingest.LANE, "auto")
    options = without(settings, ingest.JOB_SETTINGS)
    if TOPIC not in checkpoint:
        return [Ingest(options, table, checkpoint, *trigger_and_lane)]
    topics = GivenOptions(options).read(SUBSCRIBE)
    if TOPIC not in table or not topics or GivenOptions(options).read(ingest.ROUTE):
        raise ConfigurationError(
            f"with {TOPIC} in {ingest.CHECKPOINT}, which is a query for each topic, {ingest.TABLE} needs it too, "
            f"topics come by subscribe, and there is no {ingest.ROUTE.name}. For one query take {TOPIC} out of "
            f"{ingest.CHECKPOINT}: it is a new one"
        )
    shared, overrides = ingest.shared_settings(options), ingest.topic_overrides(options)
    names = {topic: overrides.get(topic, {}).get(ingest.TABLE, table) for topic in topics}
    tables = {topic: table_for(name, topic) for topic, name in names.items()}
    _check_separate_tables({topic: tables[topic] for topic, name in names.items() if TOPIC in name})
    sharing: dict[str, list[str]] = {}
    for topic, place in tables.items():
        sharing.setdefault(comparable_name(place), []).append(topic)
    shared_tables = {name: of_table for name, of_table in sharing.items() if len(of_table) > 1}
    for of_table in shared_tables.values():
        ingest.settings_of_topics(options, of_table)
    ingests = []
    for topic, place in tables.items():
        own = {**without(overrides.get(topic, {}), [ingest.TABLE]), SUBSCRIBE.name: topic}
        of_topic = ingest.with_overrides(shared, own), place, checkpoint.replace(TOPIC, topic)
        ingests.append(Ingest(*of_topic, *trigger_and_lane, topic if comparable_name(place) in shared_tables else ""))
    return ingests


def _check_separate_tables(tables: Mapping[str, str]) -> None:
    """Check that tables whose names contain `{topic}` differ for each topic, even if a catalog ignores case.

    Raises:
        ConfigurationError: two topics would share a table whose name contains `{topic}`.
    """
    owners: dict[str, str] = {}
    for topic, place in tables.items():
        owner = owners.setdefault(comparable_name(place), topic)
        if owner != topic:
            raise ConfigurationError(
                f"topics {owner} and {topic} would share the table {place}, because a catalog may ignore case: name a "
                f"table for one of them by ingest.topic.{topic}.{ingest.TABLE.removeprefix('ingest.')}"
            )
