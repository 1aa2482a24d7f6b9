"""Run a Jupyter notebook's cells without Jupyter, and keep their outputs.

Run it as `python -m tests.examples.notebook` to write the outputs of `examples/archive.ipynb` again. A cell's output is
what it prints and, as in Jupyter, the value of its last expression.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from tests.rigs.stack.build import ROOT

NOTEBOOK = ROOT / "examples" / "archive.ipynb"

Output = dict[str, Any]


def code_cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def run(path: Path = NOTEBOOK) -> list[list[Output]]:
    """Run all code cells in the notebook's folder, one after the other, and return the outputs of each."""
    notebook = json.loads(path.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    with chdir(path.parent):
        return [_outputs("".join(cell["source"]), names, n) for n, cell in enumerate(code_cells(notebook), start=1)]


def _outputs(source: str, names: dict[str, Any], number: int) -> list[Output]:
    """Run one cell, and return its outputs in the notebook's format."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[Output] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), run(), strict=True), start=1):
        cell["execution_count"], cell["outputs"] = number, outputs
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
