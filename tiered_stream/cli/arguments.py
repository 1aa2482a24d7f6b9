"""What commands that read topics have in common on their command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SettingsFile = Annotated[Path | None, typer.Option(help="A settings file; that of an ingest job will do.")]
Assignments = Annotated[list[str] | None, typer.Option(help="name=value, any setting; may be repeated.")]
Subscribe = Annotated[str | None, typer.Option(help="Topics, separated by commas.")]
SubscribePattern = Annotated[str | None, typer.Option(help="A pattern of topics' names.")]
Assign = Annotated[str | None, typer.Option(help='Partitions: {"topicA":[0,1]}.')]
SparkConf = Annotated[list[str] | None, typer.Option(help="name=value for Spark; may be repeated.")]


def reads(subscribe: str | None, subscribe_pattern: str | None, assign: str | None) -> dict[str, str]:
    """What is given of the three, as options of the source."""
    given = {"subscribe": subscribe, "subscribePattern": subscribe_pattern, "assign": assign}
    return {name: value for name, value in given.items() if value is not None}
