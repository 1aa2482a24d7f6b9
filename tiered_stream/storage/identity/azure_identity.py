"""Identity with which requests to Azure Blob Storage are authorized, as settings for obstore and for deltalake.

obstore and deltalake are built on versions of the Rust crate `object_store`. Each of them reads many environment
variables by itself, and mixes them with given settings in its own way. So both get explicit values, which override the
environment. Where no value can override a variable, the variable is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StoreAccess
from tiered_stream.storage.identity.token_request import TokenRequest

_AUTHORITY = "https://login.microsoftonline.com"
_MACHINE = "http://169.254.169.254/metadata/identity/oauth2/token"
_RESOURCE = "https://storage.azure.com"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
NO_PROXY_FOR_ANY = "*,0.0.0.0/0,::/0"
"""Value of deltalake's setting `proxy_excludes`, by which it ignores proxies in variables only `object_store` reads."""


class Kind(StrEnum):
    """Kind of an identity; the values are `object_store`'s values of `credential_type`."""

    KEY = "access_key"
    SIGNATURE = "sas_token"
    SECRET = "client_secret"  # noqa: S105
    WORKLOAD = "workload_identity"
    MACHINE = "managed_identity"
    TOKEN = "bearer_token"  # noqa: S105
    COMMAND = "azure_cli"
    FABRIC = "auto"


_WORDS = {
    Kind.KEY: "the account key",
    Kind.SIGNATURE: "the shared access signature",
    Kind.SECRET: "the service principal",
    Kind.WORKLOAD: "the workload identity",
    Kind.MACHINE: "the managed identity",
    Kind.TOKEN: "the token AZURE_STORAGE_TOKEN",
    Kind.COMMAND: "the user of the command az",
}
_KEY_VARIABLES = tuple(f"AZURE_STORAGE_{name}_KEY" for name in ("ACCOUNT", "ACCESS", "MASTER"))
_FABRIC_VARIABLES = tuple(
    f"AZURE_FABRIC_{name}" for name in ("TOKEN_SERVICE_URL", "WORKLOAD_HOST", "SESSION_TOKEN", "CLUSTER_IDENTIFIER")
)
_VARIABLES = {
    "access_key": _KEY_VARIABLES,
    "bearer_token": ("AZURE_STORAGE_TOKEN",),
    "sas_key": ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    "client_id": ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
    "client_secret": ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
    "tenant_id": ("AZURE_STORAGE_TENANT_ID", "AZURE_STORAGE_AUTHORITY_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_ID"),
    "authority_host": ("AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST"),
    "federated_token_file": ("AZURE_FEDERATED_TOKEN_FILE",),
    "msi_endpoint": ("AZURE_MSI_ENDPOINT", "AZURE_IDENTITY_ENDPOINT", "IDENTITY_ENDPOINT"),
    "object_id": ("AZURE_OBJECT_ID",),
    "msi_resource_id": ("AZURE_MSI_RESOURCE_ID",),
    "use_azure_cli": ("AZURE_USE_AZURE_CLI",),
}
"""Environment variables of Azure's chain of credentials, by the setting of `object_store` that they give.

If several variables of a setting have a value, the first counts.
"""
_CHAIN: tuple[tuple[Kind, tuple[str, ...], tuple[str, ...]], ...] = (
    (Kind.TOKEN, ("bearer_token",), ()),
    (Kind.KEY, ("access_key",), ()),
    (Kind.WORKLOAD, ("client_id", "tenant_id", "federated_token_file"), ("authority_host",)),
    (Kind.SECRET, ("client_id", "client_secret", "tenant_id"), ("authority_host",)),
    (Kind.SIGNATURE, ("sas_key",), ()),
    (Kind.COMMAND, ("use_azure_cli",), ()),
    (Kind.MACHINE, (), ("client_id", "object_id", "msi_resource_id", "msi_endpoint")),
)
"""Azure's chain: each kind of identity, with the settings that it needs and the settings that it may have.

The first kind with all settings that it needs is chosen.
"""


@dataclass(frozen=True, slots=True)
class AzureIdentity:
    """Identity that authorizes requests to one container. `settings` are settings of `object_store`, by name.

    `is_named` is true if the settings of the user or of Spark's session name the identity. It is false if the
    environment of this process names it (Azure's own chain of credentials).
    """

    kind: Kind
    settings: Mapping[str, str] = field(repr=False)
    is_named: bool = True

    def for_obstore(self) -> dict[str, str]:
        """Return obstore's settings for this identity, which override environment variables.

        If `token_request` returns a request, obstore also needs a `TokenSource` for this request.

        Raises:
            ConfigurationError: an environment variable would change requests, and no setting overrides it.
        """
        if "AZURE_STORAGE_ENCRYPTION_KEY" in os.environ:
            raise ConfigurationError(
                "the environment variable AZURE_STORAGE_ENCRYPTION_KEY is set, by which the library of the tasks would "
                "encrypt objects with a key that Spark and brokers do not have: remove it from the environment of the "
                "driver and of the executors"
            )
        own = {} if self.kind in (Kind.SECRET, Kind.WORKLOAD, Kind.MACHINE) else self.settings
        return {**own, "credential_type": self.kind, "use_emulator": "false", "skip_signature": "false"}

    def for_deltalake(self) -> dict[str, str]:
        """Return deltalake's settings for this identity, which override environment variables.

        Raises:
            ConfigurationError: an environment variable would replace the identity (`why_not_deltalake`).
        """
        if (why := self.why_not_deltalake()) is not None:
            raise ConfigurationError(f"{why}: remove it from the driver's environment")
        return {
            # With this name among the settings, deltalake adds no other credentials from the environment.
            "use_azure_cli": "false", **self.settings, "use_emulator": "false", "skip_signature": "false",
            "allow_invalid_certificates": "false", "proxy_excludes": NO_PROXY_FOR_ANY,
        }  # fmt: skip

    def why_not_deltalake(self) -> str | None:
        """Return the reason why deltalake cannot use this identity: an environment variable is set; None: it can."""
        found = next(filter(os.environ.__contains__, _KEY_VARIABLES), None)  # an empty value would count, too
        if self.kind is not Kind.FABRIC and all(map(os.environ.__contains__, _FABRIC_VARIABLES)):
            found = _FABRIC_VARIABLES[0]
        elif self.kind in (Kind.KEY, Kind.TOKEN, Kind.FABRIC) or found is None:
            return None
        return (
            f"the environment variable {found} is set, which deltalake would use in place of {_WORDS[self.kind]} "
            "of the settings"
        )

    def token_request(self) -> TokenRequest | None:
        """Return the request for this identity's access tokens.

        The result is None if the identity needs no token, or if obstore requests its tokens itself.
        """
        if self.kind is Kind.MACHINE:
            return self._machine_request()
        if self.kind not in (Kind.SECRET, Kind.WORKLOAD):
            return None
        client, tenant, authority = (self.settings[name] for name in ("client_id", "tenant_id", "authority_host"))
        form = {"client_id": client, "scope": f"{_RESOURCE}/.default", "grant_type": "client_credentials"}
        is_secret = self.kind is Kind.SECRET
        file = None if is_secret else ("client_assertion", self.settings["federated_token_file"])
        fix = (
            "correct its client id, client secret and tenant" if is_secret else
            "correct its client id and tenant, give the pod its service account and the label "
            "azure.workload.identity/use, and the application a federated credential for this service account"
        )  # fmt: skip
        return TokenRequest(
            f"{_WORDS[self.kind]} {client} (tenant {tenant})",
            (f"{authority}/{tenant}/oauth2/v2.0/token",),
            fix,
            form=form | ({"client_secret": self.settings["client_secret"]} if is_secret
                         else {"client_assertion_type": _ASSERTION}),
            secret_file=file,
        )  # fmt: skip

    def _machine_request(self) -> TokenRequest:
        query = {"api-version": "2019-08-01", "resource": _RESOURCE}
        names = {"msi_resource_id": "msi_res_id", "object_id": "object_id", "client_id": "client_id"}
        chosen = next(((names[name], self.settings[name]) for name in names if name in self.settings), None)
        header = os.environ.get("IDENTITY_HEADER") if self.settings["msi_endpoint"] != _MACHINE else None
        return TokenRequest(
            f"{_WORDS[self.kind]} {chosen[1] if chosen else 'of the machine'}",
            (f"{self.settings['msi_endpoint']}?{urlencode(query | dict([chosen] if chosen else []))}",),
            "assign the identity to the machine or pod, name another one by its client id, or choose other credentials",
            headers={"Metadata": "true", **({"X-IDENTITY-HEADER": header} if header else {})},
            proxied=False,
        )


def azure_identity(options: StoreAccess, key: str | None, signature: str | None) -> AzureIdentity:
    """Return the identity that the settings name; if they name none, Azure's own chain of credentials finds it.

    An account key takes precedence over a shared access signature, and both over credentials of Microsoft Entra ID.

    Args:
        options: settings with credentials of Microsoft Entra ID.
        key: the account key, or None.
        signature: the shared access signature, or None.
    """
    if key:
        return AzureIdentity(Kind.KEY, {"access_key": key})
    if signature:
        return AzureIdentity(Kind.SIGNATURE, {"sas_key": signature.removeprefix("?")})
    given = {
        "client_id": options.azure_client_id,
        "tenant_id": options.azure_tenant_id,
        "authority_host": options.azure_authority_url,
    }
    client: dict[str, Any] = {**given, "authority_host": (options.azure_authority_url or _AUTHORITY).rstrip("/")}
    if options.azure_managed_identity:
        named = {"client_id": options.azure_client_id} if options.azure_client_id else {}
        return AzureIdentity(Kind.MACHINE, {**named, "msi_endpoint": _MACHINE})
    if options.azure_client_secret:
        return AzureIdentity(Kind.SECRET, {**client, "client_secret": options.azure_client_secret})
    if options.azure_token_file:
        return AzureIdentity(Kind.WORKLOAD, {**client, "federated_token_file": options.azure_token_file})
    return _of_environment({name: value for name, value in given.items() if value})


def _of_environment(given: Mapping[str, str]) -> AzureIdentity:
    """Return the identity of Azure's own chain of credentials, from the environment of this process.

    `given` has settings without a secret (client id, tenant and authority). They override the environment.
    """
    if all(map(os.environ.get, _FABRIC_VARIABLES)):
        return AzureIdentity(Kind.FABRIC, {}, is_named=False)
    found = {name: next(filter(None, map(os.environ.get, names)), "") for name, names in _VARIABLES.items()}
    found |= given
    authority = (found["authority_host"] or _AUTHORITY).rstrip("/")
    found["authority_host"] = authority if "://" in authority else f"https://{authority}"
    found["msi_endpoint"] = found["msi_endpoint"] or _MACHINE
    if found["use_azure_cli"].lower() not in ("1", "true", "yes", "on", "y"):  # as `object_store` parses it
        found["use_azure_cli"] = ""
    kind, needed, others = next(link for link in _CHAIN if all(found[name] for name in link[1]))
    return AzureIdentity(kind, {name: found[name] for name in (*needed, *others) if found[name]}, is_named=False)
