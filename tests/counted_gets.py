"""The GETs that readers send to an S3 endpoint, counted between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.rigs.chaos.effects import Exchange
from tests.rigs.chaos.proxy import HttpProxy


@dataclass(frozen=True)
class Get:
    """One GET of an object, and how many bytes its answer has, headers included."""

    key: str
    bytes: int

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name


class CountedGets(HttpProxy):
    """In front of the endpoint at `port`; `url` is what readers are given."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.upstream = port
        self.gets: list[Get] = []

    def _answer(self, exchange: Exchange) -> bytes:
        answer = super()._answer(exchange)
        method, path, _ = exchange.request.split(b" ", 2)
        if method == b"GET":
            self.gets.append(Get(path.split(b"?")[0].decode(), len(answer)))
        return answer
