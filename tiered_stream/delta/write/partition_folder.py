"""Names of partition folders in the form of Hive and Spark, and paths of data files in the form of Delta's log."""

from __future__ import annotations

from urllib.parse import quote

_ESCAPED = frozenset([*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\{[]^\x7f"])
"""Characters that Spark escapes in names of partition folders (Spark: `ExternalCatalogUtils.escapePathName`)."""
_LEFT_IN_URI = "/!$&'()*+,:;=@"
"""Characters that stay unescaped in a URI's path, in addition to letters, digits and `-._~` (RFC 3986, section 3.3)."""


def partition_folder(column: str, value: str) -> str:
    """Return the name of the folder for rows with this value in the partition column, such as `day=2026-11-21`.

    Characters that Spark escapes (`_ESCAPED`) are replaced by `%` and two hexadecimal digits.
    """
    return f"{_escaped(column)}={_escaped(value)}"


def log_path(path: str) -> str:
    """Return a path below the table's folder as a relative URI (Delta protocol: "Add File and Remove File").

    delta-spark writes the path of an action unchanged into the log, so the path must be a URI. deltalake gets plain
    paths, and encodes them itself.
    """
    return quote(path, safe=_LEFT_IN_URI)


def _escaped(name: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in name)
