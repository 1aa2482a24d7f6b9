"""Access tokens by the package google-auth, for credentials of Google's that `object_store` does not know.

They are federation of workload identities (tokens of another cloud or cluster), and impersonation of service accounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from typing import Any

import orjson

from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageUnavailableError
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts
from tiered_stream.storage.identity.access_tokens import TokenSource
from tiered_stream.storage.identity.token_request import AccessToken

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_AWS = "urn:ietf:params:aws:token-type:aws4_request"
_ERROR_CODE = re.compile(r"Error code ([a-z_]{1,40})")

_sources: PerProcess[TokenSource] = PerProcess()


def google_auth_tokens(text: str, identity: str, timeouts: RequestTimeouts) -> TokenSource:
    """Return this process's source of access tokens for the credentials in `text`, the content of their file.

    `identity` names the credentials in errors.
    """
    return _sources.get({"text": text, "timeouts": timeouts}, lambda: TokenSource(_fetch(text, identity, timeouts)))


def _fetch(text: str, identity: str, timeouts: RequestTimeouts) -> Callable[[], AccessToken]:
    """Return a function that requests a new token, and raises StorageAccessError if there is none."""
    try:
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request
    except ImportError:
        raise ConfigurationError(
            f"{identity} need the package google-auth, which is not installed: pip install 'tiered-stream[gcs]'"
        ) from None
    try:
        credentials = _credentials(orjson.loads(text))
    except (GoogleAuthError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{identity} are malformed: google-auth reports {type(error).__name__}") from None
    request, seconds = Request(), min(timeouts.read_ms, timeouts.total_ms) / 1000

    def send(*args: Any, **fields: Any) -> Any:
        response = request(*args, **{"timeout": seconds, **fields})
        if (failure := AttemptError(FailureKind.STATUS, response.status)).may_pass:
            raise failure  # google-auth sends most requests only once
        return response

    def attempt(_: float) -> AccessToken:
        try:
            credentials.refresh(send)
        except TransportError:
            raise AttemptError(FailureKind.BROKEN) from None
        return AccessToken(credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp())

    attempts = Attempts(timeouts, lambda name, _: name)
    fix = "check the file, its credential source, and the grants of its pool or service account"

    def fetch() -> AccessToken:
        try:
            return attempts.send(f"an access token of {identity}", attempt)
        except StorageUnavailableError as error:
            raise StorageAccessError(f"{error}; {fix}") from None
        except (GoogleAuthError, OSError, ValueError) as error:
            code = _ERROR_CODE.search(str(error))  # the rest of the text may have secrets
            raise StorageAccessError(
                f"no access token of {identity}: google-auth reports {code[1] if code else type(error).__name__}; {fix}"
            ) from None

    return fetch


def _credentials(document: dict[str, Any]) -> Any:
    """Return google-auth's credentials for the content of a file, without a request.

    google-auth's own function for all types would ask Google for the project's id, too.
    """
    from google.auth import aws, external_account_authorized_user, identity_pool, impersonated_credentials, pluggable

    load: Any
    if document["type"] == "impersonated_service_account":
        load = impersonated_credentials.Credentials.from_impersonated_service_account_info
    elif document["type"] == "external_account_authorized_user":
        load = external_account_authorized_user.Credentials.from_info
    elif document.get("subject_token_type") == _AWS:
        load = aws.Credentials.from_info
    elif "executable" in document["credential_source"]:
        load = pluggable.Credentials.from_info
    else:
        load = identity_pool.Credentials.from_info
    return load(document, scopes=_SCOPES)
