"""fake-gcs-server: Google Cloud Storage, in memory.

It is a Go program. The pinned version is built once, by `go install`. It asks nobody for credentials. Uploads by the
XML API are translated in front of it (`gcs_xml.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.rigs.stack.built import built_folder, go_program, missing_program
from tests.rigs.stack.gcs_xml import GcsXmlHandler
from tests.rigs.stack.http_front import HttpFront
from tests.rigs.stack.processes import Service, free_ports, listens

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
CHECKSUM = "h1:K03sAvbLvDz4hAynpCCUqnNRp+ik9JFSvHbkD/wTPOU="
"""Of the module, as `go.sum` has it; its dependencies are checked against the checksum database of Go."""


def why_no_fake_gcs() -> str | None:
    """What keeps it from running here; None: nothing does."""
    return None if built_folder("fake-gcs-server", VERSION).exists() else missing_program("go")


def fake_gcs_executable() -> Path:
    """Return the program, as `go_program`."""
    return go_program("fake-gcs-server", MODULE, VERSION, CHECKSUM)


def key_without_token(endpoint: str) -> str:
    """The key of a service account, as JSON, for a server at this URL that asks for no token."""
    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({"gcs_base_url": endpoint, "disable_oauth": True, **nobody})


class FakeGcs(Service):
    """One server behind a front for the XML API; its log is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._json_port = free_ports(2)
        self._front: HttpFront | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def own_endpoint(self) -> str:
        """URL of the emulator itself, for all but uploads by the XML API."""
        return f"http://127.0.0.1:{self._json_port}"

    @property
    def credentials(self) -> str:
        """The key of a service account that needs no token."""
        return key_without_token(self.endpoint)

    def options(self) -> dict[str, str]:
        """The fields of `StorageOptions` with which a bucket is read."""
        return {"gcs_credentials_json": self.credentials, "gcs_endpoint_url": self.endpoint}

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [
            str(fake_gcs_executable()), "-scheme", "http",
            "-host", "127.0.0.1", "-port", str(self._json_port), "-public-host", f"127.0.0.1:{self._json_port}",
            "-backend", "memory",
        ]  # fmt: skip
        self._serve("fake-gcs-server", command, self.folder / "fake-gcs-server.log", lambda: listens(self._json_port))
        self._front = HttpFront(self.port, self._json_port, GcsXmlHandler)
        self._front.start()

    def stop(self) -> None:
        if self._front is not None:
            self._front.stop()
        super().stop()

    def create_bucket(self, name: str) -> None:
        self._post("storage/v1/b?project=any", json.dumps({"name": name}).encode(), "application/json")

    def upload(self, bucket: str, key: str, data: bytes) -> None:
        """Write an object, by the JSON API."""
        query = urlencode({"uploadType": "media", "name": key})
        self._post(f"upload/storage/v1/b/{bucket}/o?{query}", data, "application/octet-stream")

    def _post(self, path: str, data: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        urlopen(Request(f"{self.endpoint}/{path}", data, headers, method="POST")).close()
