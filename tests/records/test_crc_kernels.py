"""The compiled CRC-32C beside Google's library, on this machine's instructions and without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import google_crc32c
import llvmlite.binding
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from tests.stack.batches import record_batch
from tests.stack.rows import Record
from tiered_stream.records import header
from tiered_stream.records.crc_kernels import INSTRUCTIONS, crc, crc_by_tables, crc_is_right, take_in

WAYS = pytest.mark.parametrize("way", [crc, crc_by_tables], ids=["this machine's", "by tables"])


@WAYS
@given(data=st.binary(max_size=200), before=st.integers(0, 20), after=st.integers(0, 20))
def test_it_is_the_librarys_of_any_bytes_wherever_they_lie(
    way: Callable[..., int], data: bytes, before: int, after: int
) -> None:
    around = np.frombuffer(bytes(before) + data + bytes(after), np.uint8)
    assert way(around, before, before + len(data)) == google_crc32c.value(data)


@WAYS
def test_it_is_the_librarys_of_many_bytes(way: Callable[..., int]) -> None:
    data = np.random.default_rng(5).integers(0, 256, 1 << 20, np.uint8)
    assert way(data, 0, len(data)) == google_crc32c.value(data.tobytes())


@given(at=st.integers(0, 400), mask=st.integers(1, 255))
def test_a_changed_byte_of_a_batch_is_seen_where_the_checksum_covers_it(at: int, mask: int) -> None:
    batch = bytearray(record_batch([Record(b"key", bytes(300))]))
    at %= len(batch)
    batch[at] ^= mask
    assert crc_is_right(np.frombuffer(batch, np.uint8), 0, len(batch)) == (at < header.CRC_AT)


def assembly(architecture: str, feature: str, instruction: tuple[str, int, int]) -> str:
    """What LLVM makes of one step on another machine."""
    module = ir.Module()
    kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), ir.IntType(8 if instruction[2] < 64 else 64)])
    function = ir.Function(module, kind, "step")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(take_in(builder, instruction, *function.args))
    target = llvmlite.binding.Target.from_triple(f"{architecture}-unknown-linux-gnu")
    made: Any = target.create_target_machine(features=f"+{feature}")
    return str(made.emit_assembly(llvmlite.binding.parse_assembly(str(module))))


@pytest.mark.parametrize("architecture", INSTRUCTIONS)
def test_each_architecture_has_its_instructions(architecture: str) -> None:
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    feature, instructions = INSTRUCTIONS[architecture]
    assert all("crc32" in assembly(architecture, feature, each) for each in instructions)


@pytest.mark.parametrize("features", ["", "+sse2"])
def test_a_cpu_that_is_said_to_lack_them_is_not_given_them(features: str) -> None:
    code = (
        "import numpy as np; from tiered_stream.records import crc_kernels as ours;"
        "assert ours.crc is ours.crc_by_tables; print(ours.crc(np.frombuffer(b'123456789', np.uint8), 0, 9))"
    )
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(ran.stdout) == 0xE3069283, "RFC 3720's check value"
