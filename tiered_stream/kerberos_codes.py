"""Error codes of MIT Kerberos (`krb5.h`), each with the part that is at fault and the fix.

The codes are in MIT's files `krb5_err.et` and `gssapi_err_krb5.et`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Culprit(Enum):
    """Part that is at fault: the configuration (`SETUP`), the user's principal or key (`USER`), or a `SERVICE`.

    A fault of a `SERVICE`, such as a busy KDC or an expired ticket, may be gone later.
    """

    SETUP = "setup"
    USER = "user"
    SERVICE = "service"


class KerberosFault(NamedTuple):
    """Meaning of a Kerberos error code: the part at fault (`culprit`), and the fix, for error messages (`advice`)."""

    culprit: Culprit
    advice: str


_REALM = KerberosFault(
    Culprit.SETUP,
    "name the realm and its KDC in /etc/krb5.conf, or in the file that KRB5_CONFIG names, on each machine",
)
_KEY = KerberosFault(Culprit.USER, "the key table has an old key: export it from the KDC again")
CLOCK = "set the clocks of this machine and of the KDC by NTP; they may differ by 5 minutes"
UNKNOWN_SERVICE, EXPIRED, NO_CACHE, NO_CREDENTIALS, BAD_CACHE = (
    -1765328377, -1765328352, -1765328189, -1765328243, -1765328172,
)  # fmt: skip
"""Kerberos error codes that other modules handle, because the fix depends on the service or on the way of the login."""
FAULTS: dict[int, KerberosFault] = {
    -1765328378: KerberosFault(Culprit.USER, "the KDC knows no such user: correct principal, or add it to the KDC"),
    -1765328366: KerberosFault(Culprit.USER, "the KDC has locked or expired this user: unlock it there"),
    -1765328361: KerberosFault(Culprit.USER, "the user's key has expired: change it at the KDC, and export it again"),
    **dict.fromkeys((-1765328360, -1765328353), _KEY),
    -1765328355: KerberosFault(Culprit.SERVICE, "the KDC is busy"),
    EXPIRED: KerberosFault(
        Culprit.SERVICE, "renew the ticket (kinit), or log in by a key table, which needs no renewal"
    ),
    **dict.fromkeys((-1765328351, -1765328347, -1765328236), KerberosFault(Culprit.SETUP, CLOCK)),
    -1765328237: KerberosFault(
        Culprit.SETUP, "write the principal and its realm exactly as the KDC has them, mostly EXAMPLE.COM in capitals"
    ),
    **dict.fromkeys((-1765328230, -1765328249, -1765328248, -1765328164, -1765328160), _REALM),
    -1765328228: KerberosFault(Culprit.SERVICE, "open the way to the KDC that krb5.conf names, or correct krb5.conf"),
    39756032: KerberosFault(
        Culprit.SETUP, "the ticket is another user's: correct principal, or get a ticket for it (kinit)"
    ),
}
_EXPIRED_MAJOR = 11 << 16
"""GSSAPI's major status `GSS_S_CREDENTIALS_EXPIRED` (RFC 2744)."""


def fault_code(major: int, minor: int) -> int:
    """Return Kerberos' error code, such as a key of `FAULTS`, for the `major` and `minor` status of a GSSAPI error.

    Most of Kerberos' codes are negative; `minor` may have such a code as an unsigned 32-bit number. If `major` says
    that the ticket has expired, the result is `EXPIRED`, whichever `minor` is given.
    """
    if major & 0xFF0000 == _EXPIRED_MAJOR:
        return EXPIRED
    return minor - (1 << 32) if minor >= 1 << 31 else minor
