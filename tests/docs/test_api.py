"""The API reference has every public function of the package."""

from __future__ import annotations

import re
from importlib import import_module

import tiered_stream
from tests.docs.docs_tables import DOCS


def test_every_public_function_is_in_the_reference() -> None:
    named = re.findall(r"^::: (\S+)\.(\w+)$", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE)
    objects = {id(getattr(import_module(module), name)) for module, name in named}
    functions = [name for name in tiered_stream.__all__ if name != "__version__"]
    assert [name for name in functions if id(getattr(tiered_stream, name)) not in objects] == []
