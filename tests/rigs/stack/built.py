"""Programs that are built once from pinned sources, and kept in the same cache as the jars."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import Jar, cache_dir, jar_paths, pinned_jars


def built_folder(name: str, version: str) -> Path:
    """Return the folder in which `built` keeps a program."""
    return cache_dir() / name / version


def built(name: str, version: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of that version. If the cache lacks it, `build` fills it, as a whole or not at all.

    Raises:
        StackError: as `build`.
    """
    folder = built_folder(name, version)
    if folder.exists():
        return folder
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():  # another process may have built it meanwhile
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache_dir()) as temporary:
                made = Path(temporary, version)
                made.mkdir()
                build(made)
                folder.parent.mkdir(exist_ok=True)
                made.replace(folder)
    return folder


def digest(files: Sequence[Path]) -> str:
    """Return a version for a program that is built from these files."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def missing_program(program: str) -> str | None:
    """Return the reason why the program cannot run here, or None."""
    return None if shutil.which(program) else f"there is no {program} on PATH: install it"


def run_build(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a step of a build.

    Raises:
        StackError: it failed; the message has what it said last.
    """
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StackError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


@dataclass(frozen=True)
class GoProgram:
    """Program that `go install` builds; `checksum` is the module's, as in `go.sum`.

    Go checks the dependencies of the module against its checksum database.
    """

    name: str
    module: str
    version: str
    checksum: str

    def why_not(self) -> str | None:
        """Return the reason why it cannot run here, or None."""
        return None if built_folder(self.name, self.version).exists() else missing_program("go")

    def executable(self) -> Path:
        """Return the program, and build it first if the cache lacks it.

        Raises:
            StackError: it could not be built, or the module is another one than `go.sum` has.
        """

        def build(folder: Path) -> None:
            command = ["go", "install", "-buildvcs=false", f"{self.module}@{self.version}"]
            run_build(command, folder, {"GOBIN": str(folder)})
            self.check(subprocess.check_output(["go", "version", "-m", f"{folder}/{self.name}"], text=True))

        return built(self.name, self.version, build) / self.name

    def check(self, built_of: str) -> None:
        """Raises StackError: the program is built of another module, by what `go version -m` says."""
        module = next((line.split() for line in built_of.splitlines() if line.split()[:1] == ["mod"]), [])
        if module[2:] != [self.version, self.checksum]:
            ours = f"{self.version} {self.checksum}"
            raise StackError(f"{self.name} is built of {' '.join(module[1:])}, not of {ours}: refused")


def unpacked(group: str) -> tuple[Jar, Path]:
    """Return the archive of a group of `jars.tsv` that has one, and the folder with what is packed in it."""
    (jar,) = pinned_jars([group])

    def unpack(folder: Path) -> None:
        (packed,) = jar_paths(group)
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")

    return jar, built(jar.name, jar.version, unpack)
