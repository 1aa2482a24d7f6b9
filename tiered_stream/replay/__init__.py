"""Replay: copy the records of topics between two times to a target, with a plan that a restart reads again.

The package has the same name as the function `run_replay.replay`, so calling the package calls the function.
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
