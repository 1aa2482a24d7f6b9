"""A broker that lets in who says AWS_MSK_IAM, keeps what they said, and ends each connection after an answer."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse

from tests.broker.certificates import server_context
from tests.gateway.requests import api_versions_response, metadata_response, read, response

_METADATA, _SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 3, 17, 18, 36
_VERSIONS = {_METADATA: (12, 12), _API_VERSIONS: (0, 3), _SASL_HANDSHAKE: (1, 1), _SASL_AUTHENTICATE: (2, 2)}
_LET_IN = b'{"version": "2020_10_22", "request-id": "1"}'


@contextmanager
def msk_broker(
    identity: Path, let_in: bytes = _LET_IN, refusal: str | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and the logins that it has seen; with a `refusal` it refuses them with that message."""
    tls = server_context(identity)
    logins: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with (
                    suppress(OSError),
                    tls.wrap_socket(connection, server_side=True) as secured,
                    secured.makefile("rwb") as stream,
                ):
                    while _answer(stream, logins, let_in, refusal):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", logins
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _answer(stream: io.BufferedRWPair, logins: list[bytes], let_in: bytes, refusal: str | None) -> bool:
    """One request; whether another may follow."""
    content = stream.read(int.from_bytes(stream.read(4), "big"))
    if not content:
        return False
    api, version, correlation_id = struct.unpack(">hhi", content[:8])
    if api == _API_VERSIONS:
        answer = api_versions_response(_VERSIONS, min(version, 3), correlation_id)
    elif api == _SASL_HANDSHAKE:
        answer = response(SaslHandshakeResponse(error_code=0, mechanisms=["AWS_MSK_IAM"]), version, correlation_id)
    elif api == _SASL_AUTHENTICATE:
        logins.append(bytes(read(SaslAuthenticateRequest, content, version).auth_bytes))
        said: Any = SaslAuthenticateResponse(
            error_code=58 if refusal else 0, error_message=refusal, auth_bytes=b"" if refusal else let_in,
            session_lifetime_ms=0,
        )  # fmt: skip
        answer = response(said, version, correlation_id)
    else:
        answer = metadata_response({}, version, correlation_id)
    stream.write(len(answer).to_bytes(4, "big") + answer)
    stream.flush()
    return api != _METADATA and not (refusal and api == _SASL_AUTHENTICATE)
