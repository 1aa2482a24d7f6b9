"""Intrinsics for compiled code: single instructions and calls that numba itself does not offer."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def copy_bytes(typing_context: Any, to: Any, to_position: Any, source: Any, position: Any, size: Any) -> Any:
    """Copy `size` bytes between byte arrays by memcpy: a slice assignment would be a loop that compiles for seconds."""
    signature = numba_types.void(to, to_position, source, position, size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_type, _, source_type, _, _ = signature.args
        to_array = context.make_array(to_type)(context, builder, arguments[0])
        source_array = context.make_array(source_type)(context, builder, arguments[2])
        target = cgutils.pointer_add(builder, to_array.data, arguments[1])
        origin = cgutils.pointer_add(builder, source_array.data, arguments[3])
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def load_8_bytes(typing_context: Any, source: Any, position: Any) -> Any:
    """Load the 8 bytes at a position of a byte array as a uint64, lowest byte first. The caller checks bounds."""
    signature = numba_types.uint64(source, position)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = cgutils.pointer_add(builder, array.data, arguments[1], ir.IntType(64).as_pointer())
        return builder.load(address, align=1)

    return signature, generate


def _big_endian(bits: int) -> Any:
    """Return a compiled function (byte array, position) that loads a signed big-endian number of `bits` bits.

    The number is returned as an int64.
    """

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def load(typing_context: Any, source: Any, position: Any) -> Any:
        signature = numba_types.int64(source, position)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = cgutils.pointer_add(builder, array.data, arguments[1], kind.as_pointer())
            value = builder.load(address, align=1)
            value = builder.bswap(value) if sys.byteorder == "little" else value
            return builder.sext(value, ir.IntType(64)) if bits < 64 else value

        return signature, generate

    return load


load_int16, load_int32, load_int64 = _big_endian(16), _big_endian(32), _big_endian(64)
"""Compiled functions that load the signed big-endian number at a position of a byte array. The caller checks bounds."""


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def trailing_zeros(typing_context: Any, value: Any) -> Any:
    """Return how many of a uint64's lowest bits are zero. The value must not be zero."""
    signature = numba_types.uint64(numba_types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def leading_zeros(typing_context: Any, value: Any) -> Any:
    """Return how many of a uint64's highest bits are zero. The value must not be zero."""
    signature = numba_types.uint64(numba_types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of the 128-bit product of two uint64."""
    signature = numba_types.uint64(numba_types.uint64, numba_types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return signature, generate
