"""Run `python -m MODULE …` in a forked child of the fork server, and exit with the child's exit code.

    python -I -S fork_client.py SOCKET WARNED PYTHON -m MODULE …

This file is run by its path, by a Python that imports almost nothing. If the server is not running, does not respond in
time or refuses the request, this process replaces itself by PYTHON (execv). If the server did not respond, one line on
standard error says so. Only one of all clients prints the line: the file WARNED is empty until then.

The client sends (integers are little endian):

    length   uint32, bytes of the fields
    fields   joined by NUL: the number of arguments, the folder, the arguments, NAME=VALUE of the environment
    b"!"     once the child exists, with descriptors 0, 1 and 2 (SCM_RIGHTS); without b"!" the child runs nothing

The server sends b"+" once the child exists, or b"-" if it refuses. When the child ends, its exit code follows as one
byte. If this process ends first, the child gets SIGTERM.
"""

import os
import sys
from _signal import SIG_IGN, SIGINT, default_int_handler, signal  # type: ignore[import-not-found]  # `signal` would import enum
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from time import monotonic

STANDARD_DESCRIPTORS = (0, 1, 2)
FORKED, REFUSED, GO = b"+", b"-", b"!"
_SECONDS = 4.0
"""Maximum seconds until the server has responded.

Spark allows a Python 10 s to connect. If the server does not respond, the Python that replaces this process needs some
of these 10 s for its imports.
"""


def is_forked(server: socket, address: str, arguments: list[str]) -> bool:
    """Ask the fork server at `address` for a child that runs `arguments`, and send the child descriptors 0, 1 and 2.

    `server` is a new socket, which this function connects. Return true if the child exists, and false if the server
    refuses.

    Raises:
        OSError: the server is not running, or does not respond in time.
    """
    deadline = monotonic() + _SECONDS
    variables = [name + b"=" + value for name, value in os.environb.items()]
    parts = [str(len(arguments)).encode(), os.getcwdb(), *map(os.fsencode, arguments), *variables]
    fields = b"\0".join(parts)

    def in_time() -> socket:
        server.settimeout(max(0.001, deadline - monotonic()))
        return server

    in_time().connect(address)
    in_time().sendall(len(fields).to_bytes(4, "little") + fields)
    response = in_time().recv(1)
    if not response:
        raise OSError("it has closed the connection")
    if response == FORKED:
        # Descriptors are sent only now, because a server that is stuck would keep them open, and the process that
        # reads our output would wait for the server.
        descriptors = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in STANDARD_DESCRIPTORS)
        in_time().sendmsg([GO], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    server.settimeout(None)
    return response == FORKED


def _warn_once(warned_file: str, error: OSError) -> None:
    """Print on standard error why the server is not used, unless another client has printed this line before.

    The file `warned_file` is empty until a client has printed the line: that client writes a byte to it.
    """
    try:
        descriptor = os.open(warned_file, os.O_RDWR)
        if not os.pread(descriptor, 1, 0):
            os.pwrite(descriptor, b"!", 0)
            line = f"tiered_stream: Python processes start without the fork server, which does not respond: {error!r}\n"
            os.write(STANDARD_DESCRIPTORS[2], line.encode(errors="replace"))
        os.close(descriptor)
    except OSError:
        pass  # the file or standard error cannot be used, so nothing is reported


def main() -> None:
    """Run the requested module in a fork and exit with its exit code, or replace this process by PYTHON."""
    signal(SIGINT, SIG_IGN)  # Ctrl-C reaches the whole process group, but the job lets its micro-batch end first
    address, warned_file, python, *arguments = sys.argv[1:]
    server = socket(AF_UNIX, SOCK_STREAM)
    try:
        forked = is_forked(server, address, arguments)
    except OSError as error:
        _warn_once(warned_file, error)
        forked = False
    if not forked:
        server.close()
        signal(SIGINT, default_int_handler)  # an ignored signal would stay ignored
        os.execv(python, [python, *arguments])
    code = server.recv(1)
    os._exit(code[0] if code else 1)  # a child that sends no code was killed


if __name__ == "__main__":
    main()
