"""Sessions of Spark that reach each cloud by its Hadoop connector, with the identity of each origin.

Sources: hadoop-aws' `S3AFileSystem`, hadoop-azure's `abfs.md`, and `CONFIGURATION.md` of gcs-connector 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from tests.rigs.cloud.azure import TENANT
from tests.rigs.cloud.origins import Given
from tests.rigs.stack.azurite import ACCOUNT
from tiered_stream.delta.catalog.session_checks import GS_SETTINGS

REGION = "eu-west-1"
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."
_SECRET, _FILE = "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"
_GOOGLES_AUTHORITIES = "com/google/cloud/hadoop/repackaged/gcs/com/google/api/client/googleapis/google.p12"
_APPLICATION = "GOOGLE_APPLICATION_CREDENTIALS"


@dataclass(frozen=True)
class Session:
    """Groups of jars, Spark's settings and the driver's environment."""

    groups: tuple[str, ...]
    settings: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)


def in_s3(given: Given, _: Path) -> Session:
    keys = given.settings
    credentials = {"aws.credentials.provider": _DEFAULT_CHAIN} if "access_key_id" not in keys else {
        "access.key": keys["access_key_id"], "secret.key": keys["secret_access_key"],
    }  # fmt: skip
    return _session("s3a", "s3a", {**credentials, "endpoint.region": REGION}, given.environment)


def in_azure(given: Given, _: Path) -> Session:
    """Return a session that uses the account's blob service, because Azurite has no other."""
    account = f"{ACCOUNT}.dfs.core.windows.net"
    service = {"account.hns.enabled": "false", "fns.account.service.type": "BLOB"}
    credentials = {f"{name}.{account}": value for name, value in _azure_credentials(given).items()}
    return _session("abfs", "azure", {**service, **credentials}, given.environment)


def _azure_credentials(given: Given) -> Mapping[str, str]:
    if signature := given.settings.get("azure_sas_token"):
        return {"account.auth.type": "SAS", "sas.fixed.token": signature}
    if text := given.settings.get("azure_connection_string"):
        return {"account.key": dict(part.split("=", 1) for part in text.split(";"))["AccountKey"]}
    if key := given.settings.get("azure_account_key"):
        return {"account.key": key}
    variables, client = given.environment, {"id": given.environment.get("AZURE_CLIENT_ID", "")}
    authority = "https://login.microsoftonline.com/"
    if _SECRET in variables:
        endpoint = f"{authority}{TENANT}/oauth2/v2.0/token"
        provider, own = "ClientCreds", client | {"endpoint": endpoint, "secret": variables[_SECRET]}
        properties = {f"client.{name}": value for name, value in own.items()}
    elif _FILE in variables:
        provider = "WorkloadIdentity"
        properties = {"client.id": client["id"], "msi.tenant": TENANT, "token.file": variables[_FILE]}
        properties["msi.authority"] = authority
    else:
        provider, properties = "Msi", {}
    named = {f"account.oauth2.{name}": value for name, value in properties.items()}
    return {"account.auth.type": "OAuth", "account.oauth.provider.type": f"{_OAUTH}{provider}TokenProvider", **named}


def in_google(given: Given, folder: Path) -> Session:
    """Return a session with Google's own connector.

    It trusts the authorities in its jar alone, so a folder before the jar has the namespaces' authority.
    """
    path, environment = given.settings.get("gcs_credentials_path", ""), dict(given.environment)
    if path.endswith("key.json"):
        credentials = {"auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "auth.service.account.json.keyfile": path}
    elif path or _APPLICATION in environment:
        credentials = {"auth.type": "APPLICATION_DEFAULT"}
        environment.setdefault(_APPLICATION, path)
    else:
        credentials = {"auth.type": "COMPUTE_ENGINE"}
    trusted = folder / "classes" / _GOOGLES_AUTHORITIES
    trusted.parent.mkdir(parents=True, exist_ok=True)
    authority = x509.load_pem_x509_certificate(Path(certifi.where()).read_bytes())
    entries = [pkcs12.PKCS12Certificate(authority, b"authority")]
    trusted.write_bytes(pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(b"notasecret")))
    session = _session("gcs", "gs", {"project.id": "project", **credentials}, environment)
    own = {f"spark.hadoop.{name}": value for name, value in GS_SETTINGS.items()}
    return replace(
        session, settings={**session.settings, **own, "spark.driver.extraClassPath": str(folder / "classes")}
    )


def _session(group: str, prefix: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> Session:
    named = {f"spark.hadoop.fs.{prefix}.{name}": value for name, value in settings.items()}
    return Session(("delta", "spark-kafka", group), named, environment)
