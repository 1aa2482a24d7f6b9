"""Our parser reads a text as Spark's own parser reads it, or refuses the text."""

from __future__ import annotations

import os
import sys
from random import Random, SystemRandom

import pytest
from pyspark.sql import SparkSession

from tests.depth import examples
from tests.formats.sql.made_sql import parsed
from tests.formats.sql.made_texts import Texts
from tests.formats.sql.spark_trees import Form, SparkParser, named, of_tree
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.sql.parser import parse_condition
from tiered_stream.formats.sql.sql_reader import SqlTypeError

pytestmark = pytest.mark.stack

TEXTS = examples(int(os.environ.get("EXAMPLES") or "6") * 500)
SEED = int(os.environ.get("SEED") or ("1" if os.environ.get("CI") else SystemRandom().randrange(1 << 32)))
FORMS = [
    "{}", "{} = b", "a = {}", "NOT {}", "a {} b", "a AS {}", "a {}", "a.{}", "{}.a", "{} - 1", "- {}", "{} 'x'",
    "{} '2024-02-29'", "abs({} -a)", "lower({} a)", "lower({})", "upper({}(a))", "{} (a)", "{}(a, b)",
    "CAST({} AS INT)", "CAST(a AS {})", "CASE {} WHEN 1 THEN 2 END", "CASE WHEN {} THEN 1 END",
    "CASE a WHEN 1 THEN {} END", "a IS {}",
    "a IN ({})", "a IN ({}, b)", "a BETWEEN {} AND b", "a LIKE {}", "a::{}", "lower(a) {}", "({})", "if({}, {}, {})",
    "a = {} b", "`{}`", "a AS `{}`", "a AND {}", "a {} 1", "a {} (1)", "a {} 'x'", "{} a", "{} {}", "NOT {} a",
    "a IS NOT {}", "a NOT {} b", "a ! {}", "{} AND b", "{} IS NULL", "{} IN (1)", "{} LIKE 'x'", "{} AS x",
]  # fmt: skip
"""Places at which a word may be a name or have a meaning in Spark's grammar."""


@pytest.fixture
def parser(in_utc: SparkSession) -> SparkParser:
    return SparkParser(in_utc)


def condition(text: str) -> Form | None:
    """The form of our tree; None: our parser refuses the text."""
    try:
        return of_tree(parse_condition(text))
    except (ConfigurationError, SqlTypeError):
        return None


def item(text: str) -> Form | None:
    """The form of an item of `ingest.select`, with its name; None: our parser refuses the text."""
    try:
        (only,) = parsed(text).select
        assert only.tree is not None
        return named(only.name, of_tree(only.tree))
    except (ConfigurationError, SqlTypeError):
        return None


@pytest.mark.drawn
@pytest.mark.parametrize("odd", [0.0, 0.1, 0.35])
def test_a_text_has_sparks_tree_or_is_refused(
    parser: SparkParser, odd: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        sys.stdout.write(f" SEED={SEED} ")
    texts, accepted = Texts(Random(SEED)), 0
    for _ in range(TEXTS):
        text = texts.text(odd)
        ours = condition(text)
        if ours is not None:
            accepted += 1
            assert ours == parser.form(text), (f"SEED={SEED}", text)
    assert accepted > TEXTS * (0.04 if odd else 0.9)


@pytest.mark.slow
def test_each_word_of_spark_is_read_as_spark_reads_it_or_is_refused(parser: SparkParser, spark: SparkSession) -> None:
    words = [row[0] for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()]
    assert len(words) > 300
    for word in [*words, "REGEXP", "a1", "_x", "SYSTEM_USER", "LOCALTIMESTAMP", "UNKNOWN", "LOCALTIME"]:
        for form in FORMS:
            text = form.format(*[word.lower()] * 3)
            ours = item(text)
            assert ours is None or ours == parser.form(text), text


@pytest.mark.slow
def test_a_plain_name_is_accepted_in_back_quotes_whatever_word_it_is(parser: SparkParser, spark: SparkSession) -> None:
    for row in spark.sql("SELECT keyword FROM sql_keywords()").collect():
        assert item(f"`{row[0]}`") == parser.form(f"`{row[0]}`") == ("column", row[0])
