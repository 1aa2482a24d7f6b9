"""Azure at its own host names, in the namespaces of `namespace.py`: one storage account, and who may read it.

    azure.create_container("lake")
    azure.applications["app"] = "secret"

Azurite, which no test asks, checks account keys and shared access signatures. Tokens are checked here.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from tests.rigs.cloud.front import METADATA, PUBLIC, Answer, Cloud, RefusedError, Request, json_answer
from tests.rigs.stack.azurite import ACCOUNT, Azurite

TENANT = "11111111-2222-3333-4444-555555555555"
STORAGE = "https://storage.azure.com"
APP_SERVICE, _APP_ADDRESS = "http://127.0.0.1/msi/token", "127.0.0.1"
_AUTHORITIES = {
    "core.windows.net": "login.microsoftonline.com",
    "core.usgovcloudapi.net": "login.microsoftonline.us",
    "core.chinacloudapi.cn": "login.chinacloudapi.cn",
}
"""Hosts of Microsoft Entra ID by the storage domain: https://learn.microsoft.com/entra/identity-platform/authentication-national-cloud."""
_VERSION = "2020-12-06"


@dataclass(frozen=True)
class Token:
    """An access token of an identity such as `app` for the resource `audience`."""

    identity: str
    audience: str
    expires: float


class Azure(Cloud):
    """State of Azure: everything that a test changes is gone after `reset`, except containers."""

    def __init__(self, folder: Path) -> None:
        self._azurite = Azurite(folder)
        self._azurite.start()
        self.backend_port = self._azurite.port
        self.key = self._azurite.key
        self.create_container = self._azurite.create_container
        super().__init__()

    def stop(self) -> None:
        self._azurite.stop()

    def reset(self) -> None:
        super().reset()
        self.domain = "core.windows.net"
        """Domain of the storage accounts in the public cloud, or in a national cloud."""
        self.applications: dict[str, str] = {}
        """Secrets of applications of the tenant, by their ids."""
        self.assertions: dict[str, str] = {}
        """Ids of applications by the tokens of service accounts of AKS that stand for them."""
        self.managed: list[str] = []
        """Client ids of the managed identities of the machine; the first one is the default."""
        self.app_header = ""
        """Header that requests of an app to App Service must have; empty: there is no app."""
        self.tokens: dict[str, Token] = {}

    @property
    def host(self) -> str:
        return f"{ACCOUNT}.blob.{self.domain}"

    @property
    def authority(self) -> str:
        return _AUTHORITIES[self.domain]

    def address_of(self, host: str) -> str | None:
        """An account has a name, so another account's host has no address."""
        return PUBLIC if host in (self.host, self.host.replace(".blob.", ".dfs."), self.authority) else None

    def certificate_names(self, host: str) -> tuple[str, ...]:
        return (host,) if host == self.authority else (f"*.{host.partition('.')[2]}",)

    def answer(self, request: Request, seen: dict[str, str]) -> Answer:
        if request.address in (METADATA, _APP_ADDRESS):
            return self._metadata(request)
        if request.host == self.authority:
            return self._login(request, seen)
        if request.host != self.host:
            raise RefusedError(400, "EndpointUnsupportedAccountFeatures", "The account has no hierarchical namespace.")
        headers = {name: value for name, value in request.headers.items() if name != "authorization"}
        query, scheme = request.query, request.headers.get("authorization", "").partition(" ")[0]
        if scheme == "Bearer":
            seen["identity"] = self._identity(request)
            query = "&".join(filter(None, (query, self.full_access())))
        elif scheme == "SharedKey":
            seen["identity"], headers = "account key", dict(request.headers)
        elif "sig" in request.parameters():
            seen["identity"] = "shared access signature"
        return request.forwarded(request.path, query, headers)

    def refusal(self, request: Request, refused: RefusedError) -> bytes:
        if request.host == self.host:
            return super().refusal(request, refused)
        return json.dumps({"error": refused.code, "error_description": refused.elements["Message"]}).encode()

    def _identity(self, request: Request) -> str:
        """Return whose token a request has.

        https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory

        Raises:
            RefusedError: the token is unknown, has expired, is for another service, or its owner has no role.
        """
        challenge = {"WWW-Authenticate": f"Bearer authorization_uri=https://{self.authority}/{TENANT}/oauth2/authorize"}
        token = self.tokens.get(request.headers["authorization"].partition(" ")[2])
        if token is None or token.expires < time.time() or token.audience.rstrip("/") != STORAGE:
            message = "Server failed to authenticate the request. Please refer to the www-authenticate header."
            raise RefusedError(401, "InvalidAuthenticationInfo", message, challenge)
        if request.headers.get("x-ms-version", "") < "2017-11-09":
            raise RefusedError(403, "AuthenticationFailed", "The version must be 2017-11-09 or later for a token.")
        if token.identity in self.without_role:
            message = "This request is not authorized to perform this operation using this permission."
            raise RefusedError(403, "AuthorizationPermissionMismatch", message)
        return token.identity

    def full_access(self) -> str:
        """Return a shared access signature for all of the account, with which Azurite takes what was checked here."""
        expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = {"sp": "rwdlacupx", "ss": "b", "srt": "sco", "st": "", "se": expiry, "sip": "", "spr": ""}
        signed = "\n".join((ACCOUNT, *fields.values(), _VERSION, "", ""))
        given = {name: value for name, value in fields.items() if value} | {"sv": _VERSION}
        return urlencode(given | {"sig": self._azurite.signature(signed)})

    def _login(self, request: Request, seen: dict[str, str]) -> Answer:
        """Answer as Microsoft Entra ID to the grant of client credentials.

        https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
        """
        given = dict(parse_qsl(request.body.decode()))
        client = given.get("client_id", "")
        tenant, _, service = request.path.lstrip("/").partition("/")
        if (tenant, service) != (TENANT, "oauth2/v2.0/token"):
            raise RefusedError(400, "invalid_request", f"AADSTS90002: Tenant '{tenant}' not found.")
        if client not in self.applications:
            raise RefusedError(400, "unauthorized_client", f"AADSTS700016: Application '{client}' was not found.")
        assertion = given.get("client_assertion")
        if assertion is not None and self.assertions.get(assertion) != client:
            raise RefusedError(401, "invalid_client", "AADSTS700211: No matching federated identity record found.")
        if assertion is None and given.get("client_secret") != self.applications[client]:
            raise RefusedError(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
        seen["identity"] = client
        token = self._issued(client, given.get("scope", "").removesuffix("/.default"))
        return json_answer({"token_type": "Bearer", "expires_in": self.lifetime, "access_token": token})

    def _metadata(self, request: Request) -> Answer:
        """Answer as the metadata service, or App Service, to a request for a token of a managed identity.

        https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
        https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
        """
        is_app = request.address == _APP_ADDRESS
        if is_app and request.headers.get("x-identity-header") != (self.app_header or None):
            raise RefusedError(401, "invalid_request", "The header X-IDENTITY-HEADER is missing or wrong")
        if self.metadata_status is not None or (self.app_header and not is_app):  # apps do not reach the machine's
            return self.metadata_status or 0, {}, b""
        given = request.parameters()
        if (
            (not is_app and request.headers.get("metadata") != "true")
            or "api-version" not in given
            or "resource" not in given
        ):
            raise RefusedError(400, "invalid_request", "Required metadata header not specified")
        client = given.get("client_id") or next(iter(self.managed), "")
        if client not in self.managed:
            raise RefusedError(400, "invalid_request", "Identity not found")
        token, ends = self._issued(client, given["resource"]), str(int(time.time() + self.lifetime))
        named = {"access_token": token, "client_id": client, "expires_in": str(self.lifetime), "expires_on": ends}
        return json_answer({**named, "resource": given["resource"], "token_type": "Bearer"})

    def _issued(self, identity: str, audience: str) -> str:
        token = secrets.token_urlsafe(40)
        self.tokens[token] = Token(identity, audience, time.time() + self.lifetime)
        return token
