"""Compilation of kernels (functions that numba compiles), and a cache of their machine code on disk.

numba's built-in cache is keyed by the source file's folder. Code that is shipped with `--py-files` is in a new folder
each time, so every worker would compile again. This cache is keyed by everything that decides the machine code: the
source, the versions of numba and Python, and the CPU.

The cache is in the first of these folders that can be used:

1. the package itself, if `tiered-stream warm` has put the cache there for a packed environment
2. the user's cache folder
3. a private folder under the temporary folder
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

from tiered_stream.process.private_folder import is_private_and_writable, user_cache_folder

_RECORDS = ("kernels", "value_scan", "legacy", "hash_kernels", "header", "intrinsics")
_FORMATS = (
    "columns.column_kernels", "json.json_text_kernels",
    "json.json_kernels", "avro.avro_kernels", "protobuf.protobuf_kernels",
)  # fmt: skip
KERNELS = (
    *(f"tiered_stream.records.{name}" for name in _RECORDS),
    *(f"tiered_stream.formats.{name}" for name in _FORMATS),
)
"""Modules that have kernels, or constants that kernels use. Their source decides the machine code."""

_COMPILER = "libllvmlite"
_MADV_DONTNEED = 4
"""Value of `MADV_DONTNEED` in Linux's mman.h."""

Int = Any
"""Type of an int64 or a Python integer, between which compiled code makes no difference."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def kernel_key(*modules: str) -> str:
    """Return the cache key of the machine code of `modules`, given by their dotted names: 32 hexadecimal digits.

    The key depends on the modules' source, the versions of numba and Python, and the CPU.
    """
    cpu = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    parts = (*map(_source, modules), numba.__version__.encode(), sys.version.encode(), repr(cpu).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _source(module: str) -> bytes:
    # By the outermost package, because a format's own package cannot be imported without the libraries of the format.
    package, _, path = module.partition(".")
    source = pkgutil.get_data(package, f"{path.replace('.', '/')}.py")
    if source is None:
        raise ImportError(f"the source of {module} cannot be read")
    return source


def packaged_folder() -> Path:
    """Return the folder in the package that has machine code for packed environments (`tiered-stream warm` makes it).

    In other environments, the folder does not exist.
    """
    return Path(__file__).parent / "kernel_cache"


def _candidates(key: str) -> Iterator[Path]:
    with suppress(RuntimeError):  # a user without a home folder
        yield user_cache_folder() / "kernels" / key
    with suppress(FileNotFoundError):  # no usable temporary folder
        # Directly under the temporary folder, only a folder's owner may put another folder in its place.
        yield Path(tempfile.gettempdir()) / f"tiered_stream-{os.getuid()}-{key}"


def cache_folder(key: str) -> Path | None:
    """Return the cache folder for machine code with the key `key`.

    This is the folder in the package, if it exists. Otherwise it is a private and writable folder in the user's cache
    folder or under the temporary folder. The result is None if none of these folders can be used.
    """
    packaged = packaged_folder() / key
    if packaged.is_dir():
        return packaged
    return next((folder for folder in _candidates(key) if is_private_and_writable(folder)), None)


class _ContentLocator(caching._CacheLocator):  # type: ignore[misc]
    """Locator of numba's cache (numba: `_CacheLocator`) that keeps the machine code of `KERNELS` in `cache_folder`."""

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
    """Return `function` as compiled code that runs without the GIL.

    The first call compiles the function, or loads its machine code from the cache.
    """
    return _compiled(function, forceinline=False)


def inlined(function: _Function) -> _Function:
    """Return `function` as compiled code, like `kernel`, but inlined into each compiled function that calls it.

    Use this for small functions that are called for every value. Without inlining, most of their time would be spent on
    passing arrays.
    """
    return _compiled(function, forceinline=True)


@cache
def release_compiler() -> None:
    """Give the memory of the compiler's own machine code (LLVM, 50 MiB) back to the system.

    Most of this code is needed only to load kernels. A page that is needed again is read from the library's file. Only
    the first call in a process has an effect.
    """
    with suppress(AttributeError, OSError):  # no Linux, or no glibc
        advise = CDLL(None).madvise
        advise.argtypes = (c_void_p, c_size_t, c_int)
        for start, end in _compilers_code(Path("/proc/self/maps").read_text()):
            advise(start, end - start, _MADV_DONTNEED)


def _compilers_code(maps: str) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) addresses of the LLVM library's code, from the text `maps` of `/proc/PID/maps`.

    The library's constants are left out, because loading the library has written to some of them.
    """
    for line in maps.splitlines():
        addresses, access, *_, file = line.split(maxsplit=5)
        if access == "r-xp" and _COMPILER in file:
            start, _, end = addresses.partition("-")
            yield int(start, 16), int(end, 16)


def _compiled(function: _Function, forceinline: bool) -> _Function:
    if _ContentLocator not in caching.CacheImpl._locator_classes:
        caching.CacheImpl._locator_classes.insert(0, _ContentLocator)
    # numba refuses to cache a function if there is no folder for its code.
    is_cached = cache_folder(kernel_key(*KERNELS)) is not None
    # `_nrt=False` turns off reference counts, because the kernels allocate nothing. Counts are atomic, and each call
    # that passes a tuple of arrays changes them. Without counts a record takes a sixth of the time.
    compiled: _Function = numba.njit(
        cache=is_cached, nogil=True, error_model="numpy", _nrt=False, forceinline=forceinline
    )(function)
    return compiled
