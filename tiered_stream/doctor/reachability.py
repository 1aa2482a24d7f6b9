"""Check that an address is reachable: DNS, TCP and, if required, TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

from tiered_stream.broker.kafka_errors import certificate_fix

_OPEN_THE_WAY = "open the way there: security group, firewall or route"
_SPEAK_TLS = "check that the address speaks TLS (for brokers: kafka.security.protocol), and which versions"


@dataclass(frozen=True, slots=True)
class Unreached:
    """Reason why an address is not reachable, with advice (`fix`).

    `is_tls` is True if the TCP connection works, but TLS fails.
    """

    reason: str
    fix: str
    is_tls: bool = False


def find_unreached(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None) -> Unreached | None:
    """Connect to `host:port`, with TLS if `context` is given, and close the connection.

    Return why the connection fails, or None if it succeeds.

    Args:
        timeout_s: maximum wait in seconds for the TCP connection, and for each message of the TLS handshake.
    """
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            if context is not None:
                context.wrap_socket(connection, server_hostname=host).close()
    except (socket.gaierror, UnicodeError) as error:
        return Unreached(
            f"the name {host} is not known here ({getattr(error, 'strerror', None) or error})",
            "correct the name, or this machine's DNS",
        )
    except ssl.SSLError as error:
        return _of_tls(error)
    except TimeoutError:
        return Unreached(f"no response within {timeout_s:.0f} s", _OPEN_THE_WAY)
    except ConnectionRefusedError:
        return Unreached(
            "nobody listens there (connection refused)", "correct the port, or start what is to listen there"
        )
    except (OSError, OverflowError) as error:
        return Unreached(getattr(error, "strerror", None) or type(error).__name__, _OPEN_THE_WAY)
    return None


def _of_tls(error: ssl.SSLError) -> Unreached:
    reason = getattr(error, "verify_message", None) or error.reason or type(error).__name__
    return Unreached(f"TLS failed: {reason}", certificate_fix(error) or _SPEAK_TLS, is_tls=True)
