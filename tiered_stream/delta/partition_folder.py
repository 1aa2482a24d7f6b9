"""Names of partition folders, as Hive and Spark have them, and paths of data files, as a table's log has them."""

from __future__ import annotations

from urllib.parse import quote

_ESCAPED = frozenset([*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\{[]^\x7f"])
"""Spark: `ExternalCatalogUtils.escapePathName`."""
_LEFT_IN_URI = "/!$&'()*+,:;=@"
"""With letters, digits and `-._~`: what a URI's path may have as it is (RFC 3986, section 3.3)."""


def partition_folder(column: str, value: str) -> str:
    """The folder of the rows that have the value in the partition column: `day=2026-11-21`."""
    return f"{_escaped(column)}={_escaped(value)}"


def log_path(path: str) -> str:
    """A path below the table's folder as a relative URI (Delta protocol: "Add File and Remove File").

    deltalake encodes paths when it writes them into the log. Delta's own actions have URIs.
    """
    return quote(path, safe=_LEFT_IN_URI)


def _escaped(name: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in name)
