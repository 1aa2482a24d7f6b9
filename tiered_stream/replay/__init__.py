"""What topics held from one time to another: planned, run, and gone on with.

The package and the function `run_replay.replay` bear one name, so the package can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from tiered_stream.replay.run_replay import replay

        return replay(*arguments, **named)


sys.modules[__name__].__class__ = _CallablePackage
