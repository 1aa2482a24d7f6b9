"""Listings of containers whose keys come in the order of an account with a hierarchical namespace, or without one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import product
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.local_http import Answer, LocalHttp, respond
from tests.rigs.stack.azurite import KEY
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

KEYS = (
    "a", "orders-1/x", "orders-1/y", "orders-2/x", "orders.old/x", "orders/1", "orders/2", "orders/3", "orders/4",
    "orders0/x", "p/orders-1/x", "p/orders/y", "z",
)  # fmt: skip
PREFIXES = (
    "",
    "orders-",
    "orders",
    "orders/",
    "orders-1/",
    "orders-1",
    "orders.",
    "p/",
    "p/orders-",
    "p/orders/",
    "zz",
    "0",
)
Order = Callable[[str], object]


class Container:
    """An account that lists `page` keys for each request, in the order of `order`.

    `starts`: it honours `startFrom`, as new versions of the service do. `breaks` has the numbers of requests that fail.
    """

    def __init__(self, order: Order, page: int, *, starts: bool, keys: tuple[str, ...] = KEYS) -> None:
        container = self
        self.requests = 0
        self.breaks: set[int] = set()
        self._order, self._page, self._starts = order, page, starts
        self._keys = sorted(keys, key=order)  # type: ignore[type-var]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                respond(self, container.answer(parse_qs(urlsplit(self.path).query)))

        self.server = LocalHttp(Handler)

    def answer(self, query: dict[str, list[str]]) -> Answer:
        self.requests += 1
        if self.requests in self.breaks:
            return Answer(503)
        keys = [key for key in self._keys if key.startswith(query.get("prefix", [""])[0])]
        start = int(query.get("marker", ["0"])[0])
        if self._starts and not start and "startFrom" in query:
            orders = [self._order(key) for key in keys]
            start = bisect_left(orders, self._order(query["startFrom"][0]))  # type: ignore[type-var]
        end = start + self._page
        blobs = "".join(
            f"<Blob><Name>{key}</Name><Properties><Last-Modified>Tue, 15 Nov 1994 12:45:26 GMT</Last-Modified>"
            f"<Content-Length>1</Content-Length><Content-Type>text/plain</Content-Type><Etag>x</Etag></Properties></Blob>"
            for key in keys[start:end]
        )
        marker = str(end) if end < len(keys) else ""
        body = f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
        return Answer(200, body.encode())


@pytest.fixture(
    params=list(product(AzureContainer.orders, (3, 20), (False, True))),
    ids=lambda given: f"{given[0].__name__}-{given[1]}-{given[2]}",
)
def container(request: pytest.FixtureRequest) -> Iterator[Container]:
    order, page, starts = request.param
    container = Container(order, page, starts=starts)
    with container.server:
        yield container


def store(container: Container, path: str = "") -> ObjectStore:
    return open_store(
        StorageOptions(
            uri=f"az://lake{path}", azure_account_name="mine", azure_account_key=KEY,
            azure_endpoint_url=f"{container.server.url}/mine",
        )
    )  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_listing_gives_all_keys_with_the_prefix(container: Container, prefix: str) -> None:
    listed = list(store(container).list(prefix))
    assert sorted(listed) == [key for key in KEYS if key.startswith(prefix)]


def test_a_listing_below_a_folder_gives_all_keys_with_the_prefix(container: Container) -> None:
    assert list(store(container, "/p").list("orders-")) == ["orders-1/x"]
    assert sorted(store(container, "/p").list("")) == ["orders-1/x", "orders/y"]


@pytest.mark.parametrize("prefix", ["", "orders", "orders-", "orders/"])
def test_a_listing_that_fails_goes_on_where_it_was(
    container: Container, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    container.breaks = {2, 4}
    listed = list(store(container).list(prefix))
    assert sorted(listed) == [key for key in KEYS if key.startswith(prefix)]


def test_a_listing_after_a_key_gives_the_later_keys_in_the_services_order(container: Container) -> None:
    listed = list(store(container).list("orders-", "orders-1/x"))
    assert listed == ["orders-1/y", "orders-2/x"]


@pytest.mark.parametrize("starts", [False, True])
def test_a_listing_in_the_order_of_bytes_ends_at_the_first_key_beyond_the_prefix(starts: bool) -> None:
    keys = [f"{folder}/{number:03}" for folder in ("orders-1", "orders", "z") for number in range(200)]
    container = Container(str, 100, starts=starts, keys=tuple(keys))
    with container.server:
        assert len(list(store(container).list("orders-"))) == 200
    assert container.requests == 3


def test_a_topic_that_is_not_there_costs_one_request_in_the_order_of_bytes() -> None:
    keys = [f"{folder}/{number:03}" for folder in ("orders", "z") for number in range(200)]
    container = Container(str, 100, starts=True, keys=tuple(keys))
    with container.server:
        assert list(store(container).list("payments-")) == []
    assert container.requests == 1
