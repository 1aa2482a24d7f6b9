"""README, docs and the files in conf, run: `python -m tests.rigs.documented [FILE …]`.

It needs root, because it runs in namespaces. A FILE is a page, such as `docs/start.md`, or the name of a settings file
in conf. The pages start with the README's quick start in any case.
"""

from __future__ import annotations

import os
import sys

import pytest

if __name__ == "__main__":
    os.environ["DOCUMENTED"] = " ".join(sys.argv[1:])
    sys.exit(pytest.main(["-m", "slow", "-v", "tests/rigs/documented/test_documented.py"]))
