"""Programs that run in a process in which packages are missing, as if nobody had installed them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection

_HIDE = """
import json, sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    hidden = frozenset(json.loads(sys.argv.pop(1)))

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in cls.hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def run_without(packages: Collection[str], program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end in a process that cannot import these packages."""
    command = [sys.executable, "-c", _HIDE + program, json.dumps([*packages]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
