"""`make release` on small repositories of its own, with a program in place of twine."""

from __future__ import annotations

import os
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest
from packaging.version import Version

from conf.release import ROOT, ReleaseError, dated, git, release, section

TODAY = date(2026, 11, 27)
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - unreleased\n\n- A source.\n"
SETUP = """\
[metadata]
name = tiered-stream
version = 0.1.0
description = A source
license_files =
    LICENSE
    NOTICE
[options]
packages = tiered_stream
"""
FILES = {
    "setup.cfg": SETUP,
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
    "tiered_stream/__init__.py": '__version__ = "0.1.0"\n',
    "README.md": "This is version 0.1.0, an alpha release: tiered_stream-0.1.0-py3-none-any.whl, not 10.1.0\n",
    "docs/guides/cluster.md": "tiered-stream-0.1.0-python3.11-x86_64.tar.gz\n",
    "MANIFEST.in": (ROOT / "MANIFEST.in").read_text(),
    "tests/test_source.py": "",
    "docs/table.md": "| since | 0.1.0 |\n",
    "CHANGELOG.md": CHANGELOG,
    "LICENSE": "license\n",
    "NOTICE": "notice\n",
    ".gitignore": "/dist/\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a maintainer")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "maintainer@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    root = tmp_path / "repository"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Begin")
    return root


def twine(tmp_path: Path, script: str = 'printf "%s\\n" "$@" >"$0.arguments"') -> Path:
    program = tmp_path / "twine"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_release_has_the_version_the_date_both_files_a_commit_and_a_tag(root: Path, tmp_path: Path) -> None:
    (root / "tiered_stream" / "left_behind.py").write_text("")
    (root / ".git" / "info" / "exclude").write_text("left_behind.py\n")

    sdist, wheel = release(root, "0.1.0", twine(tmp_path), TODAY)

    assert (sdist.name, wheel.name) == ("tiered_stream-0.1.0.tar.gz", "tiered_stream-0.1.0-py3-none-any.whl")
    assert (tmp_path / "twine.arguments").read_text().splitlines() == ["check", "--strict", str(sdist), str(wheel)]
    with tarfile.open(sdist) as archive, zipfile.ZipFile(wheel) as packed:
        for names in (archive.getnames(), packed.namelist()):
            assert [name for name in names if name.endswith("/NOTICE")]
            assert not [name for name in names if "left_behind" in name or "docs" in name or "tests" in name]
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "-1", "--format=%s") == "Release 0.1.0\n"
    assert git(root, "rev-parse", "v0.1.0^{commit}") == git(root, "rev-parse", "HEAD")
    assert git(root, "tag", "--list", "--format=%(contents)").strip() == "0.1.0\n\n- A source."
    assert "## [0.1.0] - 2026-11-27\n\n- A source.\n" in (root / "CHANGELOG.md").read_text()


def test_the_next_release_takes_what_is_unreleased_and_renames_files_on_pages(root: Path, tmp_path: Path) -> None:
    release(root, "0.1.0", twine(tmp_path), TODAY)
    changelog = root / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n- A sink.\n"))
    git(root, "commit", "--quiet", "--all", "--message", "Add a sink")

    release(root, "0.2.0rc1", twine(tmp_path), TODAY)

    assert changelog.read_text().split("\n\n")[1:] == [
        "## [Unreleased]", "## [0.2.0rc1] - 2026-11-27", "- A sink.", "## [0.1.0] - 2026-11-27", "- A source.\n",
    ]  # fmt: skip
    assert "\nversion = 0.2.0rc1\n" in (root / "setup.cfg").read_text()
    assert (root / "tiered_stream/__init__.py").read_text() == '__version__ = "0.2.0rc1"\n'
    page = "This is version 0.2.0rc1, an alpha release: tiered_stream-0.2.0rc1-py3-none-any.whl, not 10.1.0\n"
    assert (root / "README.md").read_text() == page
    assert (root / "docs/guides/cluster.md").read_text() == "tiered-stream-0.2.0rc1-python3.11-x86_64.tar.gz\n"
    assert (root / "docs/table.md").read_text() == FILES["docs/table.md"]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("one", "is no version"),
        ("0.1", "not of the form"),
        ("v0.1.0", "not of the form"),
        ("0.1.0+mine", "not of the form"),
        ("0.0.9", "older than 0.1.0"),
        ("0.2.0", "no entries for 0.2.0"),
    ],
)
def test_a_release_that_cannot_be_changes_nothing(root: Path, tmp_path: Path, version: str, reason: str) -> None:
    head = git(root, "rev-parse", "HEAD")
    with pytest.raises(ReleaseError, match=reason):
        release(root, version, twine(tmp_path), TODAY)
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "rev-parse", "HEAD") == head
    assert git(root, "tag", "--list") == ""


@pytest.mark.parametrize("name", ["LICENSE", "new file"])
def test_a_dirty_tree_is_refused_and_kept(root: Path, tmp_path: Path, name: str) -> None:
    (root / name).write_text("changed\n")
    with pytest.raises(ReleaseError, match="has changes"):
        release(root, "0.1.0", twine(tmp_path), TODAY)
    assert (root / name).read_text() == "changed\n"


def test_a_version_that_has_a_tag_is_refused(root: Path, tmp_path: Path) -> None:
    git(root, "tag", "v0.1.0")
    with pytest.raises(ReleaseError, match=r"the tag v0\.1\.0 exists"):
        release(root, "0.1.0", twine(tmp_path), TODAY)


def test_nothing_is_committed_if_twine_finds_a_fault(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="twine check failed:\nno description"):
        release(root, "0.1.0", twine(tmp_path, "echo no description; exit 1"), TODAY)
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "tag", "--list") == ""


def test_a_section_ends_at_the_next_release() -> None:
    text = "## [Unreleased]\n\n- b\n\n### Fixed\n\n- c\n\n## [0.1.0] - 2026-01-01\n\n- a\n"
    new = dated(text, Version("0.2.0"), TODAY)
    assert section(new, Version("0.2.0")) == "- b\n\n### Fixed\n\n- c"
    assert section(new, Version("0.1.0")) == "- a"
    assert section(new, Version("0.3.0")) == ""
