"""Table features by which a table's commits go through a catalog or a commit coordinator.

A version of such a table exists once the catalog has accepted it. The log folder may lack the newest versions, and a
file that a writer adds there by itself is no commit.
"""

from __future__ import annotations

from collections.abc import Iterable

_PREFIXES = ("catalogmanaged", "catalogowned", "coordinatedcommits")
"""Beginnings of the features' names, in lower case: the present name, and the names in earlier previews of Delta."""


def managing_feature(features: Iterable[str]) -> str | None:
    """Return the name of the feature by which a catalog manages the table; None: `features` have no such feature."""
    return next((name for name in sorted(features) if name.lower().startswith(_PREFIXES)), None)
