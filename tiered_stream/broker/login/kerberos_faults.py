"""Errors of Kerberos' library (MIT's `krb5.h`), as errors of this package that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    TieredStreamError,
)

if TYPE_CHECKING:
    from tiered_stream.broker.login.kerberos import KerberosIdentity

_SERVICE = (
    "the KDC knows no such broker: kafka.sasl.kerberos.service.name must be the part of the brokers' principal before "
    "the slash, and the part after it must be the host that the brokers advertise (advertised.listeners)"
)
_REALM = "name the realm and its KDC in /etc/krb5.conf, or in the file that KRB5_CONFIG names, on each machine"
_KEY = "the key table has an old key: export it from the KDC again"
_CLOCK = "set the clocks of this machine and of the KDC by NTP; they may differ by 5 minutes"
_NO_TICKET = (
    "get a ticket (kinit), and set KRB5CCNAME to where it is, or name useKeyTab=true, keyTab and principal in "
    "kafka.sasl.jaas.config; on the driver and on each executor"
)
_FAULTS: dict[int, tuple[type[TieredStreamError], str]] = {
    -1765328378: (BrokerAuthorizationError, "the KDC knows no such user: correct principal, or add it to the KDC"),
    -1765328377: (ConfigurationError, _SERVICE),
    -1765328366: (BrokerAuthorizationError, "the KDC has locked or expired this user: unlock it there"),
    -1765328361: (BrokerAuthorizationError, "the user's key has expired: change it at the KDC, and export it again"),
    -1765328360: (BrokerAuthorizationError, _KEY),
    -1765328355: (BrokerUnavailableError, "the KDC is busy"),
    -1765328353: (BrokerAuthorizationError, _KEY),
    -1765328352: (BrokerUnavailableError, "renew the ticket (kinit), or log in by a key table, which needs no renewal"),
    -1765328351: (ConfigurationError, _CLOCK),
    -1765328347: (ConfigurationError, _CLOCK),
    -1765328237: (ConfigurationError, _CLOCK),
    -1765328230: (ConfigurationError, _REALM),
    -1765328228: (BrokerUnavailableError, "open the way to the KDC that krb5.conf names, or correct krb5.conf"),
    -1765328249: (ConfigurationError, _REALM),
    -1765328248: (ConfigurationError, _REALM),
    -1765328164: (ConfigurationError, _REALM),
    -1765328160: (ConfigurationError, _REALM),
    -1765328243: (ConfigurationError, _NO_TICKET),
    -1765328189: (ConfigurationError, _NO_TICKET),
    -1765328172: (ConfigurationError, "this file is no ticket cache: correct ticketCache or KRB5CCNAME"),
    39756032: (ConfigurationError, "the ticket is another user's: correct principal, or get a ticket for it (kinit)"),
}
"""By the minor code (`krb5_err.et`, `gssapi_err_krb5.et`): the kind of error, and the text that says what to do."""
_NO_CACHE, _EXPIRED = -1765328189, -1765328352
_EXPIRED_MAJOR = 11 << 16
"""`GSS_S_CREDENTIALS_EXPIRED`."""


def kerberos_fault(error: Any, identity: KerberosIdentity, service: str) -> TieredStreamError:
    """Return the package's error for an error of the package `gssapi` (`GSSError`).

    Args:
        identity: the user of the login.
        service: the broker's principal without its realm; empty: the error is about the user.
    """
    minor = error.min_code - (1 << 32) if error.min_code >= 1 << 31 else error.min_code
    if error.maj_code & 0xFF0000 == _EXPIRED_MAJOR:
        minor = _EXPIRED
    who = f"principal {identity.principal!r}" if identity.principal else "the user of the default ticket cache"
    where = f" at {service!r}" if service else ""
    if identity.keytab is not None and minor == _NO_CACHE:
        return ConfigurationError(
            f"Kerberos login of {who}{where}: the key table {identity.keytab!r} has no key of this principal: correct "
            f"principal or keyTab (`klist -k {identity.keytab}` lists the principals)"
        )
    kind, advice = _FAULTS.get(minor, (BrokerAuthorizationError, "see the KDC's log, and krb5.conf"))
    reason = "; ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else "no reason is given"
    if minor == _EXPIRED:
        reason = "the ticket has expired"
        advice = advice if identity.keytab is None else f"it was new; {_CLOCK}"
    return kind(f"Kerberos login of {who}{where}: {reason}: {advice}")
