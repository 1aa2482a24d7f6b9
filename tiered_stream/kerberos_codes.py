"""Error codes of Kerberos' library (MIT's `krb5.h`): the part that is at fault, and the fix.

The codes are in MIT's files `krb5_err.et` and `gssapi_err_krb5.et`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Culprit(Enum):
    """Part that is at fault. A fault of a `SERVICE`, such as a busy KDC or an expired ticket, may be gone later."""

    SETUP = "setup"
    USER = "user"
    SERVICE = "service"


class KerberosFault(NamedTuple):
    """Meaning of an error code. `advice` says what to do, as a clause of an error message."""

    culprit: Culprit
    advice: str


_REALM = "name the realm and its KDC in /etc/krb5.conf, or in the file that KRB5_CONFIG names, on each machine"
_KEY = "the key table has an old key: export it from the KDC again"
CLOCK = "set the clocks of this machine and of the KDC by NTP; they may differ by 5 minutes"
UNKNOWN_SERVICE, EXPIRED, NO_CACHE, NO_CREDENTIALS, BAD_CACHE = (
    -1765328377, -1765328352, -1765328189, -1765328243, -1765328172,
)  # fmt: skip
"""Codes whose fix depends on the service, or on how the user logs in."""
FAULTS: dict[int, KerberosFault] = {
    -1765328378: KerberosFault(Culprit.USER, "the KDC knows no such user: correct principal, or add it to the KDC"),
    -1765328366: KerberosFault(Culprit.USER, "the KDC has locked or expired this user: unlock it there"),
    -1765328361: KerberosFault(Culprit.USER, "the user's key has expired: change it at the KDC, and export it again"),
    -1765328360: KerberosFault(Culprit.USER, _KEY),
    -1765328355: KerberosFault(Culprit.SERVICE, "the KDC is busy"),
    -1765328353: KerberosFault(Culprit.USER, _KEY),
    EXPIRED: KerberosFault(
        Culprit.SERVICE, "renew the ticket (kinit), or log in by a key table, which needs no renewal"
    ),
    -1765328351: KerberosFault(Culprit.SETUP, CLOCK),
    -1765328347: KerberosFault(Culprit.SETUP, CLOCK),
    -1765328237: KerberosFault(
        Culprit.SETUP, "write the principal and its realm exactly as the KDC has them, mostly EXAMPLE.COM in capitals"
    ),
    -1765328236: KerberosFault(Culprit.SETUP, CLOCK),
    -1765328230: KerberosFault(Culprit.SETUP, _REALM),
    -1765328228: KerberosFault(Culprit.SERVICE, "open the way to the KDC that krb5.conf names, or correct krb5.conf"),
    -1765328249: KerberosFault(Culprit.SETUP, _REALM),
    -1765328248: KerberosFault(Culprit.SETUP, _REALM),
    -1765328164: KerberosFault(Culprit.SETUP, _REALM),
    -1765328160: KerberosFault(Culprit.SETUP, _REALM),
    39756032: KerberosFault(
        Culprit.SETUP, "the ticket is another user's: correct principal, or get a ticket for it (kinit)"
    ),
}
_EXPIRED_MAJOR = 11 << 16
"""`GSS_S_CREDENTIALS_EXPIRED`."""


def fault_code(major: int, minor: int) -> int:
    """Return Kerberos' error code for the status codes `major` and `minor` of a GSSAPI error.

    `minor` may be a negative code that is given as an unsigned number. If the ticket has expired, the result is
    `EXPIRED`, whichever `minor` is given.
    """
    if major & 0xFF0000 == _EXPIRED_MAJOR:
        return EXPIRED
    return minor - (1 << 32) if minor >= 1 << 31 else minor
