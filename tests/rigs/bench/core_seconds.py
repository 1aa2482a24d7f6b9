"""Whose core seconds a run takes: by what the processes below this one have used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tests.rigs.soak.held import family, own_and_childrens_seconds

PYTHON, JVM, S3, BROKER, HDFS, JOBS = "Python", "Spark's JVM", "S3 server", "broker", "HDFS", "jobs"
_SERVICES = {"org.gaul.s3proxy.Main": S3, "kafka.Kafka": BROKER, "py4j.GatewayServer": HDFS}
_PROGRAMS = {"java": JVM, "versitygw": S3}


def kind_of(words: Sequence[str]) -> str:
    """What a process is to a run, by its command line."""
    services = [kind for main_class, kind in _SERVICES.items() if main_class in words]
    return services[0] if services else _PROGRAMS.get(os.path.basename(words[0]) if words else "", PYTHON)


def core_seconds() -> dict[str, float]:
    """What this process and all below it have used until now, by kind; jobs count when they have ended."""
    spent = dict.fromkeys((PYTHON, JVM, S3, BROKER, HDFS, JOBS), 0.0)
    root = os.getpid()
    for pid, words in [(root, ()), *((each.pid, each.arguments) for each in family(root).values())]:
        own, ended_children = own_and_childrens_seconds(pid)
        spent[kind_of(words)] += own
        spent[JOBS if pid == root else PYTHON] += ended_children
    return spent


def since(before: Mapping[str, float]) -> dict[str, float]:
    """What was used since `core_seconds` gave `before`."""
    return {kind: spent - before[kind] for kind, spent in core_seconds().items()}
