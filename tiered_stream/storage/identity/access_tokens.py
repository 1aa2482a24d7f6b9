"""Access tokens of Azure's and Google's identities: requested from a token service, and kept until they expire.

obstore could request the tokens itself. But if the token service were silent, obstore's waiting requests would ask it
one after the other, each for its whole time limit. And variables in the environment would override the identity that
the settings name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from tiered_stream import timed_http
from tiered_stream.errors import StorageAccessError, StorageUnavailableError
from tiered_stream.process.caches import PerProcess
from tiered_stream.storage.attempts import FAILURE_HELD, AttemptError, Attempts, FailureKind, RequestTimeouts
from tiered_stream.storage.identity.token_request import AccessToken, TokenRequest

_MAX_BYTES = 1_000_000
_RENEWED_BEFORE = 300
"""A token is replaced this number of seconds before its expiry; obstore asks for another token at the same time."""
_RENEWED_AGAIN = 30.0
"""Seconds until a token that ends soon is requested again, because the service may return the same token, or none."""
_UPDATE_SECONDS = 10.0
"""Seconds to wait after status 410: Azure's metadata service is being updated, which takes at most 70 s."""
_CODE = re.compile(r"[A-Za-z_]{1,60}")
_ENTRA_CODE = re.compile(r"AADSTS\d{1,9}")


class TokenSource:
    """Cache of one identity's access token, for many threads.

    Args:
        fetch: requests and returns a new token, and raises StorageAccessError if there is none.
        now: returns the time in seconds since 1970.
    """

    def __init__(self, fetch: Callable[[], AccessToken], now: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._now = now
        self._lock = Lock()
        self._token: AccessToken | None = None
        self._renew_at = 0.0
        self._failure: tuple[float, StorageAccessError] | None = None

    def __call__(self) -> dict[str, Any]:
        """Return a valid token in the form of obstore's credentials; `token` describes the error."""
        token = self.token()
        return {"token": token.text, "expires_at": datetime.fromtimestamp(token.expires, UTC)}

    def token(self) -> AccessToken:
        """Return a valid token; a new token is requested if the known token is missing, or ends soon.

        Raises:
            StorageAccessError: there is no token. The message names the identity, the service and what to do.
        """
        if (valid := self._valid()) is not None:  # without the lock, which another thread may hold for a whole request
            return valid
        with self._lock:
            if (valid := self._valid()) is not None:
                return valid
            now, known = self._now(), self._token
            self._renew_at = now + _RENEWED_AGAIN
            try:
                if self._failure is not None and now < self._failure[0]:
                    raise self._failure[1]
                self._token = token = self._fetch()
            except StorageAccessError as error:
                if self._failure is None or error is not self._failure[1]:
                    self._failure = self._now() + FAILURE_HELD, error
                if known is None or known.expires <= self._now():
                    raise
                return known
            self._renew_at = max(self._renew_at, token.expires - _RENEWED_BEFORE)
            return token

    def _valid(self) -> AccessToken | None:
        """Return the known token if it is valid and need not be renewed now, else None."""
        known, now = self._token, self._now()
        return known if known is not None and now < min(known.expires, self._renew_at) else None

    def forget(self) -> bool:
        """Forget the token, which the storage has refused, and return whether there was one."""
        with self._lock:
            known, self._token = self._token, None
        return known is not None


_sources: PerProcess[TokenSource] = PerProcess()


def token_source(request: TokenRequest, timeouts: RequestTimeouts) -> TokenSource:
    """Return the process's shared source of the tokens for which `request` asks.

    `timeouts` limits each request for a token in the same way as a GET.
    """
    return _sources.get(
        {"request": request, "timeouts": timeouts}, lambda: TokenSource(lambda: request_token(request, timeouts))
    )


def request_token(request: TokenRequest, timeouts: RequestTimeouts) -> AccessToken:
    """Send the request, with as many attempts as a GET from the storage, and return the token.

    Raises:
        StorageAccessError: there is no token. The message names the identity, the service and what to do.
    """
    urls, form = list(request.urls), dict(request.form)
    if request.secret_file is not None:
        name, path = request.secret_file
        form[name] = _content(path, request)
    host = urlsplit(urls[0]).netloc
    attempts = Attempts(timeouts, lambda name, _: f"{host} could not be reached for {name}")

    def attempt(seconds_left: float) -> AccessToken:
        urls.append(urls.pop(0))
        return _token_of(*_send(urls[-1], request, form, timeouts, seconds_left))

    try:
        return attempts.send(f"an access token of {request.identity} from {host}", attempt)
    except AttemptError as failure:
        why = f"{host} gave {failure}" if failure.kind is FailureKind.OTHER else f"{host} responded with {failure}"
        raise StorageAccessError(f"no access token of {request.identity}: {why}; {request.fix}") from None
    except StorageUnavailableError as error:
        raise StorageAccessError(f"{error}; {request.fix}") from None


def _content(path: str, request: TokenRequest) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no token"
        raise StorageAccessError(
            f"no access token of {request.identity}: its file {path} cannot be read: {why}; {request.fix}"
        ) from None


def _send(
    url: str, request: TokenRequest, form: Mapping[str, str], timeouts: RequestTimeouts, seconds_left: float
) -> tuple[int, bytes]:
    """Send one request to `url`, and return status and body of the response.

    `form` has the fields of a POST; empty: the request is a GET. The response must come within `seconds_left` and the
    time limits in `timeouts`.

    Raises:
        AttemptError: there is no response.
        StorageAccessError: TLS fails, or a URL is malformed, so another attempt would fail, too.
    """
    connect, read = (max(0.001, min(ms / 1000, seconds_left)) for ms in (timeouts.connect_ms, timeouts.read_ms))
    proxy = timed_http.environment_proxy(url) if request.proxied else None
    tls = timed_http.system_tls() if "https:" in (url[:6], (proxy or "")[:6]) else None
    headers = {"Accept": "application/json", **request.headers}
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        with timed_http.timed_pools(connect, read, tls, proxy=proxy) as pools:
            method, body = ("POST", urlencode(form)) if form else ("GET", None)
            return timed_http.fetch(pools, method, url, _MAX_BYTES, body=body, headers=headers)
    except urllib3.exceptions.ReadTimeoutError:
        raise AttemptError(FailureKind.TIMEOUT) from None
    except urllib3.exceptions.SSLError as error:
        why = untrusted.verify_message if (untrusted := timed_http.untrusted_certificate(error)) else "it is malformed"
        raise StorageAccessError(f"no access token of {request.identity}: TLS of {url} failed: {why}") from None
    except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ProxyError):
        raise AttemptError(FailureKind.UNREACHABLE) from None
    except urllib3.exceptions.ConnectTimeoutError:
        raise AttemptError(FailureKind.CONNECT_TIMEOUT) from None
    except urllib3.exceptions.LocationValueError:  # also a ValueError
        raise StorageAccessError(
            f"no access token of {request.identity}: {url} or its proxy is no URL of http or https: correct the "
            "address, or HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
        ) from None
    except ValueError:
        raise AttemptError(FailureKind.OTHER) from None
    except (urllib3.exceptions.HTTPError, OSError):
        raise AttemptError(FailureKind.BROKEN) from None


def _token_of(status: int, content: bytes) -> AccessToken:
    """Return the token in a response. Raise AttemptError if the response has none."""
    fields = timed_http.json_object(content) or {}
    if status != 200:
        wait = _UPDATE_SECONDS if status == 410 else 0
        raise AttemptError(FailureKind.STATUS, status, _error_code(fields), retry_after=wait)
    text, now = fields.get("access_token"), time.time()
    try:
        expires = float(fields["expires_on"]) if "expires_on" in fields else now + float(fields["expires_in"])
        datetime.fromtimestamp(expires, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        raise AttemptError(FailureKind.OTHER) from None
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise AttemptError(FailureKind.OTHER)
    return AccessToken(text, expires)


def _error_code(fields: Mapping[str, Any]) -> str:
    """Return the error codes of OAuth and of Microsoft Entra ID in a response's `fields`, without text around them.

    Other text in a response may have secrets.
    """
    code, entra = fields.get("error"), _ENTRA_CODE.search(str(fields.get("error_description", "")))
    codes = [code] if isinstance(code, str) and _CODE.fullmatch(code) else []
    return " ".join([*codes, *([entra[0]] if entra else [])])
