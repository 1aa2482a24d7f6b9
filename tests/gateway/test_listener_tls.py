"""The listener's certificate and those of clients, by handshakes in memory."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.listener_tls import ListenerTls

AUTHORITY, STRANGER = CertificateAuthority(), CertificateAuthority()
LISTENER = "gateway.listener."


def listener(folder: Path, **others: str) -> ListenerTls:
    """The listener of a gateway with these settings; its key store is `gateway.pem`."""
    store = folder / "gateway.pem"
    if not store.exists():
        AUTHORITY.issue("first").write(store)
    given = {
        "kafka.bootstrap.servers": "broker:9092",
        "gateway.advertised.host": "gateway",
        "remote.storage.uri": "s3://tier",
        f"{LISTENER}security.protocol": "SSL",
        f"{LISTENER}ssl.keystore.location": str(store),
    }
    tls = GatewaySettings.parse({**given, **{LISTENER + name: value for name, value in others.items()}}).listener_tls
    assert tls is not None
    return tls


def renew(folder: Path, content: str) -> None:
    """Replace the key store, as those do who renew certificates."""
    new = folder / "new.pem"
    new.write_text(content)
    os.replace(new, folder / "gateway.pem")


def handshake(server: ssl.SSLContext, client_certificate: Path | None = None) -> str:
    """The common name in the certificate that a client gets. Raises ssl.SSLError where one refuses the other."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=AUTHORITY.certificate)
    if client_certificate is not None:
        client.load_cert_chain(client_certificate)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname="127.0.0.1"), server.wrap_bio(up, down, server_side=True)]
    done: set[int] = set()
    while len(done) < 2:
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                continue
    found = ends[0].getpeercert() or {}
    return str(found["subject"][0][0][1])  # type: ignore[index]


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    tls = listener(tmp_path)
    assert handshake(tls.context()) == "first"
    assert tls.context() is tls.context(), "nothing is read while nothing changes"
    identity = AUTHORITY.issue("second")
    renew(tmp_path, identity.key + identity.certificate)
    assert handshake(tls.context()) == "second"


@pytest.mark.parametrize("broken", ["", "no certificate"])
def test_a_broken_file_keeps_the_old_certificate_and_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    tls = listener(tmp_path)
    renew(tmp_path, broken)
    for _ in range(3):
        assert handshake(tls.context()) == "first"
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "gateway.listener.ssl.keystore.location" in warning.getMessage()
    (tmp_path / "gateway.pem").unlink()
    assert handshake(tls.context()) == "first"
    AUTHORITY.issue("third").write(tmp_path / "gateway.pem")
    assert handshake(tls.context()) == "third"


@pytest.mark.parametrize(
    ("auth", "shown", "admitted"),
    [
        ("required", "own", True),
        ("required", "", False),
        ("required", "strange", False),
        ("requested", "own", True),
        ("requested", "", True),
        ("requested", "strange", False),
        ("none", "", True),
        ("none", "strange", True),
    ],
)
def test_clients_show_the_certificate_that_is_asked_for(tmp_path: Path, auth: str, shown: str, admitted: bool) -> None:
    trust = AUTHORITY.write(tmp_path / "trust.pem")
    tls = listener(tmp_path, **{"ssl.client.auth": auth, "ssl.truststore.location": str(trust)})
    store = None
    if shown:
        store = (AUTHORITY if shown == "own" else STRANGER).issue("client").write(tmp_path / "client.pem")
    if admitted:
        assert handshake(tls.context(), store) == "first"
    else:
        with pytest.raises(ssl.SSLError):
            handshake(tls.context(), store)


def test_a_trust_store_by_which_no_client_is_checked_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trust = {"ssl.truststore.location": str(AUTHORITY.write(tmp_path / "trust.pem"))}
    listener(tmp_path, **trust, **{"ssl.client.auth": "requested"})
    assert not caplog.messages
    listener(tmp_path, **trust)
    (warning,) = caplog.messages
    assert warning.startswith("gateway.listener.ssl.truststore.location has no effect without gateway.listener.ssl.cl")


def test_another_trust_store_holds_for_new_connections(tmp_path: Path) -> None:
    trust = STRANGER.write(tmp_path / "trust.pem")
    tls = listener(tmp_path, **{"ssl.client.auth": "required", "ssl.truststore.location": str(trust)})
    store = AUTHORITY.issue("client").write(tmp_path / "client.pem")
    with pytest.raises(ssl.SSLError):
        handshake(tls.context(), store)
    AUTHORITY.write(tmp_path / "new.pem")
    os.replace(tmp_path / "new.pem", trust)
    assert handshake(tls.context(), store) == "first"


def test_certificates_of_clients_need_a_trust_store_and_errors_have_the_listener_s_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gateway\.listener\.ssl\.truststore\.location is missing"):
        listener(tmp_path, **{"ssl.client.auth": "required"})
    wrong = {"ssl.client.auth": "required", "ssl.truststore.location": str(tmp_path / "none.pem")}
    with pytest.raises(ConfigurationError, match=r"^gateway\.listener\.ssl\.truststore\.location = "):
        listener(tmp_path, **wrong)
