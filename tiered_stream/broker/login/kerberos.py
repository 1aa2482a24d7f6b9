"""Kerberos logins (SASL mechanism GSSAPI): the user, the security contexts of the logins, and errors.

The package `gssapi` calls MIT's or Heimdal's library. The library gets tickets from the KDC, and with a key table it
gets new tickets before the old ones expire. Because it may wait for the KDC, it runs outside the network thread.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tiered_stream import kerberos_codes as codes
from tiered_stream.broker.login.renewed_login import in_thread
from tiered_stream.broker.wire.kafka_python import SaslMechanismGSSAPI, register_sasl_mechanism
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError, TieredStreamError
from tiered_stream.extras import naming_extras

JAAS = "kafka.sasl.jaas.config"
_FRESH_SECONDS = 60.0
"""Maximum age in seconds of a security context that is made before its login.

The context's first message contains the time, which brokers accept for 5 minutes.
"""
_SERVICE = (
    "the KDC knows no such broker: kafka.sasl.kerberos.service.name must be the part of the brokers' principal before "
    "the slash, and the part after it must be the host that the brokers advertise (advertised.listeners)"
)
_NO_TICKET = (
    "get a ticket (kinit), and set KRB5CCNAME to where it is, or name useKeyTab=true, keyTab and principal in "
    "kafka.sasl.jaas.config; on the driver and on each executor"
)
_FAULTS = {
    **codes.FAULTS,
    codes.UNKNOWN_SERVICE: codes.KerberosFault(codes.Culprit.SETUP, _SERVICE),
    codes.NO_CREDENTIALS: codes.KerberosFault(codes.Culprit.SETUP, _NO_TICKET),
    codes.NO_CACHE: codes.KerberosFault(codes.Culprit.SETUP, _NO_TICKET),
    codes.BAD_CACHE: codes.KerberosFault(
        codes.Culprit.SETUP, "this file is no ticket cache: correct ticketCache or KRB5CCNAME"
    ),
}
_KINDS: dict[codes.Culprit, type[TieredStreamError]] = {
    codes.Culprit.SETUP: ConfigurationError,
    codes.Culprit.USER: BrokerAuthorizationError,
    codes.Culprit.SERVICE: BrokerUnavailableError,
}
_UNKNOWN = codes.KerberosFault(codes.Culprit.USER, "see the KDC's log, and krb5.conf")


@dataclass(frozen=True, slots=True)
class KerberosIdentity:
    """User who logs in by Kerberos.

    If all fields are None, the user is in the default ticket cache or in the default client key table. If both a
    ticket cache and a key table are named, the key table is used only if the ticket cache has no valid ticket. If only
    a key table is named, no ticket cache is used.

    Args:
        principal: name of the user, with or without the realm.
        keytab: path of the key table to get tickets with; None: no key table is named.
        ticket_cache: ticket cache, such as a file's path; empty: the default ticket cache; None: none is named.
    """

    principal: str | None
    keytab: str | None
    ticket_cache: str | None


def kerberos_identity(options: Mapping[str, str]) -> KerberosIdentity:
    """Return the user that the options of Java's `Krb5LoginModule` name.

    Raises:
        ConfigurationError: options contradict each other, by Java's rules, or an option is missing.
    """
    flags = {name: options.get(name, "false").lower() == "true" for name in ("useKeyTab", "useTicketCache")}
    for name, flag in (("keyTab", "useKeyTab"), ("ticketCache", "useTicketCache")):
        if options.get(name) and not flags[flag]:
            raise ConfigurationError(f"{JAAS}: {name} has no effect without {flag}: add {flag}=true, or remove {name}")
    if flags["useKeyTab"]:
        missing = [name for name in ("keyTab", "principal") if not options.get(name)]
        if missing:
            raise ConfigurationError(
                f"{JAAS}: useKeyTab=true needs {' and '.join(missing)}: add the key table's path as keyTab and its "
                "principal, or remove useKeyTab and set KRB5_CLIENT_KTNAME"
            )
    return KerberosIdentity(
        principal=options.get("principal") or None,
        keytab=options["keyTab"].removeprefix("FILE:") if flags["useKeyTab"] else None,
        ticket_cache=options.get("ticketCache", "") if flags["useTicketCache"] else None,
    )


def load_gssapi() -> Any:
    """Import and return the package `gssapi`.

    Raises:
        ConfigurationError: the package, or the Kerberos library that it needs, is not installed.
    """
    try:
        with naming_extras("kafka.sasl.mechanism = 'GSSAPI' (Kafka's default)"):
            return importlib.import_module("gssapi")
    except (ImportError, OSError) as error:
        raise ConfigurationError(
            f"kafka.sasl.mechanism = 'GSSAPI' needs the libraries of Kerberos ({error}): install them (Debian: "
            "libgssapi-krb5-2, Red Hat: krb5-libs)"
        ) from error


class KerberosLogin:
    """Source of the security contexts for the GSSAPI logins of one client. Safe to share between threads.

    Args:
        identity: the user.
        service: first part of the brokers' principals, such as `kafka`.
    """

    origin = "kafka.sasl.mechanism = 'GSSAPI'"
    kind = "Kerberos ticket"
    source = "KDC"

    def __init__(self, identity: KerberosIdentity, service: str) -> None:
        self._gssapi = load_gssapi()
        self.identity, self.service = identity, service
        self._own_tickets = f"MEMORY:tiered-stream-{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._running: dict[str, Future[None]] = {}
        self._prepared: dict[str, tuple[Any, bytes, float]] = {}
        """By host: a security context, its first message, and the time (`time.monotonic`) at which it was made."""

    def usable(self, host: str) -> bool:
        """Return whether a security context for a login at `host` is ready, and less than 60 s old."""
        prepared = self._prepared.get(host)
        return prepared is not None and time.monotonic() - prepared[2] < _FRESH_SECONDS

    def renewal(self, host: str = "") -> Future[None]:
        """Start a thread that makes the security context of a login at `host`; return a future of the thread's end.

        If `host` is empty, the thread only gets the user's ticket. If a thread for `host` is still running, no thread
        is started, and the future of the running thread is returned. The result of the future is None. If the thread
        fails, the future has the thread's error.
        """
        with self._lock:
            running = self._running.get(host)
            if running is None or running.done():
                running = self._running[host] = in_thread(partial(self._prepare, host))
            return running

    def context(self, host: str) -> tuple[Any, bytes]:
        """Return a security context for a login at `host`, and the context's first message.

        If no context is ready, make a context now, which may wait for the KDC.

        Raises:
            ConfigurationError, BrokerAuthorizationError, BrokerUnavailableError: no context can be made.
        """
        with self._lock:
            fresh = self.usable(host)
            prepared = self._prepared.pop(host, None)
        return prepared[:2] if prepared is not None and fresh else self._make(host)

    @contextmanager
    def translated(self, host: str = "") -> Iterator[None]:
        """Raise an error of this package in place of an error of the package `gssapi` in the `with` block.

        If `host` is given, the message names the broker's principal.
        """
        try:
            yield
        except self._gssapi.exceptions.GSSError as error:
            raise _fault(error, self.identity, f"{self.service}/{host}" if host else "") from error

    def _prepare(self, host: str) -> None:
        if host:
            self._prepared[host] = (*self._make(host), time.monotonic())
        else:
            with self.translated():
                self._credentials().lifetime  # noqa: B018 - the library gets the ticket when it is asked for its lifetime

    def _make(self, host: str) -> tuple[Any, bytes]:
        """Return a new security context for the broker at `host`, and its first message."""
        gssapi = self._gssapi
        with self.translated(host):
            name = gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(
                name=name.canonicalize(gssapi.MechType.kerberos), usage="initiate", creds=self._credentials()
            )
            return context, context.step(None)

    def _credentials(self) -> Any:
        """Return the user's credentials. With a key table, the Kerberos library gets and renews the ticket."""
        identity = self.identity
        if identity.keytab is not None and identity.ticket_cache is not None:
            with suppress(self._gssapi.exceptions.GSSError):  # as for Java, the key table is next
                cached = self._from_cache(identity.ticket_cache)
                if cached.lifetime:
                    return cached
        if identity.keytab is None:
            return self._from_cache(identity.ticket_cache or "")
        if not os.access(identity.keytab, os.R_OK):
            raise ConfigurationError(
                f"{JAAS}: keyTab = {identity.keytab!r} is not a file that this process can read: correct the path, and "
                "give the file to the driver and to each executor (spark-submit --files)"
            )
        return self._acquire({"client_keytab": f"FILE:{identity.keytab}", "ccache": self._own_tickets})

    def _from_cache(self, cache: str) -> Any:
        return self._acquire({"ccache": cache} if cache else None)

    def _acquire(self, store: Mapping[str, str] | None) -> Any:
        gssapi, principal = self._gssapi, self.identity.principal
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        return gssapi.Credentials(name=name, usage="initiate", store=store)


class _Gssapi(SaslMechanismGSSAPI):  # type: ignore[misc]
    """GSSAPI login of one connection, which takes its security context from a `KerberosLogin`.

    kafka-python's own mechanism knows the default user only, and waits for the KDC on the network thread. It is used if
    the connection has no `KerberosLogin`, because another kafka-python client in this process has opened it.
    """

    def __init__(self, **config: Any) -> None:
        self._login = config.get("sasl_oauth_token_provider")
        if not isinstance(self._login, KerberosLogin):
            super().__init__(**config)
            return
        self._is_done = self._is_authenticated = False
        self.auth_id = ""  # the broker takes the user's own principal (RFC 4752, 3.1)
        self._client_ctx, self._next_token = self._login.context(config["host"])

    def receive(self, auth_bytes: bytes) -> None:
        with self._login.translated() if isinstance(self._login, KerberosLogin) else nullcontext():
            super().receive(auth_bytes)


register_sasl_mechanism("GSSAPI", _Gssapi, overwrite=True)


def _fault(error: Any, identity: KerberosIdentity, service: str) -> TieredStreamError:
    """Return the package's error for an error of the package `gssapi` (`GSSError`).

    Args:
        identity: the user of the login.
        service: the broker's principal without its realm; empty: the error is about the user.
    """
    code = codes.fault_code(error.maj_code, error.min_code)
    who = f"principal {identity.principal!r}" if identity.principal else "the user of the default ticket cache"
    where = f" at {service!r}" if service else ""
    if identity.keytab is not None and code == codes.NO_CACHE:
        return ConfigurationError(
            f"Kerberos login of {who}{where}: the key table {identity.keytab!r} has no key of this principal: correct "
            f"principal or keyTab (`klist -k {identity.keytab}` lists the principals)"
        )
    culprit, advice = _FAULTS.get(code, _UNKNOWN)
    reason = "; ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else "no reason is given"
    if code == codes.EXPIRED:
        reason = "the ticket has expired"
        advice = advice if identity.keytab is None else f"it was new; {codes.CLOCK}"
    return _KINDS[culprit](f"Kerberos login of {who}{where}: {reason}: {advice}")
