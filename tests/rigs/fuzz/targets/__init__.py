"""All targets of the job, by what they parse: `TARGETS` of each module of this package."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.rigs.fuzz.target import Target

TARGETS: tuple[Target, ...] = tuple(
    target for module in iter_modules(__path__) for target in import_module(f"{__name__}.{module.name}").TARGETS
)
