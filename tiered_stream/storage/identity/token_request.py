"""Requests for access tokens, and the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Bearer token, and the time in seconds since 1970 at which it expires."""

    text: str = field(repr=False)
    expires: float


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Request for an access token to a token service.

    Args:
        identity: the identity in words, for errors.
        urls: URLs of the service; each attempt takes the next one.
        fix: advice for a refused request.
        headers: headers of the request.
        form: fields of a form, for a POST; empty: the request is a GET.
        secret_file: name of a field of the form, and path of the file whose content is the field's value.
        proxied: true if the request uses a proxy that the environment names.
    """

    identity: str
    urls: tuple[str, ...]
    fix: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_file: tuple[str, str] | None = None
    proxied: bool = True
