"""Parser of the texts of errors of hdfs-native (HDFS client in Rust), and advice for failed Kerberos logins."""

from __future__ import annotations

import re
from typing import NamedTuple

from tiered_stream import kerberos_codes as codes

_RUST_ERROR = re.compile(r'(?P<kind>\w+)\((?:"(?P<java>[\w.$]+)", )?"?(?P<text>.*?)(?:\\n|"?\)$|$)', re.DOTALL)
"""Form of the text of hdfs-native's error: its kind, the Java class if a node has sent the error, and the message."""
_GSSAPI = re.compile(r'GSSAPIError\(.*?raw: "0x(?P<major>\w+)".*?\}, (?P<minor>\d+), "(?P<text>.*)"\)$', re.DOTALL)
_UNSPECIFIED = re.compile(r"^.*?Minor code may provide more information: |^No credentials were supplied, .*?: ")
_DATA_NODES = re.compile(r'ip_addr: \\?"(?P<host>[^"\\]+)\\?".*?xfer_port: (?P<port>\d+)')
_FURTHER_CODES = {
    codes.UNKNOWN_SERVICE: codes.KerberosFault(
        codes.Culprit.SETUP, "the KDC knows no such name node: map its host to its realm in krb5.conf ([domain_realm])"
    )
}
_NO_LIBRARY = "Failed to load libgssapi_krb"


class ClientError(NamedTuple):
    """Parts of an error of hdfs-native: its `kind` (name of the error in Rust), and one line of `text`.

    `java` is the short name of the Java exception if an HDFS node has sent the error; otherwise it is empty.
    """

    kind: str
    java: str
    text: str

    def __str__(self) -> str:
        return f"{self.java or self.kind} {self.text}".strip()


def parts_of(error: BaseException) -> ClientError:
    """Return the parts of an `error` that hdfs-native has raised. The message in it is cut to 300 characters."""
    text = str(error)
    if isinstance(error, RuntimeError) and (match := _RUST_ERROR.match(text)):
        shown = match["text"][:300]
        if text.startswith('DataTransferError("All DataNodes failed'):
            nodes = ", ".join(f"{each['host']}:{each['port']}" for each in _DATA_NODES.finditer(text))
            shown = f"all data nodes failed: {nodes}"
        return ClientError(match["kind"], (match["java"] or "").rpartition(".")[2], shown)
    return ClientError(type(error).__name__, "", text.partition("\n")[0][:300])


def login_fault(
    error: BaseException, principal: str | None, keytab: str | None, prefix: str
) -> codes.KerberosFault | None:
    """Return the fault that made a Kerberos login fail on this machine or at the KDC; None: `error` is another error.

    The fault's `advice` has the user, the reason and the fix.

    Args:
        principal: name of the user; None: the user of the default ticket cache.
        keytab: path of the user's key table; None: there is none.
        prefix: prefix of the options, for the message.
    """
    if not isinstance(error, RuntimeError):
        return None
    who = f"Kerberos login of {f'principal {principal!r}' if principal else 'the user of the default ticket cache'}"
    if _NO_LIBRARY in str(error):
        fix = "install the libraries of Kerberos (Debian: libgssapi-krb5-2, Red Hat: krb5-libs)"
        return codes.KerberosFault(codes.Culprit.SETUP, f"{who}: libgssapi_krb5.so.2 is missing: {fix}")
    if (match := _GSSAPI.match(str(error))) is None:
        return None
    code = codes.fault_code(int(match["major"], 16), int(match["minor"]))
    reason = _UNSPECIFIED.sub("", match["text"].replace('\\"', '"').replace("\\'", "'"))[:300]
    if code in (codes.NO_CACHE, codes.NO_CREDENTIALS):
        return codes.KerberosFault(codes.Culprit.SETUP, f"{who}: {_without_ticket(reason, keytab, prefix)}")
    culprit, advice = (codes.FAULTS | _FURTHER_CODES).get(
        code, codes.KerberosFault(codes.Culprit.USER, "see the KDC's log")
    )
    if code == codes.EXPIRED:
        reason = "the ticket has expired"
        advice = advice if keytab is None else f"it was new; {codes.CLOCK}"
    return codes.KerberosFault(culprit, f"{who}: {reason}: {advice}")


def _without_ticket(reason: str, keytab: str | None, prefix: str) -> str:
    principal, option = f"{prefix}hdfs.auth.kerberos.principal", f"{prefix}hdfs.auth.kerberos.keytab"
    if keytab is None:
        return (
            f"{reason}: get a ticket (kinit), and set KRB5CCNAME to where it is, or set {principal} and {option}; on "
            "the driver and on each executor"
        )
    return (
        f"the key table {keytab!r} has no key of this principal: correct {principal} or {option} "
        f"(`klist -k {keytab}` lists the principals)"
    )
