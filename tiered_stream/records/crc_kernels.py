"""CRC-32C in compiled code, because a call to a library takes 1 us, as long as decoding five batches of one record.

The polynomial is Castagnoli's, bits reflected (RFC 3720); Kafka: `Crc32C`. x86 CPUs since 2008 and nearly every 64-bit
ARM CPU have an instruction that processes 8 bytes at a time. Without it, eight tables are used (slicing-by-8).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, codegen
from numba.core import types as numba_types
from numba.extending import intrinsic

from tiered_stream.records import header
from tiered_stream.records.compiled import kernel

_POLYNOMIAL = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF

INSTRUCTIONS = {
    "x86_64": ("crc32", (("llvm.x86.sse42.crc32.64.64", 64, 64), ("llvm.x86.sse42.crc32.32.8", 32, 8))),
    "aarch64": ("crc", (("llvm.aarch64.crc32cx", 32, 64), ("llvm.aarch64.crc32cb", 32, 32))),
}
"""CPU feature and CRC-32C instructions by architecture: the first instruction takes eight bytes, the second one byte.

Each instruction is (LLVM's name, width of the checksum in bits, width of the data argument in bits).
"""


def _tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return eight tables: table `n` has, for each byte value, its share of the checksum if `n` bytes follow it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    tables = [table]
    for _ in range(7):
        tables.append(table[tables[-1] & 0xFF] ^ (tables[-1] >> 8))
    return np.stack(tables)


_TABLES = _tables()


def _own_instructions() -> tuple[tuple[str, int, int], ...]:
    """Return the CRC-32C instructions that numba may use on this machine, or () if there are none.

    LLVM ends the process if code uses an instruction that the CPU features do not include.
    """
    feature, instructions = INSTRUCTIONS.get(llvmlite.binding.get_default_triple().split("-")[0], ("", ()))
    given = numba.config.CPU_FEATURES  # empty for a generic CPU
    features = codegen.get_host_cpu_features() if given is None else given
    return instructions if f"+{feature}" in features.split(",") else ()


_OWN = _own_instructions()


def take_in(builder: ir.IRBuilder, instruction: tuple[str, int, int], crc: ir.Value, more: ir.Value) -> ir.Value:
    """Emit LLVM code that updates the 32-bit checksum `crc` with the bytes of the integer `more`, lowest byte first."""
    name, *bits = instruction
    sums, taken = map(ir.IntType, bits)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(sums, [sums, taken]), name)
    arguments = [builder.zext(each, kind) if each.type.width < kind.width else each
                 for each, kind in ((crc, sums), (more, taken))]  # fmt: skip
    made = builder.call(function, arguments)
    return builder.trunc(made, ir.IntType(32)) if sums.width > 32 else made


def _next_bytes(index: int, width: int) -> Any:
    """Return a compiled function (crc, data, at) that updates the checksum with `width` bits of `data` at byte `at`.

    `index` is the place of the instruction in `_OWN`.
    """

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def take_in_bytes(typing_context: Any, crc: Any, data: Any, at: Any) -> Any:
        signature = numba_types.uint32(numba_types.uint32, data, numba_types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[1])(context, builder, arguments[1])
            place = cgutils.pointer_add(builder, array.data, arguments[2], ir.IntType(width).as_pointer())
            return take_in(builder, _OWN[index], arguments[0], builder.load(place, align=1))

        return signature, generate

    return take_in_bytes


_next_eight, _next_one = _next_bytes(0, 64), _next_bytes(1, 8)


@kernel
def _crc_by_instruction(data: Any, at: Any, end: Any) -> Any:
    crc = np.uint32(_ALL_ONES)
    while end - at >= 8:
        crc = _next_eight(crc, data, at)
        at += 8
    while at < end:
        crc = _next_one(crc, data, at)
        at += 1
    return np.int64(crc ^ np.uint32(_ALL_ONES))


@kernel
def crc_by_tables(data: Any, at: Any, end: Any) -> Any:
    """Return the CRC-32C of `data[at:end]`, computed with tables, on any machine. The caller checks bounds."""
    crc = np.uint32(_ALL_ONES)
    while end - at >= 8:
        for index in range(4):
            crc ^= np.uint32(data[at + index]) << np.uint32(8 * index)
        taken = np.uint32(0)
        for index in range(4):
            taken ^= _TABLES[7 - index, (crc >> np.uint32(8 * index)) & np.uint32(0xFF)]
            taken ^= _TABLES[3 - index, data[at + 4 + index]]
        crc = taken
        at += 8
    while at < end:
        crc = _TABLES[0, (crc ^ data[at]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        at += 1
    return np.int64(crc ^ np.uint32(_ALL_ONES))


crc = _crc_by_instruction if _OWN else crc_by_tables
"""Compiled function (data, at, end) that returns the CRC-32C of `data[at:end]`. The caller checks bounds."""


@kernel
def crc_is_right(data: Any, at: Any, end: Any) -> Any:
    """Return whether the batch in `data[at:end]`, of magic 2, has the CRC-32C that its header states."""
    told = np.uint32(0)
    for index in range(header.CRC_AT, header.ATTRIBUTES_AT):
        told = told << np.uint32(8) | np.uint32(data[at + index])
    return np.int64(told) == crc(data, at + header.ATTRIBUTES_AT, end)
