"""versitygw: a folder as an S3 endpoint that does conditional puts, as AWS does. A bucket is a folder in it.

It is a Go program. The pinned version is built once, by `go install`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.rigs.stack.built import GoProgram
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.s3_server import S3Server

PROGRAM = GoProgram(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw",
    "v1.8.0",
    "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=",
)
why_no_versitygw, versitygw_executable = PROGRAM.why_not, PROGRAM.executable


class VersityGateway(S3Server):
    """See `S3Server`."""

    name = "versitygw"

    def command(self) -> Sequence[str]:
        metadata = self.folder / "metadata"  # in files: not every file system has extended attributes
        metadata.mkdir(exist_ok=True)
        return [
            str(versitygw_executable()), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet",
            "--keep-alive",  # as S3 does; otherwise each request is one more connection
            "--access", self.access_key, "--secret", self.secret_key,
            "posix", "--sidecar", str(metadata), str(self.base_dir),
        ]  # fmt: skip
