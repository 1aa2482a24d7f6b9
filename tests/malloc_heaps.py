"""How many heaps glibc's malloc has in this process."""

from __future__ import annotations

import platform
import threading
from ctypes import CDLL, c_char_p, c_int, c_void_p
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

only_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other libraries have one heap, or heaps of another kind"
)


def heaps_of_threads() -> int:
    """Heaps in this process once four threads have taken memory at the same time."""
    together = threading.Barrier(4)

    def take() -> None:
        together.wait()
        kept = bytearray(100_000)
        together.wait()
        del kept

    threads = [threading.Thread(target=take) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with TemporaryDirectory() as folder:
        told = Path(folder, "malloc.xml")
        _write_malloc_info(told)
        return told.read_text().count("<heap nr=")


def _write_malloc_info(to: Path) -> None:
    libc = CDLL(None)
    libc.fopen.restype = c_void_p
    libc.fopen.argtypes = c_char_p, c_char_p
    libc.malloc_info.argtypes = c_int, c_void_p
    libc.fclose.argtypes = (c_void_p,)
    file = libc.fopen(str(to).encode(), b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)
