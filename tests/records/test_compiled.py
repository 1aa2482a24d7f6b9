"""Where compiled kernels are kept: nothing is compiled twice on a machine, and no machine code of others is run."""

from __future__ import annotations

import stat
import sys
import tempfile
from pathlib import Path

import pytest

from tests.records.shipped_package import compiled_files, run, ship
from tiered_stream.records import compiled
from tiered_stream.records.compiled import cache_folder, kernel_key

KEY = "0123456789abcdef"
DECODE = """
import sys
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.records.decoder import RecordBatchDecoder
(rows,) = RecordBatchDecoder("t", 0, 0, 1).feed(record_batch([Record(b"k", b"v")]))
print(rows.num_rows, sys.modules["tiered_stream"].__file__)
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `cache` is the user's cache folder and `tmp` the temporary one."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "packaged")
    return tmp_path


def occupy(path: Path) -> None:
    """Make sure that no folder can be made there, whoever the user is."""
    path.write_text("a file")


def module_of(folder: Path, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "kernels.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    return f"{name}.kernels"


def test_the_key_changes_with_the_source_and_with_nothing_else_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"kernels_a": "x = 1\n", "kernels_b": "x = 1\n", "kernels_c": "x = 2\n"}
    keys = [kernel_key(module_of(tmp_path, name, source, monkeypatch)) for name, source in sources.items()]
    assert keys[0] == keys[1] != keys[2]
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in keys)


def test_the_key_changes_with_the_version_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel_key(module_of(tmp_path, "kernels_d", "x = 1\n", monkeypatch))
    monkeypatch.setattr(sys, "version", "3.99")
    assert kernel_key(module_of(tmp_path, "kernels_e", "x = 1\n", monkeypatch)) != before


def test_a_module_without_source_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_of(tmp_path, "kernels_f", "", monkeypatch)
    with pytest.raises((ImportError, OSError)):
        kernel_key("kernels_f.missing")


def test_the_users_cache_folder_is_taken_and_is_private(folders: Path) -> None:
    folder = cache_folder(KEY)
    assert folder == folders / "cache" / "tiered_stream" / "kernels" / KEY
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert cache_folder(KEY) == folder


def test_without_a_cache_folder_a_private_one_right_under_the_temporary_folder_is_taken(folders: Path) -> None:
    occupy(folders / "cache")
    folder = cache_folder(KEY)
    assert folder is not None and folder.parent == folders / "tmp" and folder.name.endswith(KEY)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_to_which_others_may_write_is_not_trusted(folders: Path, mode: int) -> None:
    folder = folders / "cache" / "tiered_stream" / "kernels" / KEY
    folder.mkdir(parents=True)
    folder.chmod(mode)
    assert cache_folder(KEY) != folder


def test_a_link_in_the_temporary_folder_is_not_followed(folders: Path) -> None:
    occupy(folders / "cache")
    folder = cache_folder(KEY)
    assert folder is not None
    folder.rmdir()
    (folders / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folders / "elsewhere")
    assert cache_folder(KEY) is None


def test_there_may_be_nowhere_to_keep_anything(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupy(folders / "cache")
    monkeypatch.setattr(tempfile, "tempdir", str(folders / "cache"))
    assert cache_folder(KEY) is None


def test_a_user_without_a_home_and_a_temporary_folder_is_no_error(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    def no_folder() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", none)
    monkeypatch.setattr(tempfile, "gettempdir", no_folder)
    assert cache_folder(KEY) is None


def test_what_a_packed_environment_carries_is_taken_first(folders: Path) -> None:
    (folders / "packaged" / KEY).mkdir(parents=True)
    assert cache_folder(KEY) == folders / "packaged" / KEY
    assert cache_folder("another") != folders / "packaged" / "another"


@pytest.mark.slow
def test_a_second_process_does_not_compile_again_even_from_another_folder(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = run(ship(tmp_path / "first"), DECODE, environment)
    assert (first.returncode, first.stdout) == (0, f"1 {tmp_path}/first/tiered_stream/__init__.py\n"), first.stderr
    written = compiled_files(tmp_path)
    assert {path.suffix for path in written} == {".nbi", ".nbc"}
    assert {path.parts[:3] for path in written} == {("cache", "tiered_stream", "kernels")}
    second = run(ship(tmp_path / "second"), DECODE, environment)
    assert (second.returncode, second.stdout) == (0, f"1 {tmp_path}/second/tiered_stream/__init__.py\n"), second.stderr
    assert compiled_files(tmp_path) == written


@pytest.mark.slow
def test_an_executor_that_can_keep_nothing_still_decodes(tmp_path: Path) -> None:
    occupy(tmp_path / "file")
    shipped = ship(tmp_path / "shipped")
    nowhere = "import tempfile; tempfile.tempdir = '/dev/null/tmp'\n"
    ended = run(shipped, nowhere + DECODE, {"HOME": str(tmp_path / "file"), "XDG_CACHE_HOME": ""})
    assert (ended.returncode, ended.stdout.split()[0]) == (0, "1"), ended.stderr
    assert compiled_files(tmp_path) == {}


_RELEASE = """
from pathlib import Path
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.records.compiled import release_compiler
from tiered_stream.records.decoder import RecordBatchDecoder

def rows(**options):
    (found,) = RecordBatchDecoder("t", 0, 0, 1, **options).feed(record_batch([Record(b"k", b"v")]))
    return found.num_rows

def mapped_kib():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssFile"].split()[0])

rows()
before = mapped_kib()
release_compiler()
print(before - mapped_kib() > 20_000, rows(), rows(include_headers=True))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is in memory")
def test_the_compilers_code_leaves_memory_and_comes_back_where_it_is_needed() -> None:
    """In a process of its own, of which nobody else needs the compiler."""
    ended = run(compiled.packaged_folder().parents[2], _RELEASE, {})
    assert ended.stdout.split() == ["True", "1", "1"], ended.stderr
