"""versitygw: a folder as an S3 endpoint that does conditional puts, as AWS does. A bucket is a folder in it.

It is a Go program. The pinned version is built once, by `go install`, into the cache in which the jars lie.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.stack.errors import StackError
from tests.stack.jars import cache_dir
from tests.stack.s3_client import REGION
from tests.stack.s3_server import S3Server

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
"""Whose checksum Go's public checksum database holds."""


def why_no_versitygw() -> str | None:
    """What keeps it from running here; None: nothing does."""
    if _executable().exists() or shutil.which("go"):
        return None
    return f"versitygw has to be built, and there is no go on PATH: install Go, or put it at {_executable()}"


def versitygw_executable() -> Path:
    """The program, built first where the cache lacks it.

    Raises:
        StackError: it could not be built.
    """
    if not _executable().exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with open(cache_dir() / "versitygw.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _executable().exists():  # another process may have built it meanwhile
                _build()
    return _executable()


def _executable() -> Path:
    return cache_dir() / "versitygw" / VERSION / "versitygw"


def _build() -> None:
    with tempfile.TemporaryDirectory(prefix="versitygw-", dir=cache_dir()) as folder:
        done = subprocess.run(
            ["go", "install", "-buildvcs=false", f"{MODULE}@{VERSION}"],
            env={**os.environ, "GOBIN": folder}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise StackError(f"versitygw {VERSION} could not be built:\n{done.stderr[-3000:]}")
        _executable().parent.mkdir(parents=True, exist_ok=True)
        Path(folder, "versitygw").replace(_executable())


class VersityGateway(S3Server):
    """See `S3Server`."""

    name = "versitygw"

    def __init__(
        self, folder: Path, base_dir: Path, access_key: str = "lake-user", secret_key: str = "lake-secret"
    ) -> None:
        super().__init__(folder, base_dir, access_key, secret_key)

    def command(self) -> Sequence[str]:
        metadata = self.folder / "metadata"  # in files: not every file system has extended attributes
        metadata.mkdir(exist_ok=True)
        return [
            str(versitygw_executable()), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet",
            "--access", self.access_key, "--secret", self.secret_key,
            "posix", "--sidecar", str(metadata), str(self.base_dir),
        ]  # fmt: skip
