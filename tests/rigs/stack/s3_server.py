"""Base of the stack's S3 servers: an endpoint over a folder, in which each bucket is a folder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs.stack.processes import Service, free_ports
from tests.rigs.stack.s3_client import REGION, answers, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class S3Server(Service):
    """One endpoint over `base_dir`; it keeps its port over `stop` and `start`. Its log is in `folder`."""

    name: str

    def __init__(
        self, folder: Path, base_dir: Path, access_key: str = "lake-user", secret_key: str = "lake-secret"
    ) -> None:
        self.folder = folder
        self.base_dir = base_dir
        self.access_key = access_key
        self.secret_key = secret_key
        (self.port,) = free_ports(1)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that runs it; both folders exist."""

    def start(self) -> None:
        """Start it and wait for its response to a ListBuckets request."""
        for each in (self.folder, self.base_dir):
            each.mkdir(parents=True, exist_ok=True)
        self._serve(self.name, self.command(), self.folder / f"{self.name.lower()}.log", lambda: answers(self.client))

    def options(self) -> dict[str, str]:
        """The options with which `tiered_stream` reads a bucket of this server."""
        return {
            "remote.storage.s3.endpoint.url": self.endpoint,
            "remote.storage.s3.region": REGION,
            "remote.storage.s3.path.style.access.enabled": "true",
            "remote.storage.aws.access.key.id": self.access_key,
            "remote.storage.aws.secret.access.key": self.secret_key,
        }

    def client(self) -> S3Client:
        """A boto3 client with the endpoint's credentials."""
        return s3_client(self.endpoint, self.access_key, self.secret_key)
