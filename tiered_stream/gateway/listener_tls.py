"""TLS of the listener: its own certificate, and the check of clients' certificates.

A certificate is renewed by replacing its file. So the files are checked at each new connection, and are read again if
they have changed.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass, field

from tiered_stream.broker.login.tls import load_trust
from tiered_stream.broker.properties.property_values import ConfigValues
from tiered_stream.errors import ConfigurationError

log = logging.getLogger(__name__)

PREFIX = "gateway.listener."

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_State = tuple[tuple[int, int, int] | None, ...]
"""Inode, modification time (ns) and size of each file, to notice a change; None: the file does not exist."""


@dataclass(frozen=True, slots=True)
class ListenerFiles:
    """Locations of the listener's key and certificate chain (one PEM file), and the rules for clients' certificates.

    `client_auth`: whether clients must show a certificate: `none`, `requested` or `required`. `trust`: pairs of name
    and value of Kafka's `ssl.truststore.*` properties.
    """

    keystore: str
    key_password: str = field(repr=False)
    client_auth: str = "none"
    trust: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def state(self) -> _State:
        """Return a value that changes when the PEM file or the trust store file changes."""
        return tuple(map(_state, (self.keystore, dict(self.trust).get("ssl.truststore.location"))))

    def load(self) -> ssl.SSLContext:
        """Read the files now and return a TLS context with their certificates.

        Raises:
            ConfigurationError: a file is missing or cannot be read; the message names the setting.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.keystore, password=lambda: self.key_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigurationError(
                f"{PREFIX}ssl.keystore.location = {self.keystore!r}: key and certificate chain could not be read "
                f"(is {PREFIX}ssl.key.password right?): {getattr(error, 'reason', None) or type(error).__name__}"
            ) from error
        if self.client_auth != "none":
            self._load_trust(context)
            context.verify_mode = _VERIFY[self.client_auth]
        return context

    def _load_trust(self, context: ssl.SSLContext) -> None:
        try:
            load_trust(context, ConfigValues(dict(self.trust)))
        except ConfigurationError as error:  # the message has the properties' names with a Kafka client's prefix
            raise ConfigurationError(str(error).replace("kafka.ssl.", f"{PREFIX}ssl.")) from error


class ListenerTls:
    """Current TLS context for new connections, used from one event loop.

    Raises:
        ConfigurationError: a file is missing or cannot be read.
    """

    def __init__(self, files: ListenerFiles) -> None:
        self._files = files
        self._state = files.state()
        self._context = files.load()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection, read again if a file has changed.

        If the changed files cannot be read, log a warning once and return the previous context.
        """
        state = self._files.state()
        if state != self._state:
            self._state = state
            try:
                self._context = self._files.load()
                log.info("the listener's certificate was read again from %s", self._files.keystore)
            except ConfigurationError as error:
                log.warning("new connections still get the certificate that was read before: %s", error)
        return self._context


def _state(path: str | None) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path) if path else None
    except (OSError, ValueError):
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found else None
