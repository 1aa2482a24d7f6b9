"""Functions that kernels call, made of machine instructions and C functions that numba itself does not offer."""

from __future__ import annotations

import sys
from ctypes import CDLL, c_void_p, cast
from typing import Any

import llvmlite.binding
from google_crc32c import _crc32c
from llvmlite import ir
from numba.core import cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic
from xxhash import _xxhash  # type: ignore[attr-defined]

_CRC_FUNCTION, _HASH_FUNCTION = "crc32c_value", "XXH64"
# Compiled code calls these C functions by their names. A call through Python would take 1 us, as long as decoding five
# batches of one record.
for library, function in ((_crc32c, _CRC_FUNCTION), (_xxhash, _HASH_FUNCTION)):
    llvmlite.binding.add_symbol(function, cast(getattr(CDLL(library.__file__), function), c_void_p).value)


def _address(context: Any, builder: Any, signature: Any, arguments: Any, array: int, bits: int = 8) -> Any:
    """Emit LLVM code that computes the address of a position in an array; return the pointer, to `bits`-bit integers.

    `array` is the index of the array in `arguments`. The argument after the array is the position in bytes.
    """
    data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
    return cgutils.pointer_add(builder, data, arguments[array + 1], ir.IntType(bits).as_pointer())


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def crc32c(typing_context: Any, data: Any, at: Any, end: Any) -> Any:
    """Return the CRC-32C of `data[at:end]` as an int64, by google_crc32c's C function. The caller checks the bounds."""
    signature = numba_types.int64(data, numba_types.int64, numba_types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = _address(context, builder, signature, arguments, 0)
        size = builder.sub(arguments[2], arguments[1])
        kind = ir.FunctionType(ir.IntType(32), [begin.type, size.type])
        function = cgutils.get_or_insert_function(builder.module, kind, _CRC_FUNCTION)
        return builder.zext(builder.call(function, [begin, size]), ir.IntType(64))

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def xxh64(typing_context: Any, data: Any, at: Any, end: Any, seed: Any) -> Any:
    """Return the XXH64 hash of the bytes from `at` to `end` of an array as a uint64, by xxhash's C function.

    `at` and `end` count bytes, for an array of numbers of any size. `seed` is a uint64. The caller checks the bounds.
    """
    signature = numba_types.uint64(data, numba_types.int64, numba_types.int64, numba_types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = _address(context, builder, signature, arguments, 0)
        size = builder.sub(arguments[2], arguments[1])
        kind = ir.FunctionType(ir.IntType(64), [begin.type, size.type, ir.IntType(64)])
        function = cgutils.get_or_insert_function(builder.module, kind, _HASH_FUNCTION)
        return builder.call(function, [begin, size, arguments[3]])

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def copy_bytes(typing_context: Any, to: Any, to_position: Any, source: Any, position: Any, size: Any) -> Any:
    """Copy `size` bytes from `source` at `position` to `to` at `to_position`, by memcpy. The caller checks the bounds.

    A slice assignment would become a loop that compiles for seconds.
    """
    signature = numba_types.void(to, to_position, source, position, size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, origin = (_address(context, builder, signature, arguments, array) for array in (0, 2))
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


def _load(bits: int, byte_order: str, *, signed: bool) -> Any:
    """Return a compiled function that takes a byte array and a position, and returns the number there.

    The number has `bits` bits in the byte order `byte_order` (`big` or `little`). A signed number is returned as an
    int64, an unsigned number as a uint64.
    """

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def load(typing_context: Any, data: Any, position: Any) -> Any:
        signature = (numba_types.int64 if signed else numba_types.uint64)(data, position)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_address(context, builder, signature, arguments, 0, bits), align=1)
            value = value if sys.byteorder == byte_order else builder.bswap(value)
            extend = builder.sext if signed else builder.zext
            return extend(value, ir.IntType(64)) if bits < 64 else value

        return signature, generate

    return load


load_int16, load_int32, load_int64 = (_load(bits, "big", signed=True) for bits in (16, 32, 64))
"""Compiled functions that return the signed big-endian number at a position of a byte array. The caller checks bounds.
"""
load_uint32_le, load_uint64_le = (_load(bits, "little", signed=False) for bits in (32, 64))
"""Compiled functions that return the unsigned little-endian number at a position of a byte array. The caller checks the
bounds.
"""


def _count_zeros(instruction: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def count(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(arguments[0], ir.Constant(ir.IntType(1), 1))

        return numba_types.uint64(numba_types.uint64), generate

    return count


trailing_zeros, leading_zeros = _count_zeros("cttz"), _count_zeros("ctlz")
"""Compiled functions that count the zero bits below the lowest set bit (`trailing_zeros`) or above the highest set bit
(`leading_zeros`) of a nonzero uint64.
"""


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of the 128-bit product of two uint64."""
    signature = numba_types.uint64(numba_types.uint64, numba_types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(factor, wide) for factor in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return signature, generate
