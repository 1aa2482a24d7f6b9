"""What options may be is checked against what Spark's own source said of them, as far as that needs no broker."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.values.cases import KINDS, Case, read_cases
from tests.values.differences import differing
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import check_for_any_query, parse_options

CASES = read_cases()
DIFFERING = set(differing())
BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_each_case_stands_there_once_and_was_answered() -> None:
    assert len({str(case) for case in CASES}) == len(CASES) >= 300
    assert [str(case) for case in CASES if not (case.batch and case.stream)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_spark_s_source_takes_is_taken(kind: str) -> None:
    refused = {}
    for case in _agreeing(kind):
        if case.answer(kind).startswith("rows"):
            try:
                parsed = parse_options(CaseInsensitiveDict({**BROKERS, **case.options()}), streaming=kind == "stream")
                BrokerConfig.parse(parsed.kafka)
            except ConfigurationError as error:
                refused[str(case)] = str(error)
    assert refused == {}


def test_what_it_refuses_at_load_is_refused_there() -> None:
    """Where it refuses both a batch query and a stream: Spark does not tell a Python source at `load()` which it is."""
    taken = []
    for case in _agreeing(*KINDS):
        if all(case.answer(kind).startswith("load") for kind in KINDS):
            try:
                check_for_any_query(CaseInsensitiveDict({**BROKERS, **case.options()}))
            except ConfigurationError:
                continue
            taken.append(str(case))
    assert taken == []


def _agreeing(*kinds: str) -> list[Case]:
    return [case for case in CASES if not any((str(case), kind) in DIFFERING for kind in kinds)]
