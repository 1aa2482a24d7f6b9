"""Code blocks of README and of the pages in docs, and what each is used for when the documentation is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.rigs.stack.build import ROOT

_BLOCK = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)


@dataclass(frozen=True)
class Use:
    """Use of a block; `begins` is the begin of the block's text, by which the block is recognized."""

    begins: str


@dataclass(frozen=True)
class Run(Use):
    """Commands of a shell, which end with status 0.

    Args:
        statuses: status of each command, if one of them ends with another status.
        more: arguments in place of the `…` at the end of a command.
        until: pattern of the output after which the last command is stopped by Ctrl-C.
    """

    statuses: tuple[int, ...] = ()
    more: str = ""
    until: str = ""


@dataclass(frozen=True)
class Settings(Use):
    """Settings that later blocks use from `file`, on top of the settings in the file `over`."""

    file: str = ""
    over: str = ""


@dataclass(frozen=True)
class LogIn:
    """Step that is no block: the user fills in the login in `file`, which is made of the file `over`."""

    file: str
    user: str = "ingest"
    over: str = ""


@dataclass(frozen=True)
class Lines(Use):
    """Lines of a job's settings, which the job accepts on top of the settings in conf and in `more`."""

    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Program(Use):
    """Python that runs in a Spark program, between the lines `before` and `after`."""

    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Printed(Use):
    """Lines that the page's commands have printed, or have written into the files `files`.

    Numbers may differ, and the text for `…` and for the texts in `loose`.
    """

    files: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


@dataclass(frozen=True)
class Records(Use):
    """Records of a topic that the site produces."""


@dataclass(frozen=True)
class Elsewhere(Use):
    """Text that another test runs or compares, or that another rig runs: `FILE::TEST`, or a file."""

    where: str = ""


@dataclass(frozen=True)
class NotRun(Use):
    """Text that nothing runs."""

    reason: str = ""


@dataclass(frozen=True)
class Block:
    """A block with its page and its line there."""

    page: str
    line: int
    text: str


def pages() -> dict[str, list[Block]]:
    """Return the blocks of README and of each page in docs that has blocks."""
    found = {}
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page, text = file.relative_to(ROOT).as_posix(), file.read_text("utf-8")
        blocks = []
        for match in _BLOCK.finditer(text):
            lines = [line.removeprefix(match[1]) for line in match[3].splitlines()]
            blocks.append(Block(page, text.count("\n", 0, match.start()) + 1, "\n".join(lines)))
        if blocks:
            found[page] = blocks
    return found


def commands(text: str) -> list[str]:
    """Return the commands of a block; a backslash continues one in the next line."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line]


def patterns(printed: Printed, text: str) -> list[re.Pattern[str]]:
    """Return a pattern for each line that must be printed."""
    loose = "|".join([*map(re.escape, printed.loose), r"\w*…"])
    tokens = re.compile(rf"{loose}|(?P<number>\d(?:[\d,.]*\d)?)(?P<plural> \w+s\b)?")

    def token(match: re.Match[str]) -> str:
        if match["number"] is None:
            return "\0"
        return "\1" + (match["plural"][:-1] + "\2" if match["plural"] else "")

    found = []
    for line in text.splitlines():
        escaped = re.escape(tokens.sub(token, line))
        if line != "…":
            pattern = escaped.replace("\0", ".*").replace("\1", r"[\d,.]+").replace("\2", "s?")
            found.append(re.compile(f"{pattern.replace('MiB', '[KMG]iB')}$", re.MULTILINE))
    return found
