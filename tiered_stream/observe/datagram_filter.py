"""Socket filter by which the kernel drops datagrams that do not begin with a secret.

Without it, a flood of forged reports would fill the socket's buffer, so that reports of tasks would be lost, and would
take a core of the driver. The filter is a program for the kernel's packet filter (Linux: `socket(7)`,
`SO_ATTACH_FILTER`; `linux/filter.h`). It needs no rights.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress

_SO_ATTACH_FILTER = 26
_UDP_HEADER = 8
"""Bytes in front of a datagram's content that the filter of a UDP socket sees."""
_LOAD, _XOR, _SAVE, _TO_X, _LOAD_SAVED, _OR_X = 0x20, 0xA4, 0x02, 0x07, 0x60, 0x4C
_JUMP_IF_EQUAL, _RETURN = 0x15, 0x06
_WHOLE, _NOTHING = 0xFFFFFFFF, 0


def accept_only(listening: socket.socket, secret: bytes) -> None:
    """Let the kernel drop each datagram that does not begin with `secret`, in a time that does not depend on its bytes.

    Call it before the socket is bound. Do nothing if this system has no such filter: the receiver compares again.

    Args:
        secret: bytes whose number is a multiple of 4.
    """
    with suppress(OSError):
        program = b"".join(struct.pack("HBBI", *instruction) for instruction in _instructions(secret))
        code = ctypes.create_string_buffer(program)
        size = len(program) // struct.calcsize("HBBI")
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", size, ctypes.addressof(code)))


def _instructions(secret: bytes) -> list[tuple[int, int, int, int]]:
    """Return the filter's instructions: code, steps to skip if true, steps to skip if false, value.

    The differences of all words are combined by OR before they are compared with 0. A datagram that is too short for a
    load is dropped by the kernel.
    """
    instructions: list[tuple[int, int, int, int]] = []
    for number, (word,) in enumerate(struct.iter_unpack(">I", secret)):
        instructions += [(_LOAD, 0, 0, _UDP_HEADER + 4 * number), (_XOR, 0, 0, word)]
        if number:
            instructions += [(_TO_X, 0, 0, 0), (_LOAD_SAVED, 0, 0, 0), (_OR_X, 0, 0, 0)]
        instructions.append((_SAVE, 0, 0, 0))
    return [*instructions, (_JUMP_IF_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _WHOLE), (_RETURN, 0, 0, _NOTHING)]
