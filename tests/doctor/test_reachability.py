"""Addresses that do not answer, as far as that needs no broker; certificates are in `test_doctor`."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from tests.rigs.stack.processes import free_ports
from tiered_stream.doctor.cluster_checks import find_unreached


def test_an_address_that_listens_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert find_unreached("127.0.0.1", server.getsockname()[1], 60, None) is None


@pytest.mark.parametrize(
    ("host", "fix"),
    [
        ("127.0.0.1", "correct the port"),
        ("no-such-host.invalid", "correct the name"),
        ("a" * 70 + ".example", "correct the name"),
    ],
)
def test_an_address_that_does_not_answer_has_a_mend(host: str, fix: str) -> None:
    unreached = find_unreached(host, free_ports(1)[0], 60, None)
    assert unreached is not None
    assert fix in unreached.fix
    assert not unreached.is_tls


def test_a_listener_without_tls_is_told_from_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]

        # One who answers TLS's hello with something else.
        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        unreached = find_unreached("127.0.0.1", port, 60, ssl.create_default_context())
        thread.join()
    assert unreached is not None
    assert unreached.is_tls
    assert "kafka.security.protocol" in unreached.fix
