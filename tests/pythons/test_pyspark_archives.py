"""`tiered-stream warm --pyspark`, on an archive of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.rigs.stack.processes import LONG
from tiered_stream.cli import app
from tiered_stream.pythons.pyspark_archives import compile_archive, find_archives, loaded_modules
from tiered_stream.records import compiled

MODULES = ["pyspark/__init__.py", "pyspark/daemon.py", "pyspark/worker.py"]
SOURCES = {
    "pyspark/__init__.py": "",
    "pyspark/daemon.py": "import sys\nprint(__file__, file=sys.stderr)",
    "pyspark/worker.py": "import sys\nprint(__file__, file=sys.stderr)",
    "pyspark/other.py": "",
    "pyspark/data.txt": "text",
}
TIME = (2026, 7, 1, 12, 30, 58)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "python" / "lib" / "pyspark.zip"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, text in SOURCES.items():
            opened.writestr(zipfile.ZipInfo(name, TIME), text)
    return path


def python(archive: Path, code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, text=True, env={**os.environ, "PYTHONPATH": str(archive)}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def loaded_from(archive: Path, module: str) -> str:
    _, said = python(archive, f"import {module}").communicate(timeout=LONG)
    return Path(said.strip()).name


def test_what_the_processes_load_is_loaded_from_bytecode_and_compiled_once(archive: Path) -> None:
    assert loaded_from(archive, "pyspark.daemon") == "daemon.py"
    assert loaded_modules([archive]) == {archive: MODULES}
    assert compile_archive(archive, MODULES) == 3
    assert loaded_from(archive, "pyspark.daemon") == "daemon.pyc"
    assert loaded_modules([archive]) == {archive: MODULES}
    assert compile_archive(archive, MODULES) == 0
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]
    with zipfile.ZipFile(archive) as opened:
        assert {name: opened.read(name).decode() for name in SOURCES} == SOURCES


def test_a_process_that_uses_the_archive_goes_on_with_it(archive: Path) -> None:
    running = python(archive, "import pyspark.daemon; input(); import pyspark.worker")
    assert running.stderr is not None and running.stderr.readline().strip().endswith("daemon.py")
    compile_archive(archive, MODULES)
    _, said = running.communicate("go on\n", timeout=LONG)
    assert (Path(said.strip()).stem, running.returncode) == ("worker", 0)


@pytest.mark.parametrize(
    "text,year",
    [
        ("import sys; print('edited', file=sys.stderr)", TIME[0]),
        (SOURCES["pyspark/daemon.py"].replace("__file__", "'edited'"), TIME[0] + 1),
    ],
    ids=["another size", "another time"],
)
def test_bytecode_of_another_source_is_not_used(archive: Path, text: str, year: int) -> None:
    compile_archive(archive, MODULES)
    other = archive.with_name("other.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            edited = name == "pyspark/daemon.py"
            entry = zipfile.ZipInfo(name, (year, *TIME[1:]) if edited else TIME)
            new.writestr(entry, text if edited else old.read(name))
    assert loaded_from(other, "pyspark.worker") == "worker.pyc"
    assert loaded_from(other, "pyspark.daemon") == "edited"


def test_a_module_that_does_not_compile_is_left_to_who_imports_it(archive: Path) -> None:
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("pyspark/wrong.py", "def")
    assert compile_archive(archive, [*MODULES, "pyspark/wrong.py"]) == 3


def test_the_archive_is_that_of_spark_home(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "kernels")
    monkeypatch.setenv("SPARK_HOME", str(archive.parents[2]))
    assert find_archives() == (archive,)
    ended = CliRunner().invoke(app, ["warm", "--pyspark"])
    assert (ended.exit_code, f"3 modules are compiled in {archive}" in ended.output.replace("\n", "")) == (0, True)


def test_without_spark_home_it_is_that_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found, py4j = find_archives()
    assert found.parts[-4:] == ("pyspark", "python", "lib", "pyspark.zip")
    assert (py4j.parent, py4j.name[:5]) == (found.parent, "py4j-")
    loaded = loaded_modules([found, py4j])
    assert {"pyspark/worker.py", "pyspark/sql/datasource.py"} < set(loaded[found])
    assert {"py4j/java_gateway.py", "py4j/protocol.py"} < set(loaded[py4j])


def test_a_home_without_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "kernels")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    ended = CliRunner().invoke(app, ["warm", "--pyspark"])
    assert ended.exit_code == 2
    assert f"{tmp_path}/python/lib/pyspark.zip does not exist" in ended.output.replace("\n", "")
