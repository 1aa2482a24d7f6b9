"""Replay: copy the records of topics between two times to a target, by a stored plan, so that a replay can be resumed.

The package has the same name as its function `run_replay.replay`. A call of the package calls this function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tiered_stream.extras import naming_extras


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with naming_extras("tiered_stream.replay"):
            from tiered_stream.replay.run_replay import replay

        return replay(*arguments, **named)


sys.modules[__name__].__class__ = _CallablePackage
