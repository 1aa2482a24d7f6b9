"""Access tokens of cloud identities, and the requests for them."""

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
    """Request to a token service for an access token.

    Args:
        identity: name of the identity, for errors.
        urls: URLs of the service; each attempt takes the next one.
        fix: advice in errors, such as which settings to correct.
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
