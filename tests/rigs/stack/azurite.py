"""Azurite: Microsoft's own emulator of Azure Blob Storage, a Node.js program of npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import urllib.request
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

from tests.rigs.stack.azure_listing import AzureListingHandler
from tests.rigs.stack.built import built, built_folder, missing_program, run_build
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.http_front import FrontedService

VERSION = "3.35.0"
INTEGRITY = "sha512-GzKmi+/5U0baNRjEEVtBMLpLuIKEJ0uSh0VWBzOI4qe4f5ziJyoZQmcTO7QhxZTF6+rphj7TZS3PtJY7uiiacA=="
"""Of the package, as npm's lock files have it."""
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's well-known account and its key."""
_API_VERSION = "2021-08-06"
_SAS_VERSION = "2020-12-06"


def why_no_azurite() -> str | None:
    """What keeps it from running here; None: nothing does."""
    return None if built_folder("azurite", VERSION).exists() else missing_program("npm")


def _build(folder: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"azurite@{VERSION}"]
    run_build(command, folder)
    installed = json.loads((folder / "package-lock.json").read_text())["packages"]["node_modules/azurite"]
    if installed["integrity"] != INTEGRITY:
        raise StackError(f"azurite {VERSION} is {installed['integrity']}, not {INTEGRITY}: refused")


def azurite_program() -> Path:
    """Return the program, and install it first if the cache lacks it.

    Raises:
        StackError: it could not be installed.
    """
    return built("azurite", VERSION, _build) / "node_modules" / ".bin" / "azurite-blob"


class Azurite(FrontedService):
    """One server behind a front for listings, whose blobs are in `folder`."""

    handler = AzureListingHandler

    def __init__(self, folder: Path, key: str = KEY) -> None:
        super().__init__(folder)
        self.key = key

    @property
    def endpoint(self) -> str:
        """URL of the account."""
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def own_endpoint(self) -> str:
        """URL of the account at the emulator itself, for all but listings."""
        return f"http://127.0.0.1:{self.own_port}/{ACCOUNT}"

    def options(self) -> dict[str, str]:
        """The fields of `StorageOptions` with which a container is read."""
        return {"azure_account_name": ACCOUNT, "azure_account_key": self.key, "azure_endpoint_url": self.endpoint}

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [
            "env", f"AZURITE_ACCOUNTS={ACCOUNT}:{self.key}",
            str(azurite_program()), "--blobHost", "127.0.0.1", "--blobPort", str(self.own_port),
            "--location", str(self.folder), "--silent", "--disableTelemetry", "--skipApiVersionCheck",
        ]  # fmt: skip
        self._serve_behind_front("azurite", command, self.folder / "azurite.log")

    def create_container(self, name: str) -> None:
        """Create a container, by a request that is signed with the account's key (Azure: Shared Key)."""
        date = formatdate(usegmt=True)
        headers = f"x-ms-date:{date}\nx-ms-version:{_API_VERSION}\n"
        no_other_headers = "\n" * 12
        signed = f"PUT{no_other_headers}{headers}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        request = urllib.request.Request(
            f"{self.endpoint}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": _API_VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{self.signature(signed)}",
                "Content-Length": "0",
            },
        )
        urllib.request.urlopen(request).close()

    def read_token(self, container: str) -> str:
        """A shared access signature that grants reading and listing one container for an hour (Azure: service SAS)."""
        expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = ["rl", "", expiry, f"/blob/{ACCOUNT}/{container}", "", "", "", _SAS_VERSION, "c"]
        signed = "\n".join([*fields, *[""] * 7])
        named = {"sp": "rl", "se": expiry, "sv": _SAS_VERSION, "sr": "c", "sig": self.signature(signed)}
        return urlencode(named)

    def signature(self, text: str) -> str:
        """Return the signature of a text by the account's key."""
        return base64.b64encode(hmac.digest(base64.b64decode(self.key), text.encode(), hashlib.sha256)).decode()
