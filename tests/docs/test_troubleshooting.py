"""The page about troubleshooting quotes messages as the package writes them."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise

import pytest

from tests.docs.docs_tables import DOCS
from tests.test_structure import nodes_of_modules

OF_OTHER_PROGRAMS_OR_VALUES = (
    "DATA_SOURCE", "No module named", "PYTHON_VERSION", "is not a valid Spark SQL", "Hostname mismatch", "IP address",
    "replaced a statically registered", "previously registered", "ERROR Inbox", "::::", "You probably access",
    "KAFKA_DATA_LOSS", "PARTITIONS_DELETED", "TRIGGER_AVAILABLENOW", "certificate has expired", "the spark lane",
    "AssumeRole",
)  # fmt: skip
_SHARE = 0.6
"""Smallest share of a message's pairs of words that the package's texts have; other pairs are around a value."""


def quoted() -> list[str]:
    rows = [row for row in (DOCS / "troubleshooting.md").read_text("utf-8").splitlines() if row.startswith("| `")]
    messages = [message for row in rows for message in re.findall(r"`([^`]+)`", row.split("|")[1])]
    return [message for message in messages if not any(other in message for other in OF_OTHER_PROGRAMS_OR_VALUES)]


def parts(text: str) -> list[list[str]]:
    """Return the words of each part of the text between values."""
    return [re.findall(r"[\w'.=*:/]*\w", part) for part in re.split(r"…|\d{3}", text)]


@cache
def known() -> frozenset[tuple[str, ...]]:
    """Each word, and each two words that follow each other, of all texts with a blank but docstrings."""
    nodes = [node for nodes in nodes_of_modules().values() for node in nodes]
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    texts = [node.value for node in constants if isinstance(node.value, str) and " " in node.value]
    runs = [words for text in texts for words in parts(text)]
    return frozenset({(word,) for words in runs for word in words} | {two for words in runs for two in pairwise(words)})


def is_of_the_package(message: str) -> bool:
    """Return whether its pairs of words are known, and each word between two values."""
    found = [pair in known() for words in parts(message) for pair in pairwise(words)]
    alone = [tuple(words) for words in parts(message) if len(words) == 1]
    return sum(found) >= _SHARE * len(found) and known().issuperset(alone)


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_is_one_of_the_package(message: str) -> None:
    assert is_of_the_package(message)


@pytest.mark.parametrize("answer", ["answered", "answered wrongly with"])
def test_another_wording_is_noticed(answer: str) -> None:
    assert not is_of_the_package(f"no access to s3://…: … {answer} 403 …")
