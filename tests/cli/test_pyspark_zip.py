"""`tiered-stream warm --pyspark`, on an archive of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiered_stream.cli import app
from tiered_stream.cli.pyspark_zip import compile_archive, find_pyspark_zip
from tiered_stream.records import compiled

SOURCES = {
    "package/__init__.py": "",
    "package/first.py": "print(__file__)",
    "package/second.py": "print(__file__)",
    "package/data.txt": "text",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "python" / "lib" / "pyspark.zip"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, text in SOURCES.items():
            opened.writestr(name, text)
    return path


def python(archive: Path, code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env={**os.environ, "PYTHONPATH": str(archive)}, **pipes)


def loaded_from(archive: Path, module: str) -> str:
    said, errors = python(archive, f"import {module}").communicate(timeout=60)
    assert not errors
    return Path(said.strip()).name


def test_modules_are_loaded_from_their_bytecode_and_compiled_once(archive: Path) -> None:
    assert loaded_from(archive, "package.first") == "first.py"
    assert compile_archive(archive) == 3
    assert loaded_from(archive, "package.first") == "first.pyc"
    assert compile_archive(archive) == 0
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]
    with zipfile.ZipFile(archive) as opened:
        assert {name: opened.read(name).decode() for name in SOURCES} == SOURCES


def test_a_process_that_uses_the_archive_goes_on_with_it(archive: Path) -> None:
    running = python(archive, "import package.first; input(); import package.second")
    assert running.stdout is not None and running.stdout.readline().strip().endswith("first.py")
    compile_archive(archive)
    said, errors = running.communicate("go on\n", timeout=60)
    assert (Path(said.strip()).stem, errors) == ("second", "")


def test_bytecode_of_another_source_is_not_used(archive: Path) -> None:
    compile_archive(archive)
    other = archive.with_name("other.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            new.writestr(name, "print('another')" if name == "package/first.py" else old.read(name))
    assert loaded_from(other, "package.first") == "another"


def test_a_module_that_does_not_compile_is_left_to_who_imports_it(archive: Path) -> None:
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("package/wrong.py", "def")
    assert compile_archive(archive) == 3


def test_the_archive_is_that_of_spark_home(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "kernels")
    monkeypatch.setenv("SPARK_HOME", str(archive.parents[2]))
    assert find_pyspark_zip() == archive
    ended = CliRunner().invoke(app, ["warm", "--pyspark"])
    assert (ended.exit_code, f"3 modules are compiled in {archive}" in ended.output.replace("\n", "")) == (0, True)


def test_without_spark_home_it_is_that_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert find_pyspark_zip().parts[-4:] == ("pyspark", "python", "lib", "pyspark.zip")


def test_a_home_without_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "kernels")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    ended = CliRunner().invoke(app, ["warm", "--pyspark"])
    assert ended.exit_code == 1
    assert f"{tmp_path}/python/lib/pyspark.zip does not exist" in ended.output.replace("\n", "")
