"""fake-gcs-server: Google Cloud Storage, in memory.

It is a Go program. The pinned version is built once, by `go install`. It asks nobody for credentials. Uploads by the
XML API are translated in front of it (`gcs_xml.py`).
"""

from __future__ import annotations

import json
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.rigs.stack.built import GoProgram
from tests.rigs.stack.gcs_xml import GcsXmlHandler
from tests.rigs.stack.http_front import FrontedService

PROGRAM = GoProgram(
    "fake-gcs-server",
    "github.com/fsouza/fake-gcs-server",
    "v1.56.1",
    "h1:K03sAvbLvDz4hAynpCCUqnNRp+ik9JFSvHbkD/wTPOU=",
)
why_no_fake_gcs, fake_gcs_executable = PROGRAM.why_not, PROGRAM.executable


def key_without_token(endpoint: str) -> str:
    """The key of a service account, as JSON, for a server at this URL that asks for no token."""
    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({"gcs_base_url": endpoint, "disable_oauth": True, **nobody})


class FakeGcs(FrontedService):
    """One server behind a front for the XML API; its log is in `folder`."""

    handler = GcsXmlHandler

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def own_endpoint(self) -> str:
        """URL of the emulator itself, for all but uploads by the XML API."""
        return f"http://127.0.0.1:{self.own_port}"

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
            "-host", "127.0.0.1", "-port", str(self.own_port), "-public-host", f"127.0.0.1:{self.own_port}",
            "-backend", "memory",
        ]  # fmt: skip
        self._serve_behind_front("fake-gcs-server", command, self.folder / "fake-gcs-server.log")

    def create_bucket(self, name: str) -> None:
        self._post("storage/v1/b?project=any", json.dumps({"name": name}).encode(), "application/json")

    def upload(self, bucket: str, key: str, data: bytes) -> None:
        """Write an object, by the JSON API."""
        query = urlencode({"uploadType": "media", "name": key})
        self._post(f"upload/storage/v1/b/{bucket}/o?{query}", data, "application/octet-stream")

    def _post(self, path: str, data: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        urlopen(Request(f"{self.endpoint}/{path}", data, headers, method="POST")).close()
