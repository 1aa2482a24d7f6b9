from __future__ import annotations

import json

from tests.examples.notebook import NOTEBOOK, code_cells, run


def test_the_notebook_runs_and_has_the_outputs_that_it_shows() -> None:
    shown = [cell["outputs"] for cell in code_cells(json.loads(NOTEBOOK.read_text("utf-8")))]
    assert run() == shown, "write them again with `python -m tests.examples.notebook`"
