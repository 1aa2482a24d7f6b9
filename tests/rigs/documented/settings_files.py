"""Each command with each settings file in conf: filled in as the README says, and as it is."""

from __future__ import annotations

from dataclasses import dataclass

from tests.rigs.documented.site import Site
from tests.rigs.documented.workspace import DocumentationError, Workspace

_DAY = "--from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z"
_NO_DEAD_LETTERS = "ingest.deadLetterTable is not set"


@dataclass(frozen=True)
class Command:
    """A command; `{settings}` and `{spark}` are its files.

    Args:
        missing: text about a setting that no file has; the command then ends with status 2.
        first: text that is right, too, if the command looks at something else before the brokers.
    """

    text: str
    missing: str = ""
    first: str = ""


COMMANDS = (
    Command("tiered-stream doctor {settings} {spark}"),
    Command("tiered-stream segments {settings}"),
    Command("tiered-stream plan {settings}"),
    Command("tiered-stream cat {settings} --count 3"),
    Command("tiered-stream export {settings} --overwrite --into {name}.parquet"),
    Command("tiered-stream ingest {settings} {spark}"),
    Command("tiered-stream lag {settings} {spark}", first="no micro-batch is committed there"),
    Command("tiered-stream verify {settings} {spark}"),
    Command("tiered-stream verify {settings} --storage"),
    Command(f"tiered-stream replay {{settings}} {{spark}} {_DAY} --dry-run"),
    Command(f"tiered-stream replay {{settings}} {{spark}} {_DAY} --replace --verify"),
    Command("tiered-stream redrive {settings} {spark}", missing=_NO_DEAD_LETTERS, first=_NO_DEAD_LETTERS),
    Command("spark-submit {spark} jobs/ingest_to_delta.py {settings}"),
    Command(f"spark-submit {{spark}} jobs/replay_from_timestamp.py {{settings}} {_DAY} --name again --replace"),
)
SPARK_FILES = {
    "ingest_to_delta.properties": "spark-s3.conf",
    "ingest-s3-other.properties": "spark-s3-other.conf",
    "ingest-local.properties": "spark-defaults.conf",
    "ingest-strimzi.properties": "spark-s3.conf",
}
"""Each file of a job's settings, with the file for Spark that belongs to it."""
FIRST_ERROR = {
    "ingest_to_delta.properties": "kafka.security.protocol",
    "ingest-strimzi.properties": "(kafka.ssl.truststore.location: conf/ingest-strimzi.properties, line 10)",
    "ingest-s3-other.properties": "kafka.security.protocol",
    "ingest-local.properties": "kafka.security.protocol",
}
"""By file, the text about the first setting that is to be filled in."""


def values(name: str, site: Site) -> str:
    """Return the lines that a user fills in."""
    if name == "ingest-local.properties":
        return (
            f"kafka.bootstrap.servers={site.broker.bootstrap_servers}\nremote.storage.uri={site.tier.as_uri()}\n"
            "ingest.table=lake/orders\ningest.checkpointLocation=lake/checkpoints/orders\n"
        )
    own = name.removesuffix(".properties").replace("_", "-")
    return (
        f"{site.login()}ingest.table=s3a://lake/{own}\ningest.checkpointLocation=s3a://lake/checkpoints/{own}\n"
        + "maxOffsetsPerTrigger=1000\n"
    )


def run_filled_in(workspace: Workspace, name: str) -> None:
    """Run each command with the filled-in file."""
    workspace.put(name, values(name, workspace.site), f"conf/{name}")
    for command in COMMANDS:
        ended = workspace.run(_text(command, name, name))
        ended.expect(2 if command.missing else 0, name)
        if command.missing not in ended.output:
            raise DocumentationError(f"{name}: {command.text} does not name {command.missing}:\n{ended.output}")


def run_as_it_is(workspace: Workspace, name: str) -> list[str]:
    """Run each command with the file in conf. Return the commands that do not name what is to be filled in."""
    wrong = []
    for command in COMMANDS:
        ended = workspace.run(_text(command, name, f"conf/{name}"))
        named = any(text in ended.output for text in (FIRST_ERROR[name], command.first) if text)
        if ended.status not in (1, 2) or not named or "Traceback" in ended.output:
            wrong.append(f"{ended.command}: status {ended.status}\n{ended.output[-1500:]}")
    return wrong


def _text(command: Command, name: str, file: str) -> str:
    spark = f"--properties-file conf/{SPARK_FILES[name]}"
    return command.text.format(settings=f"--settings {file}", spark=spark, name=name)
