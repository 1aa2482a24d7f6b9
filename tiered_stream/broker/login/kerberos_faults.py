"""Errors of Kerberos' library (MIT's `krb5.h`), as errors of this package that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    TieredStreamError,
)
from tiered_stream.kerberos_codes import (
    BAD_CACHE,
    CLOCK,
    EXPIRED,
    FAULTS,
    NO_CACHE,
    NO_CREDENTIALS,
    UNKNOWN_SERVICE,
    Culprit,
    KerberosFault,
    fault_code,
)

if TYPE_CHECKING:
    from tiered_stream.broker.login.kerberos import KerberosIdentity

_SERVICE = (
    "the KDC knows no such broker: kafka.sasl.kerberos.service.name must be the part of the brokers' principal before "
    "the slash, and the part after it must be the host that the brokers advertise (advertised.listeners)"
)
_NO_TICKET = (
    "get a ticket (kinit), and set KRB5CCNAME to where it is, or name useKeyTab=true, keyTab and principal in "
    "kafka.sasl.jaas.config; on the driver and on each executor"
)
_FAULTS = {
    **FAULTS,
    UNKNOWN_SERVICE: KerberosFault(Culprit.SETUP, _SERVICE),
    NO_CREDENTIALS: KerberosFault(Culprit.SETUP, _NO_TICKET),
    NO_CACHE: KerberosFault(Culprit.SETUP, _NO_TICKET),
    BAD_CACHE: KerberosFault(Culprit.SETUP, "this file is no ticket cache: correct ticketCache or KRB5CCNAME"),
}
_KINDS: dict[Culprit, type[TieredStreamError]] = {
    Culprit.SETUP: ConfigurationError,
    Culprit.USER: BrokerAuthorizationError,
    Culprit.SERVICE: BrokerUnavailableError,
}
_UNKNOWN = KerberosFault(Culprit.USER, "see the KDC's log, and krb5.conf")


def kerberos_fault(error: Any, identity: KerberosIdentity, service: str) -> TieredStreamError:
    """Return the package's error for an error of the package `gssapi` (`GSSError`).

    Args:
        identity: the user of the login.
        service: the broker's principal without its realm; empty: the error is about the user.
    """
    code = fault_code(error.maj_code, error.min_code)
    who = f"principal {identity.principal!r}" if identity.principal else "the user of the default ticket cache"
    where = f" at {service!r}" if service else ""
    if identity.keytab is not None and code == NO_CACHE:
        return ConfigurationError(
            f"Kerberos login of {who}{where}: the key table {identity.keytab!r} has no key of this principal: correct "
            f"principal or keyTab (`klist -k {identity.keytab}` lists the principals)"
        )
    culprit, advice = _FAULTS.get(code, _UNKNOWN)
    reason = "; ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else "no reason is given"
    if code == EXPIRED:
        reason = "the ticket has expired"
        advice = advice if identity.keytab is None else f"it was new; {CLOCK}"
    return _KINDS[culprit](f"Kerberos login of {who}{where}: {reason}: {advice}")
