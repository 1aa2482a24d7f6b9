"""Where the compiled kernels are kept, so that no process compiles what another has compiled before.

numba's own cache is keyed by the source file's folder. Code that is shipped with `--py-files` lands in a new folder
each time, and every worker would compile again. This cache is keyed by what decides the machine code: the source, the
versions of numba and Python, and the CPU. It lies in the package itself when it was put there (`tiered-stream warm`,
for a packed environment), else in the user's cache folder, else in a private folder under the temporary one.
"""

from __future__ import annotations

import hashlib
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import CDLL, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba.core import caching

from tiered_stream.private_folder import is_private_and_writable, user_cache_folder

_RECORDS = ("kernels", "crc_kernels", "value_scan", "legacy", "hash_kernels", "header", "intrinsics")
_FORMATS = (
    "column_kernels", "byte_kernels", "double_kernels", "json_text_kernels", "json_kernels", "avro_kernels",
    "protobuf_kernels",
)  # fmt: skip
KERNELS = (
    *(f"tiered_stream.records.{name}" for name in _RECORDS),
    *(f"tiered_stream.formats.{name}" for name in _FORMATS),
)
"""The modules whose functions are compiled, and whose constants become machine code."""

_COMPILER = "libllvmlite"
_MADV_DONTNEED = 4
"""Of Linux's mman.h."""

Int = Any
"""An int64, or a Python integer, which compiled code does not tell apart."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def kernel_key(*modules: str) -> str:
    """A name for the machine code of `modules` on this machine: 32 hexadecimal digits."""
    cpu = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    parts = (*map(_source, modules), numba.__version__.encode(), sys.version.encode(), repr(cpu).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _source(module: str) -> bytes:
    package, _, name = module.rpartition(".")
    source = pkgutil.get_data(package, f"{name}.py")
    if source is None:
        raise ImportError(f"the source of {module} cannot be read")
    return source


def packaged_folder() -> Path:
    """The folder beside this file that a packed environment carries."""
    return Path(__file__).parent / "kernel_cache"


def _candidates(key: str) -> Iterator[Path]:
    with suppress(RuntimeError):  # a user without a home folder
        yield user_cache_folder() / "kernels" / key
    with suppress(FileNotFoundError):  # no usable temporary folder
        # Right under the temporary folder, where only a folder's owner may put another in its place.
        yield Path(tempfile.gettempdir()) / f"tiered_stream-{os.getuid()}-{key}"


def cache_folder(key: str) -> Path | None:
    """The folder for the kernels of `key`, or None when there is nowhere to keep them."""
    packaged = packaged_folder() / key
    if packaged.is_dir():
        return packaged
    return next((folder for folder in _candidates(key) if is_private_and_writable(folder)), None)


class _ContentLocator(caching._CacheLocator):  # type: ignore[misc]
    """Tells numba to keep a function of this package in `cache_folder`."""

    def __init__(self, function: Callable[..., Any], key: str, folder: Path) -> None:
        self._function = function
        self._key = key
        self._folder = folder

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._key

    def get_disambiguator(self) -> str:
        return str(self._function.__code__.co_firstlineno)

    @classmethod
    def from_function(cls, function: Callable[..., Any], py_file: str) -> _ContentLocator | None:
        if function.__module__ not in KERNELS:
            return None
        key = kernel_key(*KERNELS)
        folder = cache_folder(key)
        return None if folder is None else cls(function, key, folder)


def kernel(function: _Function) -> _Function:
    """Compile `function` at its first call, without the GIL, from the cache where it can."""
    return _compiled(function, forceinline=False)


def inlined(function: _Function) -> _Function:
    """As `kernel`, what is small and called for every value: passing its arrays would take longer than it does."""
    return _compiled(function, forceinline=True)


@cache
def release_compiler() -> None:
    """Take the compiler's code out of this process's memory, once: 50 MiB, most of which only loading kernels needs.

    These are pages of a file, never written to. What is needed again comes back from the page cache by itself.
    """
    with suppress(AttributeError, OSError):  # no Linux, or no glibc
        advise = CDLL(None).madvise
        advise.argtypes = (c_void_p, c_size_t, c_int)
        for start, end in _compilers_code(Path("/proc/self/maps").read_text()):
            advise(start, end - start, _MADV_DONTNEED)


def _compilers_code(maps: str) -> Iterator[tuple[int, int]]:
    """Where it lies, by `/proc/PID/maps`. (Of its constants, some were written to when it was loaded.)"""
    for line in maps.splitlines():
        addresses, access, *_, file = line.split(maxsplit=5)
        if access == "r-xp" and _COMPILER in file:
            start, _, end = addresses.partition("-")
            yield int(start, 16), int(end, 16)


def _compiled(function: _Function, forceinline: bool) -> _Function:
    if _ContentLocator not in caching.CacheImpl._locator_classes:
        caching.CacheImpl._locator_classes.insert(0, _ContentLocator)
    # With nowhere to keep what it compiles, numba would refuse the function.
    kept = cache_folder(kernel_key(*KERNELS)) is not None
    # The kernels allocate nothing. Without the runtime that counts references, a record costs a sixth: the counts are
    # atomic, and tuples of arrays take and give them back at each call.
    compiled: _Function = numba.njit(cache=kept, nogil=True, error_model="numpy", _nrt=False, forceinline=forceinline)(
        function
    )
    return compiled
