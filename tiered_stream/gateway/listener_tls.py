"""TLS of the gateway's listener: its certificate, and the check of clients' certificates.

A certificate is renewed by replacing its file. So the files are checked at each new connection, and are read again if
they have changed.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping

from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.tls import load_trust
from tiered_stream.errors import ConfigurationError
from tiered_stream.process.caches import file_state

log = logging.getLogger(__name__)

PREFIX = "gateway.listener."

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerTls:
    """Source of the TLS context for each new client connection. Used from one event loop.

    Args:
        keystore: path of a PEM file with the listener's key and certificate chain.
        key_password: password of the key; empty if the key has none.
        client_auth: `required`: clients must show a certificate. `requested`: they can show one, which must be valid.
            `none`: they are not asked.
        trust: values of Kafka's `ssl.truststore.*` properties, by name.

    Raises:
        ConfigurationError: a file is missing or cannot be read.
    """

    def __init__(self, keystore: str, key_password: str, client_auth: str, trust: Mapping[str, str]) -> None:
        self._keystore = keystore
        self._key_password = key_password
        self._client_auth = client_auth
        self._trust = trust
        self._state = self._file_states()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection; read the files again if one of them has changed.

        If the files cannot be read, log a warning and return the previous context until a file changes again.
        """
        state = self._file_states()
        if state != self._state:
            self._state = state
            try:
                self._context = self._load()
                log.info("the listener's certificate was read again from %s", self._keystore)
            except ConfigurationError as error:
                log.warning("new connections still get the certificate that was read before: %s", error)
        return self._context

    def _file_states(self) -> tuple[object, object]:
        return file_state(self._keystore), file_state(self._trust.get("ssl.truststore.location", ""))

    def _load(self) -> ssl.SSLContext:
        """Return a new TLS context from the listener's keystore file and the trust store in `ssl.truststore.*`.

        The context asks clients for a certificate as `client_auth` says. If `client_auth` is `none`, the trust store is
        not read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._keystore, password=lambda: self._key_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigurationError(
                f"{PREFIX}ssl.keystore.location = {self._keystore!r}: key and certificate chain could not be read "
                f"(is {PREFIX}ssl.key.password right?): {getattr(error, 'reason', None) or type(error).__name__}"
            ) from error
        if self._client_auth != "none":
            try:
                load_trust(context, ConfigValues(self._trust))
            except ConfigurationError as error:  # the message has the properties' names with a Kafka client's prefix
                raise ConfigurationError(str(error).replace("kafka.ssl.", f"{PREFIX}ssl.")) from error
            context.verify_mode = _VERIFY[self._client_auth]
        return context
