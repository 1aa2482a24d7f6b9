"""What of a record batch's header is read outside the kernels, in bytes from its start; `kernels.py` has all of it."""

from __future__ import annotations

from typing import Any

import google_crc32c

LENGTH_AT, LENGTH_END = 8, 12
MAGIC_AT = 16
CRC_AT, CRC_FROM = 17, 21


def crc_is_right(batch: Any) -> bool:
    """Whether a batch of magic 2 (bytes, or an array of them) has the CRC-32C that it says."""
    return bool(google_crc32c.value(batch[CRC_FROM:]) == int.from_bytes(bytes(batch[CRC_AT:CRC_FROM]), "big"))
