"""S3Proxy: a folder as an S3 endpoint with signatures, ranges and presigned URLs. A bucket is a folder in it."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from tests.stack.jars import CONF, jar_paths
from tests.stack.java import java_command
from tests.stack.processes import ServiceProcess, free_ports
from tests.stack.s3_client import answers, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class S3Proxy:
    """One endpoint; it keeps its port over `stop` and `start`."""

    def __init__(self, folder: Path, base_dir: Path, access_key: str = "local-user", secret_key: str = "local-secret"):
        self.folder = folder
        self.base_dir = base_dir
        self.access_key = access_key
        self.secret_key = secret_key
        (self.port,) = free_ports(1)
        self._process: ServiceProcess | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers a ListBuckets request."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.base_dir.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "s3proxy.properties"
        template = Template((CONF / "s3proxy.properties").read_text())
        properties.write_text(
            template.substitute(
                port=self.port, access_key=self.access_key, secret_key=self.secret_key, base_dir=self.base_dir
            )
        )
        command = java_command(
            "org.gaul.s3proxy.Main",
            [CONF, *jar_paths("s3")],
            ["--properties", str(properties)],
            ["-Xmx300m", "-Djava.awt.headless=true"],
        )
        self._process = ServiceProcess("S3Proxy", command, self.folder / "s3proxy.log")
        self._process.start(lambda: answers(self.client))

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(grace=10.0)

    def client(self) -> S3Client:
        """A boto3 client with the endpoint's credentials."""
        return s3_client(self.endpoint, self.access_key, self.secret_key)
