"""Programs that run in a process in which packages are missing, as if nobody had installed them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection

from tests.forking_python import IMPORTS, forking_python

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
    return forking_python(_HIDE + IMPORTS, json.dumps([*packages])).run(program, *arguments)
