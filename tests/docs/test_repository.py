"""The files by which the project presents itself agree with the project."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

import tiered_stream

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / ".github").rglob("*.md"))]
METADATA = ConfigParser()
METADATA.read(ROOT / "setup.cfg", "utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_every_make_target_that_a_text_names_exists(text: Path) -> None:
    code = "\n".join(re.findall(r"`[^`]+`|^make .*$", text.read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"^`?make ([a-z][a-z-]*)", code, re.MULTILINE)) <= make_targets()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: str(workflow.name))
def test_a_workflow_runs_targets_that_exist(workflow: Path) -> None:
    text = workflow.read_text("utf-8")
    named = re.findall(r"\bmake (?:PYTHON=python )?([a-z-]+)", text) + re.findall(r'target: "([a-z-]+)', text)
    assert named
    assert set(named) <= make_targets()


def test_the_workflow_has_every_python_that_the_package_supports() -> None:
    classifiers = re.findall(r"Python :: (3\.\d+)", METADATA["metadata"]["classifiers"])
    tested = re.findall(r"python: \[(.+)\]", (ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    assert len(classifiers) >= 3
    assert set(classifiers) <= set(re.findall(r'"(3\.\d+)"', tested[0]))


def test_the_version_is_said_once_for_pip_and_once_for_programs() -> None:
    assert METADATA["metadata"]["version"] == tiered_stream.__version__


def test_the_changelog_has_the_version_and_a_place_for_what_comes_next() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert tiered_stream.__version__ in headings


def test_each_file_of_the_licence_is_packed() -> None:
    for name in METADATA["metadata"]["license_files"].split():
        assert (ROOT / name).is_file()
