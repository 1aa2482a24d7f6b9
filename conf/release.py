"""Make a release in this checkout: `python -m conf.release VERSION TWINE`, as `make release VERSION=1.2.3` does.

It sets the version, dates the changelog's section, builds the sdist and the wheel into dist/, checks both with twine,
commits and tags. It uploads nothing. If a step fails, the files are as they were before.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
VERSIONED = {
    "setup.cfg": r"(?m)(^version = ){old}$",
    "tiered_stream/__init__.py": r'(?m)(^__version__ = "){old}(?="$)',
}
"""Files with a line that has the version."""
NAMING = ("README.md", "docs")
"""Pages that may name the release, and the files of the release."""
_NAMES = r"((?:tiered[_-]stream-|[Tt]his is version )){old}(?![\w.]*\d)"
_UNRELEASED = "## [Unreleased]"
_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


class ReleaseError(Exception):
    """The release cannot be made; the message has the reason and the fix."""


def release(root: Path, text: str, twine: Path, today: date) -> list[Path]:
    """Make the release, and return the files to upload.

    Raises:
        ReleaseError: the work tree, the version or the changelog does not allow it, or a build or a check failed.
    """
    if git(root, "status", "--porcelain"):
        raise ReleaseError("the work tree has changes: commit or stash them first")
    version = checked_version(root, text)
    changelog = root / "CHANGELOG.md"
    try:
        changed = set_version(root, version)
        changelog.write_text(dated(changelog.read_text("utf-8"), version, today), "utf-8")
        built = build(root, root / "dist")
        run(root, str(twine), "check", "--strict", *map(str, built))
        git(root, "add", "--", *changed, changelog.name)
        git(root, "commit", "--quiet", "--message", f"Release {version}")
    except BaseException:
        git(root, "restore", "--staged", "--worktree", ".")
        raise
    notes = section(changelog.read_text("utf-8"), version)
    git(root, "tag", "--annotate", "--cleanup=verbatim", f"v{version}", "--message", f"{version}\n\n{notes}")
    return built


def checked_version(root: Path, text: str) -> Version:
    """Return the version to release, which is new and not older than the one in setup.cfg."""
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise ReleaseError(f"VERSION={text} is no version: give one such as 0.2.0") from error
    if str(version) != text or version.local or len(version.release) != 3:
        raise ReleaseError(f"VERSION={text} is not of the form 1.2.3 or 1.2.3rc1")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists: give a newer version")
    if version < current_version(root):
        raise ReleaseError(f"VERSION={text} is older than {current_version(root)}, the version in setup.cfg")
    return version


def current_version(root: Path) -> Version:
    found = re.search(r"(?m)^version = (.+)$", (root / "setup.cfg").read_text("utf-8"))
    if not found:
        raise ReleaseError("setup.cfg has no line `version = …`")
    return Version(found[1])


def set_version(root: Path, version: Version) -> list[str]:
    """Write the version into all files that have the old one, and return the names of these files."""
    old = re.escape(str(current_version(root)))
    patterns = {root / name: pattern for name, pattern in VERSIONED.items()}
    for name in NAMING:
        page = root / name
        patterns |= dict.fromkeys(sorted(page.rglob("*.md")) if page.is_dir() else [page], _NAMES)
    changed = []
    for path, pattern in patterns.items():
        before = path.read_text("utf-8")
        after, count = re.subn(pattern.replace("{old}", old), rf"\g<1>{version}", before)
        if not count and str(path.relative_to(root)) in VERSIONED:
            raise ReleaseError(f"{path.relative_to(root)} does not have the version {current_version(root)}")
        path.write_text(after, "utf-8")
        if count:
            changed.append(str(path.relative_to(root)))
    return changed


def dated(changelog: str, version: Version, today: date) -> str:
    """Return the changelog with the date of the release.

    The section of the release is `[VERSION] - unreleased`, or else `[Unreleased]`, which is then empty again.
    """
    prepared = f"## [{version}] - unreleased"
    heading = f"## [{version}] - {today}"
    if prepared in changelog:
        changelog = changelog.replace(prepared, heading)
    elif _UNRELEASED in changelog:
        changelog = changelog.replace(_UNRELEASED, f"{_UNRELEASED}\n\n{heading}")
    if not section(changelog, version):
        raise ReleaseError(f"CHANGELOG.md has no entries for {version}: write them below {_UNRELEASED}")
    return changelog


def section(changelog: str, version: Version) -> str:
    """Return the entries of a release, or an empty text if there are none."""
    found = re.search(rf"(?ms)^## \[{re.escape(str(version))}\][^\n]*\n(.*?)(?=^## |\Z)", changelog)
    return found[1].strip() if found else ""


def build(root: Path, folder: Path) -> list[Path]:
    """Build the sdist from the tracked files and the wheel from the sdist, so that neither has other files."""
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as work:
        tracked, unpacked = Path(work, "tracked"), Path(work, "unpacked")
        for name in git(root, "ls-files", "-z").split("\0"):
            if name:
                (tracked / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, tracked / name, follow_symlinks=False)
        run(tracked, sys.executable, "-c", _SDIST, work)
        (sdist,) = Path(work).glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (sources,) = unpacked.iterdir()
        run(sources, sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", work, ".")
        (wheel,) = Path(work).glob("*.whl")
        return [Path(shutil.copy2(each, folder)) for each in (sdist, wheel)]


def git(root: Path, *arguments: str) -> str:
    return run(root, "git", *arguments)


def run(folder: Path, *command: str) -> str:
    """Run a program and return its output.

    Raises:
        ReleaseError: it failed; the message has the end of its output.
    """
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{Path(command[0]).name} {command[1]} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def main(text: str, twine: str) -> int:
    try:
        built = release(ROOT, text, Path(twine), datetime.now(UTC).date())
    except ReleaseError as error:
        sys.stderr.write(f"no release: {error}\n")
        return 1
    sys.stdout.write("".join(f"{each}: {each.stat().st_size / 1e6:,.1f} MB\n" for each in built))
    sys.stdout.write(f"Tagged v{text}. To publish it, push the commit and the tag, and upload these files.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
