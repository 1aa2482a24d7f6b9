"""Check that an address is reachable: DNS, TCP and, if required, TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

_OPEN_THE_WAY = "open the way there: security group, firewall or route"
_SPEAK_TLS = "check that the address speaks TLS (for brokers: kafka.security.protocol), and which versions"
_TRUST = "trust the authority that issued it (for brokers: kafka.ssl.truststore.location)"
_RENAME = "connect by a name that the certificate has, or have one issued that names "
_TLS_FIXES = {
    9: "set this machine's clock, or have the server's certificate issued again",
    10: "renew the server's certificate",
    **dict.fromkeys((18, 19, 20, 21), _TRUST),
    **dict.fromkeys((62, 64), _RENAME),
}
"""Advice on certificates that are not yet valid, expired, of an unknown authority, or have a wrong name.

The keys are OpenSSL's error codes (X509_V_ERR_*).
"""


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
        return _of_tls(host, error)
    except TimeoutError:
        return Unreached(f"no response within {timeout_s:.0f} s", _OPEN_THE_WAY)
    except ConnectionRefusedError:
        return Unreached(
            "nobody listens there (connection refused)", "correct the port, or start what is to listen there"
        )
    except (OSError, OverflowError) as error:
        return Unreached(getattr(error, "strerror", None) or type(error).__name__, _OPEN_THE_WAY)
    return None


def _of_tls(host: str, error: ssl.SSLError) -> Unreached:
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else None
    reason = f"TLS failed: {getattr(error, 'verify_message', None) or error.reason or type(error).__name__}"
    fix = _SPEAK_TLS if code is None else _TLS_FIXES.get(code, _SPEAK_TLS)
    return Unreached(reason, fix + host if fix == _RENAME else fix, is_tls=True)
