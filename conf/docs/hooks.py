"""Hooks for mkdocs: pages include parts of the repository's own files, and a built page fetches nothing from elsewhere.

The line `<!-- include README.md | Limits -->` in a page stands for the text below that heading of the README, and
`<!-- include DESIGN.md -->` for the whole file; both without the heading itself. A program is included as a block of
code, and a notebook with its outputs. Links lead to the places of their targets on the site.

The site's version is the package's, and the link to the repository comes from setup.cfg.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from collections.abc import Iterator
from configparser import ConfigParser
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
INCLUDE = re.compile(r"^<!-- include (?P<file>[\w./-]+)(?: \| (?P<heading>.+?))? -->$", re.MULTILINE)
_HEADING = re.compile(r"(#+) (.+)")
_LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
_CSS_URL = re.compile(r"""(?:url\(|@import)\s*['"]?((?:https?:)?//[^'")\s]+)""")
_FETCHED = ("src", "srcset", "data", "poster")
_NOT_FETCHED = {"canonical", "alternate", "prev", "next"}
_FIRST_PAGE = "index.md"
_LANGUAGES = {
    ".py": "python", ".yaml": "yaml", ".properties": "properties", ".service": "ini", ".timer": "ini", ".cron": "sh",
}  # fmt: skip
_REPOSITORIES = ("Repository", "Source", "Source Code", "Homepage")
"""Names in setup.cfg's `project_urls` that may lead to the repository."""

log = logging.getLogger("mkdocs.hooks")
"""What it warns of ends a strict build."""


def on_config(config: Any) -> Any:
    """Set the version and the repository's address, which the site shows in its header and below each page."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    metadata = setup["metadata"]
    lines = (line.partition("=") for line in metadata.get("project_urls", "").splitlines())
    urls = {name.strip(): url.strip() for name, _, url in lines if url}
    repository = next((urls[name] for name in _REPOSITORIES if name in urls), metadata.get("url"))
    config["extra"]["package_version"] = _version()
    config["copyright"] = f"tiered_stream {_version()}, Apache License 2.0"
    config["repo_url"], config["repo_name"] = repository, urlsplit(repository or "").path.strip("/")
    return config


def _version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "tiered_stream/__init__.py").read_text("utf-8"), re.MULTILINE)
    assert found
    return found[1]


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    where = page.file.src_uri
    homes = _homes(Path(config["docs_dir"]))

    def included(match: re.Match[str]) -> str:
        text = included_text(match)
        if Path(match["file"]).suffix in _LANGUAGES:
            return text
        return _LINK.sub(lambda link: _moved(link, match["file"], where, homes), text)

    return INCLUDE.sub(included, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    for url in fetched_from_elsewhere(output):
        log.warning("%s would fetch %s", page.file.src_uri, url)
    return output


def on_post_build(config: Any) -> None:
    for sheet in Path(config["site_dir"]).rglob("*.css"):
        for url in _CSS_URL.findall(sheet.read_text("utf-8")):
            log.warning("%s would fetch %s", sheet.name, url)


def included_text(match: re.Match[str]) -> str:
    """Return the Markdown that a match of `INCLUDE` stands for; its links are those of the file.

    Raises:
        ValueError: the file has no such heading.
    """
    path = ROOT / match["file"]
    text = path.read_text("utf-8")
    if path.suffix in _LANGUAGES:
        return _fenced(text, _LANGUAGES[path.suffix])
    return part_of(notebook_text(text) if path.suffix == ".ipynb" else text, match["heading"])


def notebook_text(notebook: str) -> str:
    """Return a Jupyter notebook's cells and their outputs, as Markdown."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        parts.append(_fenced(source, "python") if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", ()):
            parts.append(_fenced("".join(output.get("text") or output["data"]["text/plain"])))
    return "\n\n".join(parts) + "\n"


def _fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def part_of(text: str, heading: str | None) -> str:
    """What is below a heading, None: the first; its own headings begin at the second level.

    Raises:
        ValueError: there is no such heading.
    """
    kept: list[str] = []
    level = 0
    for line, marks, title in _lines(text):
        if level and marks and marks <= level:
            break
        if level:
            kept.append("#" * (marks - level + 1) + line[marks:] if marks else line)
        elif marks and heading in (None, title):
            level = marks
    if not level:
        raise ValueError(f"there is no heading {heading!r}")
    return "\n".join(kept).strip() + "\n"


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub and mkdocs name them."""
    return {_anchor(title) for _, marks, title in _lines(text) if marks}


def links(text: str) -> Iterator[tuple[str, str]]:
    """The file, empty for the same one, and the anchor of each link that does not leave the repository."""
    for match in _LINK.finditer(text):
        yield match["file"], (match["anchor"] or "").removeprefix("#")


def fetched_from_elsewhere(html: str) -> list[str]:
    """What a browser would fetch from another host to show the page; links that a reader may follow do not count."""
    parser = _Fetched()
    parser.feed(html)
    return parser.found


class _Fetched(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        values = [given.get(name, "") for name in _FETCHED]
        if tag == "link" and given.get("rel") not in _NOT_FETCHED:
            values.append(given.get("href", ""))
        self.found += [value for value in values if re.match(r"(?:https?:)?//", value)]
        self.found += _CSS_URL.findall(given.get("style", ""))
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += _CSS_URL.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


def _lines(text: str) -> Iterator[tuple[str, int, str]]:
    """Each line; of a heading how many marks it has, and its title."""
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        found = None if fenced else _HEADING.fullmatch(line)
        yield line, len(found[1]) if found else 0, found[2] if found else ""


def _anchor(title: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _homes(docs: Path) -> dict[tuple[str, str], str]:
    """Where on the site a heading of a file is, by the file's name and the heading's anchor; "" stands for the file."""
    homes: dict[tuple[str, str], str] = {}
    for path in sorted(docs.rglob("*.md")):
        page = path.relative_to(docs).as_posix()
        for match in INCLUDE.finditer(path.read_text("utf-8")):
            file, heading = match["file"], match["heading"]
            shown = anchors(included_text(match))
            homes |= {(file, anchor): f"{page}#{anchor}" for anchor in shown}
            homes[file, _anchor(heading or "")] = page
    return homes


def _moved(link: re.Match[str], file: str, page: str, homes: dict[tuple[str, str], str]) -> str:
    """The link of a file, as it has to be in a page that includes it."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(file), link["file"])) if link["file"] else file
    anchor = link["anchor"] or ""
    if target.startswith("docs/"):
        home = target.removeprefix("docs/") + anchor
    else:
        home = homes.get((target, anchor.removeprefix("#"))) or homes.get((target, "")) or _FIRST_PAGE
    home_page, mark, anchor = home.partition("#")
    return f"]({posixpath.relpath(home_page, posixpath.dirname(page) or '.')}{mark}{anchor})"
