"""What a client sees of a service behind a proxy that was told to strike."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.local_http import LocalHttp
from tests.rigs.chaos import effects
from tests.rigs.chaos.effects import Effect
from tests.rigs.chaos.proxy import FaultProxy, HttpProxy
from tests.rigs.stack.processes import wait_until

BODY = bytes(range(256)) * 4


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.send_header("Seen-Date", self.headers.get("X-Amz-Date", ""))
        self.end_headers()
        self.wfile.write(BODY)


@pytest.fixture
def proxy() -> Iterator[HttpProxy]:
    with LocalHttp(_Handler) as server:
        proxy = HttpProxy()
        proxy.upstream = server.port
        yield proxy
        proxy.close()


def get(proxy: HttpProxy, path: str = "/a.log") -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    try:
        connection.request("GET", path, headers={"X-Amz-Date": "20261122T120000Z"})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Seen-Date", "")
    finally:
        connection.close()


def test_it_passes_on_what_it_is_not_told_to_change(proxy: HttpProxy) -> None:
    assert get(proxy) == (200, BODY, "20261122T120000Z")
    proxy.arm(effects.refused(403), matches=lambda request: b".index" in request)
    assert get(proxy)[0] == 200 and proxy.armed


def test_it_strikes_as_often_as_it_is_told(proxy: HttpProxy) -> None:
    proxy.arm(effects.refused(503), times=2)
    assert [get(proxy)[0] for _ in range(3)] == [503, 503, 200]
    assert proxy.struck == 2
    proxy.arm(effects.refused(503), times=2)
    proxy.disarm()
    assert get(proxy)[0] == 200


def test_the_same_request_is_answered_well_after_so_many_effects_in_a_row(proxy: HttpProxy) -> None:
    for statuses in ([503, 503], [503, 200, 503]):
        proxy.arm(effects.refused(503), times=2, in_a_row=3)
        assert [get(proxy)[0] for _ in statuses] == statuses
    proxy.arm(effects.refused(503), in_a_row=1)
    assert [get(proxy, path)[0] for path in ("/a.log", "/b.log")] == [200, 503]


def test_a_short_body_says_its_own_length(proxy: HttpProxy) -> None:
    proxy.arm(effects.shortened)
    assert get(proxy)[1] == BODY[:512]


def test_an_old_signature_reaches_the_service(proxy: HttpProxy) -> None:
    proxy.arm(effects.signed_long_ago)
    assert get(proxy)[2] == "20190101T000000Z"


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("effect, error", [(effects.cut, http.client.HTTPException), (effects.reset, OSError)])
def test_a_connection_that_ends_in_mid_answer(
    proxy: HttpProxy, effect: Callable[[float], Effect], error: type[Exception], share: float
) -> None:
    proxy.arm(effect(share))
    with pytest.raises(error):
        get(proxy)


def test_a_stall_lasts_until_the_client_hangs_up(proxy: HttpProxy) -> None:
    proxy.arm(effects.stalled(0.5))
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=0.2)
    connection.request("GET", "/")
    with pytest.raises(TimeoutError):
        connection.getresponse().read()
    connection.close()
    assert get(proxy)[0] == 200


def test_an_answer_that_drips_comes_whole_to_who_waits(proxy: HttpProxy) -> None:
    proxy.arm(effects.dripped(0.0))
    assert get(proxy)[:2] == (200, BODY)


def test_a_request_is_held_until_it_is_released(proxy: HttpProxy) -> None:
    release = threading.Event()
    proxy.arm(effects.held(release))
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(get(proxy)[0]))
    client.start()
    wait_until(lambda: proxy.struck == 1, "the request")
    assert not answers
    release.set()
    client.join()
    assert answers == [200]


def test_bytes_of_any_protocol_pass_both_ways_until_they_are_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = FaultProxy()
        proxy.upstream = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client:
            service, _ = server.accept()
            with service:
                client.sendall(b"question")
                assert service.recv(100) == b"question"
                service.sendall(b"answer")
                assert client.recv(100) == b"answer"
                proxy.arm(effects.cut(0.5))
                service.sendall(b"answer")
                assert client.recv(100) == b"ans"
                assert client.recv(100) == b""
                assert service.recv(100) == b""
        proxy.close()
