"""A user's program that reads each of its sources once, with everything logged.

python -m tests.secrets.cloud_program GIVEN.json OUTPUT_FOLDER
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from tests.secrets.program import Program


class CloudProgram(Program):
    """By batch queries alone."""

    def run(self) -> None:
        for name, options in self._given["sources"].items():
            self._step(name, partial(self._batch, options))
        self._see_ui()
        self._spark.stop()


if __name__ == "__main__":
    CloudProgram(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])).run()
