"""Parser of the texts of obstore's errors: obstore gives status, error code and kind only as text."""

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
"""Form of AWS's text about a missing permission."""
_NO_TOKEN = re.compile(
    r"The operation lacked valid authentication credentials for path External \w+ credential provider: "
    r"(?:\w+: )?(?P<own>.+)"
    r"|Generic \w+ error: (?:Error (?:performing token request|getting token response body|reading federated)|"
    r"'az account|Failed to parse azure cli)"
)
"""Form of obstore's text if there is no access token.

The group `own` is the message of this package's `TokenSource`; it is missing if obstore has asked for the token itself.
"""
_REDIRECTED = "Received redirect without LOCATION"
"""obstore's text if S3 responds from another region than the bucket's. The text does not name the bucket's region."""
_TLS = re.compile(r"error: (?:InvalidCertificate|InvalidMessage)\(\s+(\w+?)(?:Context)?\b")
"""Form of obstore's text if the server's certificate is not accepted, or if the server does not speak TLS."""
_UNKNOWN_HOST = re.compile(
    "failed to lookup address information: (?:Name or service not known|No address associated|nodename nor servname)"
)
"""Form of obstore's text if DNS says that there is no such host. If DNS does not respond, the text has other words."""
_KIND = re.compile(r"HttpError \{\s+kind: (\w+)")
_KINDS = {
    "Timeout": FailureKind.TIMEOUT, "Connect": FailureKind.UNREACHABLE,
    "Request": FailureKind.BROKEN, "Interrupted": FailureKind.BROKEN,
}  # fmt: skip
"""Kind of failure for each kind of HTTP error that obstore names in its text."""


def failure_of(error: Exception) -> AttemptError:
    """Return the `AttemptError` that describes obstore's `error`.

    obstore's errors have no fields. So the HTTP status, or the kind of the HTTP error, is read from the error's text.
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
