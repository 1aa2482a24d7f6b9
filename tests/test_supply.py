"""What is installed is what was pinned: each file by its hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LINE = re.compile(r"[a-z0-9.-]+==[^ ]+( \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def test_every_package_of_the_lock_has_its_version_and_hashes() -> None:
    packages = re.sub(r"^#.*\n", "", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    assert len(_LINE.findall(packages)) > 50
    assert _LINE.sub("", packages) == ""


def test_the_environment_takes_no_file_without_its_hash() -> None:
    installs = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line and " -r " in line
    ]
    assert len(installs) == 5
    assert all("--no-deps --require-hashes " in line for line in installs)


@pytest.mark.parametrize("script", ["audit.sh", "lock.sh"])
def test_every_lock_file_is_audited_and_can_be_written_anew(script: str) -> None:
    locks = {path.name for path in ROOT.glob("*.lock")}
    assert locks == set(re.findall(r"requirements[a-z-]*\.lock(?!\.json)", (ROOT / "conf" / script).read_text()))
