"""Identity with which requests to Google Cloud Storage are authorized, as settings for obstore and for deltalake.

As `azure_identity` says, obstore and deltalake read environment variables by themselves. Google's own variable is
`GOOGLE_APPLICATION_CREDENTIALS`. Other variables with credentials, which only these libraries read, are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageUnavailableError
from tiered_stream.options.parsing import StoreAccess
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts
from tiered_stream.storage.identity.access_tokens import TokenSource, token_source
from tiered_stream.storage.identity.azure_identity import NO_PROXY_FOR_ANY
from tiered_stream.storage.identity.token_request import AccessToken, TokenRequest
from tiered_stream.timed_http import json_object

_NO_ACCOUNT = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
"""Service account for requests without credentials.

If only `skip_signature` were set, `object_store` would still look for credentials.
"""
_FILE_NAME = "application_default_credentials.json"
_METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_PATH_VARIABLES = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
_KEY_VARIABLE, _TOKEN_VARIABLE, _OBSTORES_PATH = "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN", "SERVICE_ACCOUNT"

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_AWS = "urn:ietf:params:aws:token-type:aws4_request"
_ERROR_CODE = re.compile(r"Error code ([a-z_]{1,40})")

_sources: PerProcess[TokenSource] = PerProcess()
"""Sources of access tokens that google-auth requests, by the content of the credentials' file."""


class Kind(StrEnum):
    """Kind of an identity. For credentials in a file, the value is the file's field `type`."""

    SERVICE_ACCOUNT = "service_account"
    USER = "authorized_user"
    FEDERATED = "external_account"
    FEDERATED_USER = "external_account_authorized_user"
    IMPERSONATED = "impersonated_service_account"
    MACHINE = "machine"
    NOBODY = "nobody"


BY_GOOGLE_AUTH = (Kind.FEDERATED, Kind.FEDERATED_USER, Kind.IMPERSONATED)


@dataclass(frozen=True, slots=True)
class GoogleIdentity:
    """Identity that authorizes requests to one bucket.

    `path` is the file of the credentials, and `text` is the content of the file. `path` is empty if a setting has the
    text. Both are empty for the kinds `MACHINE` and `NOBODY`.
    """

    kind: Kind
    path: str = ""
    text: str = field(default="", repr=False)

    def for_obstore(self) -> dict[str, str]:
        """Return obstore's settings for this identity, which override environment variables.

        Raises:
            ConfigurationError: an environment variable would replace the identity, and no setting overrides it.
        """
        credentials = self._credentials()
        paths = () if "service_account" in credentials else (*_PATH_VARIABLES, _OBSTORES_PATH)
        keys = () if "service_account_key" in credentials else (_KEY_VARIABLE,)
        tokens = (_TOKEN_VARIABLE,) if self.kind in (Kind.SERVICE_ACCOUNT, Kind.USER) else ()
        if found := next(filter(os.environ.__contains__, (*paths, *keys, *tokens)), None):
            raise ConfigurationError(
                f"the environment variable {found} is set, which the library of the tasks would use in place of "
                f"{self}: remove it from the environment of the driver and of the executors"
            )
        return credentials

    def for_deltalake(self) -> dict[str, str]:
        """Return deltalake's settings for this identity, which override environment variables.

        Raises:
            ConfigurationError: deltalake cannot use the identity (`why_not_deltalake`).
        """
        if (why := self.why_not_deltalake()) is not None:
            raise ConfigurationError(why)
        settings = {"allow_invalid_certificates": "false", "proxy_excludes": NO_PROXY_FOR_ANY, **self._credentials()}
        # With the second name among the settings, deltalake adds no key from the environment.
        return {**settings, "application_credentials": self.path} if self.path else settings

    def why_not_deltalake(self) -> str | None:
        """Return the reason why deltalake cannot use this identity, or None if it can."""
        if self.kind in BY_GOOGLE_AUTH:
            return (
                f"deltalake, which reads and writes the table's log, cannot use {self}: give it the key file of a "
                "service account (gcs.credentials.path)"
            )
        has_path = "service_account" in self._credentials()
        found = None if has_path else next(filter(os.environ.__contains__, _PATH_VARIABLES), None)
        if self.kind is Kind.MACHINE and found is None:
            found = next(filter(os.environ.__contains__, (_KEY_VARIABLE, _CREDENTIALS)), None)
            if found is None and _usual_file().exists():
                return f"the file {_usual_file()} exists, which deltalake would use in place of {self}: remove it"
        if found is None:
            return None
        return (
            f"the environment variable {found} is set, which deltalake would use in place of {self}: remove it from "
            "the driver's environment"
        )

    def tokens(self, timeouts: RequestTimeouts) -> TokenSource | None:
        """Return the source of this identity's access tokens, or None if obstore needs none.

        Raises:
            ConfigurationError: the package google-auth is missing, or the credentials lack a field.
        """
        if self.kind in BY_GOOGLE_AUTH:
            return _sources.get(
                {"text": self.text, "timeouts": timeouts},
                lambda: TokenSource(_library_fetch(self.text, str(self), timeouts)),
            )
        if self.kind is Kind.MACHINE:
            return token_source(_metadata_request(), timeouts)
        return None  # of a service account, the library signs tokens itself; of a user, it requests them

    def __str__(self) -> str:
        if self.kind is Kind.MACHINE:
            return "the service account of the machine"
        if self.kind is Kind.NOBODY:
            return "no credentials"
        return f"the credentials of the type {self.kind}{f' in {self.path}' if self.path else ''}"

    def _credentials(self) -> dict[str, str]:
        """Return settings of `object_store`; they have the credentials, unless `tokens` returns a source of tokens."""
        if self.kind is Kind.NOBODY:
            return {"service_account_key": _NO_ACCOUNT, "skip_signature": "true"}
        name = {Kind.SERVICE_ACCOUNT: "service_account", Kind.USER: "application_credentials"}.get(self.kind)
        if name is None:
            return {"skip_signature": "false"}
        credentials = {name: self.path} if self.path else {"service_account_key": self.text}
        return {"skip_signature": "false", **credentials}


def google_identity(options: StoreAccess, prefix: str) -> GoogleIdentity:
    """Return the identity that the settings name; if they name none, Google's application default credentials.

    If a setting names a file of credentials, the file is read. `prefix` is the prefix of the settings, for errors.

    Raises:
        StorageAccessError: the file cannot be read.
        ConfigurationError: credentials are malformed, or of an unknown type. The message has no part of them.
    """
    if options.gcs_credentials_json:
        return _of_text(options.gcs_credentials_json, "", f"{prefix}gcs.credentials.json")
    if options.gcs_credentials_path:
        return _of_file(options.gcs_credentials_path, f"{prefix}gcs.credentials.path")
    if options.gcs_anonymous or options.gcs_machine:
        return GoogleIdentity(Kind.NOBODY if options.gcs_anonymous else Kind.MACHINE)
    if named := os.environ.get(_CREDENTIALS):
        return _of_file(named, f"the environment variable {_CREDENTIALS}")
    folder = os.environ.get("CLOUDSDK_CONFIG")
    # The command `gcloud auth application-default login` writes this file.
    path = Path(folder, _FILE_NAME) if folder else _usual_file()
    if path.exists():
        return _of_file(str(path), "application default credentials")
    return GoogleIdentity(Kind.MACHINE)


def _usual_file() -> Path:
    """Return the only path where `object_store` looks for the file; a user without a home has no file there."""
    return Path(os.path.expanduser("~"), ".config", "gcloud", _FILE_NAME)


def _of_file(path: str, setting: str) -> GoogleIdentity:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StorageAccessError(f"the file {path} ({setting}) cannot be read: {why}") from None
    return _of_text(text, path, setting)


def _of_text(text: str, path: str, setting: str) -> GoogleIdentity:
    where = f"{path} ({setting})" if path else setting
    if (document := json_object(text)) is None:
        raise StorageAccessError(f"{where} has no credentials of Google's: it is not the JSON of a credentials file")
    name = document.get("type", Kind.SERVICE_ACCOUNT)
    if name not in (Kind.SERVICE_ACCOUNT, Kind.USER, *BY_GOOGLE_AUTH):
        shown = repr(name) if isinstance(name, str) and len(name) < 60 else "malformed"
        raise ConfigurationError(
            f"{where}: the type of the credentials is {shown}, which is not supported: use the key file of a service "
            "account"
        )
    if name == Kind.USER and not path:
        raise ConfigurationError(f"{where}: credentials of a user must be in a file: set {setting[:-4]}path")
    return GoogleIdentity(Kind(name), path, text)


def _metadata_request() -> TokenRequest:
    """Return the request to Google's metadata server; as in Google's libraries, variables can name another host."""
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_ROOT") or "metadata.google.internal"
    address = os.environ.get("GCE_METADATA_IP") or "169.254.169.254"
    return TokenRequest(
        "the service account of the machine",
        tuple(f"http://{name}{_METADATA_PATH}" for name in (host, address)),
        "attach a service account to the machine or pod, or give credentials by gcs.credentials.path",
        headers={"Metadata-Flavor": "Google"},
        proxied=False,
    )


def _library_fetch(text: str, identity: str, timeouts: RequestTimeouts) -> Callable[[], AccessToken]:
    """Return a function that requests a new token by google-auth, and raises StorageAccessError if there is none.

    The library is for credentials that `object_store` does not know: federation of workload identities (tokens of
    another cloud or cluster), and impersonation of service accounts.

    Args:
        text: content of the credentials' file.
        identity: name of the credentials, for errors.

    Raises:
        ConfigurationError: the package google-auth is missing, or the credentials are malformed.
    """
    try:
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request
    except ImportError:
        raise ConfigurationError(
            f"{identity} need the package google-auth, which is not installed: pip install 'tiered-stream[gcs]'"
        ) from None
    try:
        credentials = _library_credentials(orjson.loads(text))
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
        return _token_of(credentials)

    attempts = Attempts(timeouts, lambda name, _: name)
    fix = "check the file, its credential source, and the grants of its pool or service account"

    def fetch() -> AccessToken:
        try:
            return attempts.send(f"an access token of {identity}", attempt)
        except StorageUnavailableError as error:
            raise StorageAccessError(f"{error}; {fix}") from None
        # google-auth checks few fields of a response.
        except (GoogleAuthError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            code = _ERROR_CODE.search(str(error))  # the rest of the text may have secrets
            raise StorageAccessError(
                f"no access token of {identity}: google-auth reports {code[1] if code else type(error).__name__}; {fix}"
            ) from None

    return fetch


def _token_of(credentials: Any) -> AccessToken:
    """Return the token of google-auth's credentials. Raise TypeError or AttributeError if the response lacked it."""
    if not isinstance(credentials.token, str):
        raise TypeError
    return AccessToken(credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp())


def _library_credentials(document: dict[str, Any]) -> Any:
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
