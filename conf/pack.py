"""Build the wheel, and pack an environment for Spark's tasks: `python conf/pack.py FOLDER [GZIP LEVEL]`.

The environment holds this Python with its standard library and shared libraries, and the package with its dependencies
and its compiled decoder. It does not hold PySpark, which executors have from Spark. It runs in any folder. Workers need
the same architecture, and a C library that is not older than this machine's. They need no Python.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCES = ("tiered_stream", "pyspark_tiered_stream.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
EXTRAS = ("spark", "delta", "formats", "kafka-sink", "otel", "aiven", "hdfs")
# These packages have no wheel: they are packed where somebody has installed them (`make kerberos`).
OPTIONAL_EXTRAS = {"kerberos": "gssapi"}
OF_SPARK = {"pyspark", "py4j"}  # the extra spark then adds pandas, for a driver that runs in the environment
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

UNUSED_MODULES = ("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "config-*", "_tkinter*")
UNUSED_OF_PACKAGES = (
    "*.pyc", "*/tests/*", "Crypto/SelfTest/*", "numba/cuda/*", "numpy/f2py/*", "numpy/distutils/*",
    "pyarrow/include/*", "pyarrow/src/*", "pyarrow/*flight*",
    # protoc, of grpcio-tools, runs without its declared dependencies
    "grpc/*", "setuptools/*", "pkg_resources/*", "_distutils_hack/*", "distutils-precedence.pth",
    # second copies of libraries, because a wheel has no links: for linking programs, not for loading libraries
    "pyarrow/libarrow*.so", "pyarrow/lib*.so.*.*.*",
)  # fmt: skip
SERVICES = {"s3", "sts", "sso", "sso-oidc", "signin"}
"""Services of AWS whose descriptions in botocore are kept, for storage and credentials. The other ones take 30 MB."""
WITH_SYMBOLS = ("lib/shared/libpython*", f"{sys.platlibdir}/{VERSION}/lib-dynload/*.so", "**/libllvmlite.so")
"""Libraries that are built with symbols for debuggers, which take 50 MB."""
C_LIBRARY = ("ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.", "libresolv.", "libmvec.")
"""Libraries that the worker's own system provides: they fit its kernel, and stay compatible."""

LAUNCHER = f"""\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/../lib/shared${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/{VERSION}" "$@"
"""
WARM = "from tiered_stream.cli import app; app(['warm'])"


def main(folder: Path, compression: int = 6) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as work:
        wheel = build_wheel(Path(work), folder)
        environment = Path(work, "environment")
        python = copy_python(environment)
        copy_packages(wheel, Path(run(python, "-c", "import site; print(site.getsitepackages()[0])")))
        copy_shared_libraries(environment)
        strip_symbols(environment)
        sys.stdout.write(f"{run(python, '-c', WARM)}\n")
        # Unpacking does not keep the sources' times, so bytecode must not depend on them.
        run(python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", work, environment / "lib")
        packed = folder / f"tiered-stream-{wheel.name.split('-')[1]}-{VERSION}-{platform.machine()}.tar.gz"
        with tarfile.open(packed, "w:gz", compresslevel=compression) as archive:
            archive.add(environment, ".", filter=without_owner)
    for file in (wheel, packed):
        sys.stdout.write(f"{file}: {file.stat().st_size / 1e6:,.1f} MB\n")


def build_wheel(work: Path, folder: Path) -> Path:
    """Build the wheel from a copy, because files of an earlier build would get into it."""
    sources, built = work / "sources", work / "wheel"
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "kernel_cache"))
        else:
            sources.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, sources)
    run(Path(sys.executable), "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", built, sources)
    (wheel,) = built.iterdir()
    return Path(shutil.copy2(wheel, folder))


def copy_python(environment: Path) -> Path:
    """Copy the interpreter and its standard library, and return the program that starts it in any folder."""
    binaries, library = environment / "bin", environment / sys.platlibdir / VERSION
    binaries.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), binaries / VERSION)
    ignored = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages", *UNUSED_MODULES)
    shutil.copytree(sysconfig.get_path("stdlib"), library, symlinks=False, ignore=ignored)
    launcher = binaries / "python"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    (binaries / "python3").symlink_to("python")
    return launcher


def copy_packages(wheel: Path, site: Path, extras: tuple[str, ...] = EXTRAS) -> None:
    """Copy the installed dependencies of the package with its `extras`, and unpack the wheel.

    `extras` are joined by each of `OPTIONAL_EXTRAS` whose module is installed here, if there are any.
    """
    if extras:
        extras = (*extras, *(extra for extra, module in OPTIONAL_EXTRAS.items() if find_spec(module)))
    (built,) = distributions(path=[str(wheel)])
    for each in needed(built, extras, set()):
        for file in each.files or ():
            source = Path(str(file.locate()))
            if is_used(file) and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, site / file)
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)


def is_used(file: PurePosixPath) -> bool:
    """Return true for a file that a running program needs."""
    match file.parts:
        case ("botocore", "data", service, _, *_):
            return service in SERVICES
    return ".." not in file.parts and not any(fnmatch(file.as_posix(), each) for each in UNUSED_OF_PACKAGES)


def needed(package: Distribution, extras: tuple[str, ...], seen: set[str]) -> Iterator[Distribution]:
    """Yield the distributions that `package` depends on, at any depth, but not Spark's."""
    for text in package.requires or ():
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras))
        if applies and name not in seen | OF_SPARK:
            seen.add(name)
            found = distribution(name)
            yield found
            yield from needed(found, tuple(requirement.extras), seen)


def copy_shared_libraries(environment: Path) -> None:
    """Copy the system's libraries to which the interpreter and the packages are linked."""
    binaries = [environment / "bin" / VERSION, *environment.rglob("*.so"), *environment.rglob("*.so.*")]
    shared = environment / "lib" / "shared"
    shared.mkdir()
    listed = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        name, _, found = line.strip().partition(" => ")
        path = found.rpartition(" (")[0]
        own = path.startswith(str(environment)) or name.startswith(C_LIBRARY)
        if path.startswith("/") and not own and not (shared / name).exists():
            shutil.copy2(path, shared / name)


def strip_symbols(environment: Path) -> None:
    """Strip symbols if binutils are installed; without them the archive is 15 MB larger."""
    if program := shutil.which("strip"):
        run(Path(program), "--strip-unneeded", *(file for each in WITH_SYMBOLS for file in environment.glob(each)))


def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def run(*command: str | Path) -> str:
    """Run a program with the search path alone as its environment, and return its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        list(map(str, command)), cwd="/", env=environment | pip, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
