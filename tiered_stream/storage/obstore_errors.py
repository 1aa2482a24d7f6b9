"""Errors of obstore as text: the failure of an attempt that each of them stands for."""

from __future__ import annotations

import re

from tiered_stream.storage.attempts import AttemptError, FailureKind

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")
_REGION = re.compile(r"<Region>([a-z][a-z0-9-]{0,38}[a-z0-9])</Region>")
_DENIED = re.compile(
    r"not authorized to perform: (?P<action>[a-z0-9-]{1,40}:[A-Za-z]{1,60})"
    r"(?: on resource: (?:&quot;|\\*\")?(?P<resource>arn:[^\s\\\"&<]{1,400}))?"
)
"""AWS's text about a missing permission."""
_NO_TOKEN = re.compile(
    r"The operation lacked valid authentication credentials for path External \w+ credential provider: "
    r"(?:\w+: )?(?P<own>.+)"
    r"|Generic \w+ error: (?:Error (?:performing token request|getting token response body|reading federated)|"
    r"'az account|Failed to parse azure cli)"
)
"""obstore's text if there is no access token: with the error of a source of this package, or of a token service."""
_REDIRECTED = "Received redirect without LOCATION"
"""obstore's text if S3 responds from another region than the bucket's. It lacks the header with the region."""
_TLS = re.compile(r"error: (?:InvalidCertificate|InvalidMessage)\(\s+(\w+?)(?:Context)?\b")
"""obstore's text if the server's certificate is not accepted, or if the server does not speak TLS."""
_UNKNOWN_HOST = re.compile(
    "failed to lookup address information: (?:Name or service not known|No address associated|nodename nor servname)"
)
"""obstore's text if DNS says that there is no such host. It has other words if DNS does not respond."""
_KIND = re.compile(r"HttpError \{\s+kind: (\w+)")
_KINDS = {
    "Timeout": FailureKind.TIMEOUT, "Connect": FailureKind.UNREACHABLE,
    "Request": FailureKind.BROKEN, "Interrupted": FailureKind.BROKEN,
}  # fmt: skip
"""Kinds of failures by the names of the kinds of obstore's HTTP errors."""


def failure_of(error: Exception) -> AttemptError:
    """Return the failure that obstore's `error` stands for.

    obstore's errors have no fields, but a text with the status or with the kind of the HTTP error.
    """
    text = str(error)
    status, no_token = _STATUS.search(text), _NO_TOKEN.match(text)
    if no_token:
        # The text of a token service's response is left out, because it may have secrets.
        service = (
            f"the token service responded with {status[1]}" if status else text.partition(":")[2].partition("\n")[0]
        )
        return AttemptError(FailureKind.CREDENTIALS, denied=no_token["own"] or service.strip())
    if _REDIRECTED in text:
        return AttemptError(FailureKind.STATUS, 301)
    if status:
        code, region = (found[1] if (found := form.search(text)) else "" for form in (_CODE, _REGION))
        denied = _DENIED.search(text)
        resource = f" on {denied['resource']}" if denied and denied["resource"] else ""
        permission = f"{denied['action']}{resource}" if denied else ""
        return AttemptError(FailureKind.STATUS, int(status[1]), code, region, permission)
    if tls := _TLS.search(text):
        return AttemptError(FailureKind.TLS, code=tls[1])
    if _UNKNOWN_HOST.search(text):
        return AttemptError(FailureKind.UNKNOWN_HOST)
    kind = _KIND.search(text)
    return AttemptError(_KINDS.get(kind[1] if kind else "", FailureKind.OTHER))
