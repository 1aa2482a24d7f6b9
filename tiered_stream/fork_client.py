"""Stands in for `python -m MODULE …`: a fork server's child runs the module, and this process ends as the child does.

    python -I -S fork_client.py SOCKET TOLD PYTHON -m MODULE …

It is run by its path, by a Python that imports next to nothing. If the server is away, does not answer in time or does
not want to, this process becomes PYTHON. Its standard error says so once: TOLD is a file that is empty until then.

What goes to the server (integers are little endian):

    length   uint32, of the fields
    fields   joined by NUL: the number of arguments, the folder, the arguments, NAME=VALUE of the environment
    b"!"     once the child is there, with descriptors 0, 1 and 2 (SCM_RIGHTS); without it a child runs nothing

What comes back: b"+" once the child is there, b"-" if there will be none; then its exit code, one byte, when it ends.
If this process ends first, the child is sent SIGTERM.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from time import monotonic

STANDARD_DESCRIPTORS = (0, 1, 2)
FORKED, REFUSED, GO = b"+", b"-", b"!"
_SECONDS = 4.0
"""Longest wait for a child. Spark gives a Python ten seconds to connect, of which one without a server needs some."""


def is_forked(server: socket, address: str, arguments: list[str]) -> bool:
    """Return whether a child runs `arguments`. Raises OSError: the server is away, or does not answer in time."""
    deadline = monotonic() + _SECONDS
    variables = [name + b"=" + value for name, value in os.environb.items()]
    words = [str(len(arguments)).encode(), os.getcwdb(), *map(os.fsencode, arguments), *variables]
    fields = b"\0".join(words)

    def in_time() -> socket:
        server.settimeout(max(0.001, deadline - monotonic()))
        return server

    in_time().connect(address)
    in_time().sendall(len(fields).to_bytes(4, "little") + fields)
    answer = in_time().recv(1)
    if not answer:
        raise OSError("it has closed the connection")
    if answer == FORKED:
        # Not before: a server that is stuck would hold them, and whoever reads what we write would wait for it.
        descriptors = b"".join(each.to_bytes(4, sys.byteorder) for each in STANDARD_DESCRIPTORS)
        in_time().sendmsg([GO], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    server.settimeout(None)
    return answer == FORKED


def _say_once(told: str, error: OSError) -> None:
    try:
        descriptor = os.open(told, os.O_RDWR)
        if not os.pread(descriptor, 1, 0):
            os.pwrite(descriptor, b"!", 0)
            words = (
                f"tiered_stream: Python processes import for themselves: the fork server does not answer: {error!r}\n"
            )
            os.write(STANDARD_DESCRIPTORS[2], words.encode(errors="replace"))
        os.close(descriptor)
    except OSError:
        pass  # nobody is left to tell


def main() -> None:
    address, told, python, *arguments = sys.argv[1:]
    server = socket(AF_UNIX, SOCK_STREAM)
    try:
        forked = is_forked(server, address, arguments)
    except OSError as error:
        _say_once(told, error)
        forked = False
    if not forked:
        server.close()
        os.execv(python, [python, *arguments])
    code = server.recv(1)
    os._exit(code[0] if code else 1)  # without a code it was killed


if __name__ == "__main__":
    main()
