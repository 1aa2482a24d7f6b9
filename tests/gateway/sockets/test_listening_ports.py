from __future__ import annotations

import subprocess
import sys

# The clients' ends of connections need descriptors too, so the limit is lowered when all have connected.
PROGRAM = """
import asyncio, logging, resource, socket, sys
from tiered_stream.gateway.sockets import listening_ports
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
listening_ports._RETRY_SECONDS = 0.01

async def run():
    accepted, enough, refused = [], asyncio.Event(), asyncio.Event()
    told = logging.Handler()
    told.emit = lambda record: refused.set()
    listening_ports.log.addHandler(told)
    def accept(connection, client):
        accepted.append(connection)
        if len(accepted) == 50:
            enough.set()
    listening = await listening_ports.Listener.open("127.0.0.1", 0, accept)
    clients = [socket.create_connection(("127.0.0.1", listening.port)) for _ in range(50)]
    highest = max(each.fileno() for each in clients)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    await refused.wait()
    print("accepted", len(accepted))
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    await enough.wait()
    print("accepted", len(accepted))
    await listening.close()

asyncio.run(run())
"""


def test_without_a_file_descriptor_connections_wait_and_the_log_has_one_line() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "ERROR connections wait, none can be accepted: [Errno 24] Too many open files",
        "accepted 0",
        "accepted 50",
    ]
