"""`.proto` files become descriptor sets, with what they import from their own folder alone."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.formats.protobuf import proto_compiler
from tiered_stream.formats.protobuf.proto_compiler import compiled_file, compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder

LINE = 'syntax = "proto3"; package shop; message Line { string item = 1; }'
ORDER = 'syntax = "proto3"; package shop; import "IMPORTED"; message Order { int32 id = 1; Line line = 2; }'


def write(folder: Path, imported: str, name: str = "order.proto") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(ORDER.replace("IMPORTED", imported))
    return file


@pytest.mark.parametrize("name", ["order.proto", "--python_out=x.proto", "an order.proto"])
def test_a_file_comes_with_what_it_imports_from_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a:b=c"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "line.proto").write_text(LINE)
    descriptors = compiled_file(write(folder, "parts/line.proto", name))
    assert ProtobufDecoder(descriptors, "shop.Order").kind.names == ["id", "line"]
    assert {each.name for each in folder.iterdir()} == {"parts", name}


@pytest.mark.parametrize("imported", ["../line.proto", "ABSOLUTE", "none.proto", "./../line.proto"])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, imported: str) -> None:
    (tmp_path / "line.proto").write_text(LINE)
    file = write(tmp_path / "own", imported.replace("ABSOLUTE", str(tmp_path / "line.proto")))
    with pytest.raises(ConfigurationError, match="compiled"):
        compiled_file(file)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "line.proto").write_text(LINE)
    file = write(tmp_path / "own", "link/line.proto")
    (tmp_path / "own" / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match=r"link/line\.proto.* folder"):
        compiled_file(file)


def test_a_text_that_is_no_proto_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be compiled"):
        compiled_proto({"a.proto": "message {"})


def test_the_error_of_a_text_without_syntax_is_the_compilers_own() -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(ConfigurationError) as caught:
            compiled_proto({"a.proto": "message A { int32 a = 1; }"})
        messages.append(str(caught.value))
    why = 'own/a.proto:1:13: Expected "required", "optional", or "repeated".'
    assert messages == [f"a .proto file cannot be compiled: {why}"] * 2


@pytest.mark.parametrize("content", [LINE, b""])
@pytest.mark.parametrize(
    "name",
    [
        "--version", "-o.proto", "@own/order.proto", "@none", "/a.proto", "../a.proto", "a/../b.proto", "./a.proto",
        ".", "", "a/", "a//b.proto", "a\\b.proto", "a\0.proto", "a\n.proto", "\ud800.proto", "a" * 256, "é" * 128,
        "a/" * 2000 + "b.proto",
    ],
)  # fmt: skip
def test_a_name_that_is_no_plain_path_is_refused(name: str, content: str | bytes) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(name[:100]))):
        compiled_proto({"order.proto": "--version", name: content})


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")])
def test_a_name_that_is_also_a_folder_is_refused(names: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="'a'"):
        compiled_proto(dict.fromkeys(names, LINE))


def test_without_the_compiler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_compiler, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tiered-stream\[formats\]'"):
        compiled_proto({"a.proto": LINE})


def test_a_compiler_that_is_killed_is_no_error_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(TieredStreamError, match="killed by signal 9") as caught:
        compiled_proto({"a.proto": LINE})
    assert not isinstance(caught.value, ConfigurationError)


def test_a_file_at_which_the_compiler_aborts_is_refused() -> None:
    deep = f"{{{'a:{' * 500}{'}' * 500}}}"
    option = 'import "google/protobuf/descriptor.proto"; message A {optional A a = 1;}'
    text = f'syntax = "proto2"; {option} extend google.protobuf.MessageOptions {{optional A x = 50000;}}'
    with pytest.raises(ConfigurationError):
        compiled_proto({"a.proto": f"{text} message M {{option (x) = {deep};}}"})
