"""Compilation of `.proto` files to descriptor sets, by the compiler in the package grpcio-tools.

The compiler is a separate process. It searches for imported files in three places, in this order:

    the folder of the files that are compiled;
    the files that are built into Confluent's registry, so that schemas import them without a reference: the files
    `confluent/*.proto` and `google/type/*.proto` (`ProtobufSchema.KNOWN_DEPENDENCIES`);
    the files `google/protobuf/*.proto`, which the compiler includes.

The package googleapis-common-protos has the files `google/type/*.proto`.
"""

from __future__ import annotations

import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf import descriptor_pb2

from tiered_stream.errors import ConfigurationError, TieredStreamError

_COMPILE_SECONDS = 60
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""Signals by which the kernel or an operator ends the compiler. By others it ends itself, because of a file."""
_MAX_PATH, _MAX_PART = 3000, 255
"""Maximum number of bytes of a file's name, and of each part of the name. Linux allows 4096 bytes and 255 bytes."""
_LOG_LINE = re.compile(r"WARNING: All log messages|[IWEF]\d{4} \d\d:\d\d:")
"""Beginning of a log line in the compiler's error output, which is no error of a `.proto` file."""
_CONFLUENT = (
    "confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto",
    "confluent/types/decimal.proto",
)  # fmt: skip


def compiled_proto(files: Mapping[str, str | bytes]) -> bytes:
    """Compile `.proto` files; return the serialized descriptor set of the files and of all files that they import.

    `files` has the text of each file, by the name by which other files import it. In place of a text, bytes are the
    file's serialized `FileDescriptorProto`.

    Raises:
        ConfigurationError: a file cannot be compiled, a name is not a plain relative path, or the compiler is not
            installed.
        TieredStreamError: the compiler is killed from outside.
    """
    plain = filter(_is_plain, files)  # first, because other names may be long
    folders = {str(parent) for name in plain for parent in PurePosixPath(name).parents}
    for name in files:
        if not _is_plain(name) or name in folders:
            raise ConfigurationError(f"{name[:100]!r} is no name of a .proto file that others import")
    with tempfile.TemporaryDirectory(prefix="tiered_stream-") as folder:
        given = descriptor_pb2.FileDescriptorSet()
        for name, content in files.items():
            if isinstance(content, bytes):
                given.file.add(name=name).MergeFromString(content)
                given.file[-1].name = name
            else:
                _write(Path(folder, name), content.encode())
        return _compiled(Path(folder), [name for name, text in files.items() if isinstance(text, str)], given)


def _is_plain(name: str) -> bool:
    """Return whether `name` is a relative path that a file can have, and no argument of the compiler.

    The compiler takes a name that begins with a hyphen for an option, and `@path` for a file with further arguments.
    """
    if not name.isprintable() or "\\" in name or name.startswith(("-", "@")):
        return False
    parts = name.split("/")
    is_short = len(name.encode()) <= _MAX_PATH and all(len(part.encode()) <= _MAX_PART for part in parts)
    return is_short and not {"", ".", ".."} & {*parts}


def compiled_file(path: Path) -> bytes:
    """Compile a `.proto` file; return the serialized descriptor set of the file and of all files that it imports.

    Raises:
        ConfigurationError: the file cannot be compiled, it imports a file from outside its folder, or the compiler is
            not installed.
        TieredStreamError: the compiler is killed from outside.
    """
    folder = path.parent.resolve()
    descriptor_set = _compiled(folder, [path.name])
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
        # The compiler refuses a file name that leads out of the folder, but it follows a symbolic link.
        if not Path(folder, file.name).resolve().is_relative_to(folder):
            raise ConfigurationError(f"{path} imports {file.name[:100]}, which lies outside its folder {folder}")
    return descriptor_set


def check_compiler() -> None:
    """Raise ConfigurationError if the compiler is not installed."""
    if find_spec("grpc_tools") is None:
        raise ConfigurationError(
            "a .proto file takes a compiler, the package grpcio-tools: pip install 'tiered-stream[formats]'. "
            "Or compile it elsewhere (protoc --include_imports --descriptor_set_out=….desc) and name the .desc file"
        )


def _compiled(folder: Path, names: Iterable[str], given: descriptor_pb2.FileDescriptorSet | None = None) -> bytes:
    """Compile the files `names` in `folder`; return the serialized descriptor set of them, of `given`, and of imports.

    `given` has the descriptors of files that need no compilation; `names` may import them.

    Raises:
        ConfigurationError: a file cannot be compiled, or the compiler is not installed.
        TieredStreamError: the compiler is killed from outside. The files may be right then.
    """
    check_compiler()
    with tempfile.TemporaryDirectory(prefix="tiered_stream-") as place:
        # The folder is given as a link, because a colon in its path would separate two paths.
        Path(place, "own").symlink_to(folder.resolve(), target_is_directory=True)
        _write_known_protos(Path(place, "known"))
        out = Path(place, "out.desc")
        inputs = [f"own/{name}" for name in names]
        if given is not None and given.file:
            Path(place, "given.desc").write_bytes(given.SerializeToString())
            inputs = ["--descriptor_set_in=given.desc", *inputs, *(file.name for file in given.file)]
        # With the folder in front, the compiler does not take a file's name for an option.
        command = [sys.executable, "-m", "grpc_tools.protoc", "-Iown", "-Iknown", "--include_imports",
                   "--descriptor_set_out=out.desc", *inputs]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=place, capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, timeout=_COMPILE_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ConfigurationError(f"a .proto file is not compiled within {_COMPILE_SECONDS} seconds") from None
        if -done.returncode in _FROM_OUTSIDE:
            raise TieredStreamError(
                f"the compiler of .proto files was killed by signal {-done.returncode}: start the query again, with "
                "more memory for Python if the kernel has ended it"
            )
        if done.returncode != 0:
            lines = [line for line in done.stderr.strip().splitlines() if not _LOG_LINE.match(line)]
            why = "; ".join(lines)[:300]
            raise ConfigurationError(f"a .proto file cannot be compiled: {why}")
        return out.read_bytes()


def _write_known_protos(folder: Path) -> None:
    """Write the `.proto` files that Confluent's registry has built in into `folder`, under their import names."""
    for name in _CONFLUENT:
        _write(folder / name, pkgutil.get_data(__package__, name) or b"")
    google = find_spec("google.type")
    for installed in google.submodule_search_locations or () if google else ():
        for file in Path(installed).glob("*.proto"):
            _write(folder / "google" / "type" / file.name, file.read_bytes())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
