"""Clients that mean harm, as a process of their own: `python -m tests.gateway.attackers KIND PORT`.

It prints `standing` when all have sent what they can, and goes on until it is killed; who is hung up on comes again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, repeat
from uuid import UUID

from kafka.protocol.metadata import ApiVersionsRequest

from tests.gateway.requests import location_fetch, request
from tiered_stream.gateway.protocol.frames import frame

CHUNK = 64 << 10
STILL_SECONDS, LONGEST_SECONDS = 0.5, 8.0
LARGEST_LOCATION_REQUEST = 4 << 20
MADE_UP = UUID(int=7)
"""The id of the made-up cluster's topic."""


@dataclass(frozen=True)
class Attack:
    """So many connections; each sends these frames, and reads nothing or everything."""

    connections: int
    frames: Callable[[], Iterator[bytes]]
    reads: bool = False


def api_versions() -> Iterator[bytes]:
    message = ApiVersionsRequest(client_software_name="attack", client_software_version="1")
    return repeat(frame(request(message, 3)) * 2_000)


def locations() -> Iterator[bytes]:
    """A hundred partitions of a topic that nobody knows."""
    return repeat(frame(location_fetch(dict.fromkeys(range(100), (0, 1 << 40)))))


def unfinished() -> Iterator[bytes]:
    """A location request of the greatest length lacks its last byte."""
    yield frame(location_fetch({0: (0, 1)}).ljust(LARGEST_LOCATION_REQUEST, b"\0"))[:-1]


def unfinished_login() -> Iterator[bytes]:
    yield frame(location_fetch({0: (0, 1)}).ljust(512 << 10, b"\0"))[:-1]


def absurd_counts() -> Iterator[bytes]:
    """Two thousand million topics, then as many partitions of one."""
    content = location_fetch({0: (0, 1)})
    topics = content.index(b"\x02" + bytes(15) + b"\x09")
    yield frame(content[:topics] + b"\xff\xff\xff\xff\x07" + content[topics + 1 :])
    yield frame(content[: topics + 17] + b"\xff\xff\xff\xff\x07" + content[topics + 18 :])


def large_locations() -> Iterator[bytes]:
    """As many partitions as a frame of 512 KiB has before a login."""
    return repeat(frame(location_fetch(dict.fromkeys(range(12000), (0, 1)))))


def parts_of_a_byte() -> Iterator[bytes]:
    """All of a partition in parts of one byte, from an offset that nobody has asked from of late."""
    wanted = (
        location_fetch(
            {0: (start, 1 << 40)}, topic_id=MADE_UP, leader_epoch=0, local_segments_wanted=True,
            remote_log_segment_part_bytes=1, max_remote_log_segments=(1 << 31) - 1,
        )
        for start in range(1, 1_000_000, 997)
    )  # fmt: skip
    return cycle([frame(each) for each in wanted])


def locations_of_859_kib() -> Iterator[bytes]:
    wanted = dict.fromkeys(range(20_000), (0, 1 << 40))
    return repeat(frame(location_fetch(wanted, topic_id=MADE_UP, leader_epoch=0, local_segments_wanted=True)))


def nothing() -> Iterator[bytes]:
    return iter(())


ATTACKS = {
    "ApiVersions without end, nothing read": Attack(20, api_versions),
    "locations without end, nothing read": Attack(20, locations),
    "frames of 4 MiB without their last byte": Attack(200, unfinished),
    "frames of 512 KiB without their last byte": Attack(200, unfinished_login),
    "absurd counts": Attack(20, absurd_counts, reads=True),
    "large location requests": Attack(20, large_locations, reads=True),
    "parts of one byte": Attack(20, parts_of_a_byte, reads=True),
    "location requests of 859 KiB": Attack(32, locations_of_859_kib, reads=True),
    "topics that may not be read": Attack(20, locations, reads=True),
    "TLS without a ClientHello": Attack(3_000, nothing),
}


class Attackers:
    """All connections of one attack."""

    def __init__(self, attack: Attack, port: int) -> None:
        self._attack = attack
        self._port = port
        # Made once, where they end.
        endless = isinstance(attack.frames(), repeat | cycle)
        self._frames = None if endless else list(attack.frames())
        self._reads = attack.reads or not endless
        self._connected = 0
        self._sent = 0

    async def run(self) -> None:
        """Until cancelled."""
        connections = [asyncio.create_task(self._come_again()) for _ in range(self._attack.connections)]
        await self._stand()
        sys.stdout.write("standing\n")
        sys.stdout.flush()
        await asyncio.gather(asyncio.Event().wait(), *connections)

    async def _stand(self) -> None:
        before, began = -1, asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began + LONGEST_SECONDS and (
            self._connected < self._attack.connections or self._sent > before
        ):
            before = self._sent
            await asyncio.sleep(STILL_SECONDS)

    async def _come_again(self) -> None:
        while True:
            try:
                await self._connection()
            except (OSError, EOFError):
                pass
            await asyncio.sleep(0.05)

    async def _connection(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._connected += 1
        reading = asyncio.create_task(self._read(reader))
        try:
            for data in self._frames or self._attack.frames():
                for at in range(0, len(data), CHUNK):
                    writer.write(data[at : at + CHUNK])
                    await writer.drain()
                    await asyncio.sleep(0)  # `drain` alone lets nobody else have a turn
                    self._sent += 1
            await reading
        finally:
            reading.cancel()
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        if not self._reads:
            await asyncio.Event().wait()
        while await reader.read(CHUNK):
            continue


if __name__ == "__main__":
    kind, port = sys.argv[1:]
    asyncio.run(Attackers(ATTACKS[kind], int(port)).run())
