"""The page about troubleshooting quotes messages as the package writes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from tests.docs.docs_tables import DOCS
from tests.test_structure import modules

OF_OTHER_PROGRAMS = (
    "DATA_SOURCE", "No module named", "PYTHON_VERSION", "is not a valid Spark SQL", "Hostname mismatch", "IP address",
    "replaced a statically registered", "previously registered", "ERROR Inbox", "::::", "You probably access",
    "KAFKA_DATA_LOSS", "PARTITIONS_DELETED", "TRIGGER_AVAILABLENOW", "certificate has expired", "the spark lane",
)  # fmt: skip
_SHARE = 0.6
"""Smallest share of a message's pairs of words that the package's texts have; other pairs are around a value."""


def quoted() -> list[str]:
    rows = [row for row in (DOCS / "troubleshooting.md").read_text("utf-8").splitlines() if row.startswith("| `")]
    messages = [message for row in rows for message in re.findall(r"`([^`]+)`", row.split("|")[1])]
    return [message for message in messages if not any(other in message for other in OF_OTHER_PROGRAMS)]


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield each two words of the text that follow each other, without values between them."""
    for part in re.split(r"…|\d{3}", text):
        yield from pairwise(re.findall(r"[\w'.=*:/]*\w", part))


@cache
def known() -> frozenset[tuple[str, str]]:
    nodes = [node for tree in modules().values() for node in ast.walk(tree)]
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    texts = [node.value for node in constants if isinstance(node.value, str)]
    return frozenset(pair for text in texts for pair in pairs(text))


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_is_one_of_the_package(message: str) -> None:
    found = [pair in known() for pair in pairs(message)]
    assert sum(found) >= _SHARE * len(found), [pair for pair in pairs(message) if pair not in known()]


def test_another_wording_is_noticed() -> None:
    found = [pair in known() for pair in pairs("no access to s3://…: … answered wrongly 403 …")]
    assert sum(found) < _SHARE * len(found)
