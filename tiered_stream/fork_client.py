"""Stands in for `python -m MODULE …`: a fork server's child runs the module, and this process ends as the child does.

    python -I -S fork_client.py SOCKET PYTHON -m MODULE …

It is run by its path, by a Python that imports next to nothing. Where the server is away, or does not want to, this
process becomes PYTHON.

What goes to the server (integers are little endian):

    length   uint32, of what follows; with it come descriptors 0, 1 and 2 (SCM_RIGHTS)
    fields   joined by NUL: the number of arguments, the folder, the arguments, NAME=VALUE of the environment

What comes back: b"+" once the child is there, b"-" if there will be none; then its exit code, one byte, when it ends.
Where this process ends first, the child is sent SIGTERM.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

STANDARD_DESCRIPTORS = (0, 1, 2)
FORKED, REFUSED = b"+", b"-"


def is_forked(server: socket, arguments: list[str]) -> bool:
    """Whether there is a child that runs `arguments`, once it was asked for. Raises OSError: the server is away."""
    variables = [name + b"=" + value for name, value in os.environb.items()]
    words = [str(len(arguments)).encode(), os.getcwdb(), *map(os.fsencode, arguments), *variables]
    fields = b"\0".join(words)
    descriptors = b"".join(each.to_bytes(4, sys.byteorder) for each in STANDARD_DESCRIPTORS)
    server.sendmsg([len(fields).to_bytes(4, "little")], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    server.sendall(fields)
    return server.recv(1) == FORKED


def main() -> None:
    address, python, *arguments = sys.argv[1:]
    server = socket(AF_UNIX, SOCK_STREAM)
    try:
        server.connect(address)
        forked = is_forked(server, arguments)
    except OSError:
        forked = False
    if not forked:
        os.execv(python, [python, *arguments])
    code = server.recv(1)
    os._exit(code[0] if code else 1)  # without a code it was killed


if __name__ == "__main__":
    main()
