"""Gives kafka-python, with which we compare, a native CRC-32C: its own is pure Python, 30 times slower.

It would take one from the package `crc32c`. But so would every process that plans a query, and there that package looks
through all jars on Spark's Python path for its own version, which takes 0.2 s.
"""

from __future__ import annotations

import google_crc32c
from kafka.record import default_records


def _crc(data: bytes | bytearray | memoryview) -> int:
    return int(google_crc32c.value(bytes(data)))


default_records.calc_crc32c = _crc
