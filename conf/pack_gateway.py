"""Pack the gateway as one file that needs only a Python: `python -m conf.pack_gateway FOLDER PEX`.

PEX is the program of that name. It takes the packages from the index, as wheels with the hashes in requirements.lock.
The file runs on the minor version of Python and on the architecture that packed it. Another Python looks for that one.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

import tiered_stream
from conf.pack import ROOT, VERSION, needed, run

ENTRY = "tiered_stream.gateway"
PARTS = (
    "broker", "gateway", "locate", "observe", "options", "process", "records", "storage",
    "__init__.py", "data_limits.py", "errors.py", "extras.py", "kerberos_codes.py", "model.py", "timed_http.py",
    "py.typed",
)  # fmt: skip
"""Parts of the package that a gateway imports."""
PACKAGES = (
    "boto3", "cachetools", "cramjam", "cryptography", "google-crc32c", "javaproperties", "kafka-python", "numpy",
    "obstore", "orjson", "prometheus-client", "pycryptodome", "urllib3",
)  # fmt: skip
"""Packages that a gateway imports. Their own dependencies are packed, too."""
LEFT_OUT = ("google-auth", "hdfs-native", "llvmlite", "numba", "pyarrow", "xxhash")
"""Packages that a gateway uses only if they are installed. They would take 370 MB on disk, and the others take 130 MB.

Without numba, the first start reads a large `__remote_log_metadata` more slowly. The next start has a snapshot of it.
"""
_PINNED = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?:.*\\\n)+.*\n", re.MULTILINE)


def main(folder: Path, pex: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    packed = folder / f"tiered-stream-gateway-{tiered_stream.__version__}-{VERSION}-{platform.machine()}.pyz"
    with TemporaryDirectory() as work:
        sources, lock = Path(work, "sources"), Path(work, "gateway.lock")
        copy_sources(sources / "tiered_stream")
        lock.write_text(pinned(locked_names()))
        run(
            pex.absolute(), "--pex-root", Path(work, "root"), "--python", sys.executable, "--use-pip-config",
            "--requirement", lock, "--no-build", "--sources-directory", sources, "--entry-point", ENTRY,
            "--python-shebang", f"/usr/bin/env {VERSION}", "--venv", "--include-tools",
            "--output-file", packed.absolute(),
        )  # fmt: skip
    sys.stdout.write(f"{packed}: {packed.stat().st_size / 1e6:,.1f} MB\n")


def copy_sources(to: Path) -> None:
    """Copy the parts of the package that a gateway imports, with the licence."""
    to.mkdir(parents=True)
    package = ROOT / "tiered_stream"
    for source in [*(package / part for part in PARTS), ROOT / "LICENSE", ROOT / "NOTICE"]:
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "kernel_cache")
            shutil.copytree(source, to / source.name, ignore=ignored)
        else:
            shutil.copy2(source, to)


def locked_names() -> set[str]:
    """Return the names of `PACKAGES` and of all packages that they depend on."""
    seen: set[str] = {canonicalize_name(name) for name in PACKAGES}
    for name in sorted(seen):
        list(needed(distribution(name), (), seen))
    return seen


def pinned(names: set[str]) -> str:
    """Return the lines of requirements.lock for the packages `names`, with their hashes.

    Raises:
        KeyError: the lock file lacks a package.
    """
    lines = {match["name"]: match[0] for match in _PINNED.finditer((ROOT / "requirements.lock").read_text("utf-8"))}
    return "".join(lines[name] for name in sorted(names))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
