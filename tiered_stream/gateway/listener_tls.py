"""TLS towards clients: the listener's certificate, and which certificates of clients are asked for.

A certificate is renewed by replacing its file. So the files are looked at when a connection comes, and new connections
get what the files hold by then.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass, field

from tiered_stream.broker.config.property_values import ConfigValues
from tiered_stream.broker.config.tls import load_trust
from tiered_stream.errors import ConfigurationError

log = logging.getLogger(__name__)

PREFIX = "gateway.listener."

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_State = tuple[tuple[int, int, int] | None, ...]
"""Of each file: what changes when the file is replaced or written to; None: there is none."""


@dataclass(frozen=True, slots=True)
class ListenerFiles:
    """Where the listener's key and certificate chain (PEM) are, and what clients are asked for.

    `client_auth`: `none`, `requested` or `required`. `trust`: Kafka's `ssl.truststore.*`, by these names.
    """

    keystore: str
    key_password: str = field(repr=False)
    client_auth: str = "none"
    trust: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def state(self) -> _State:
        """Changes when one of the files does."""
        return tuple(map(_state, (self.keystore, dict(self.trust).get("ssl.truststore.location"))))

    def load(self) -> ssl.SSLContext:
        """What the files hold now.

        Raises:
            ConfigurationError: a file is missing, or cannot be read; names the setting.
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
        except ConfigurationError as error:  # it names the properties as those of a client
            raise ConfigurationError(str(error).replace("kafka.ssl.", f"{PREFIX}ssl.")) from error


class ListenerTls:
    """The context for new connections. Serves one event loop.

    Raises:
        ConfigurationError: as `ListenerFiles.load`.
    """

    def __init__(self, files: ListenerFiles) -> None:
        self._files = files
        self._state = files.state()
        self._context = files.load()

    def context(self) -> ssl.SSLContext:
        """Return what the files hold now, or what they held when they could last be read: then the log says so once."""
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
