"""versitygw: a folder as an S3 endpoint that does conditional puts, as AWS does. A bucket is a folder in it.

It is a Go program. The pinned version is built once, by `go install`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.rigs.stack.built import built_folder, go_program, missing_program
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.s3_server import S3Server

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
CHECKSUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
"""Checksum of the module, as in `go.sum`. Go checks the dependencies against its checksum database."""


def why_no_versitygw() -> str | None:
    """Return the reason why it cannot run here, or None."""
    return None if built_folder("versitygw", VERSION).exists() else missing_program("go")


def versitygw_executable() -> Path:
    """Return the program, as `go_program`."""
    return go_program("versitygw", MODULE, VERSION, CHECKSUM)


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
            "--keep-alive",  # as S3 does; otherwise each request is one more connection
            "--access", self.access_key, "--secret", self.secret_key,
            "posix", "--sidecar", str(metadata), str(self.base_dir),
        ]  # fmt: skip
