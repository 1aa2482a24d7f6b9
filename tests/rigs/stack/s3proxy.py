"""S3Proxy: a folder as an S3 endpoint with signatures, ranges and presigned URLs. A bucket is a folder in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template

from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import SHORT_LIVED_JVM, java_command
from tests.rigs.stack.s3_server import S3Server


class S3Proxy(S3Server):
    """See `S3Server`.

    Args:
        jvm_options: options of the JVM.
    """

    name = "S3Proxy"

    def __init__(self, folder: Path, base_dir: Path, jvm_options: Sequence[str] = SHORT_LIVED_JVM) -> None:
        super().__init__(folder, base_dir)
        self._jvm_options = jvm_options

    def command(self) -> Sequence[str]:
        properties = self.folder / "s3proxy.properties"
        template = Template((CONF / "s3proxy.properties").read_text())
        properties.write_text(
            template.substitute(
                port=self.port, access_key=self.access_key, secret_key=self.secret_key, base_dir=self.base_dir
            )
        )
        return java_command(
            "org.gaul.s3proxy.Main",
            [CONF, *jar_paths("s3")],
            ["--properties", str(properties)],
            ["-Xmx300m", "-Djava.awt.headless=true", *self._jvm_options],
        )
