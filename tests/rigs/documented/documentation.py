"""README and the pages of docs, run block by block."""

from __future__ import annotations

from collections.abc import Mapping

from tests.rigs.documented.blocks import Block, LogIn, Printed, Program, Run, Settings, Use, pages
from tests.rigs.documented.site import Site
from tests.rigs.documented.uses import AFTER, README, USES
from tests.rigs.documented.workspace import Workspace

_MADE = ("orders.properties", "spark.conf")
"""Files that the quick start makes."""


class Documentation:
    """The pages in one workspace; each page begins with the files of the quick start."""

    def __init__(self, workspace: Workspace, site: Site) -> None:
        self._workspace, self._site = workspace, site
        self._run: set[str] = set()
        self._made: Mapping[str, str] = {}

    def run(self, page: str) -> None:
        """Run a page once, after the pages whose files it needs.

        Raises:
            DocumentationError: a block does not do what the page says.
        """
        if page in self._run:
            return
        self._run.add(page)
        if page != README:
            self.run(README)
            self.run(AFTER.get(page, README))
        for name, text in self._made.items():
            (self._workspace.folder / name).write_text(text)
        self._workspace.printed = ""
        blocks = iter(pages()[page])
        for use in USES[page]:
            self._do(page, use, next(blocks) if isinstance(use, Use) else None)
        if page == README:
            self._made = {name: (self._workspace.folder / name).read_text() for name in _MADE}

    def _do(self, page: str, use: Use | LogIn | str, block: Block | None) -> None:
        workspace = self._workspace
        match use, block:
            case str(), _:
                workspace.run(use).expect(0, page)
            case LogIn(), _:
                workspace.put(use.file, self._site.login(use.user), use.over)
            case Run(), Block():
                workspace.run_block(block, use)
            case Settings(), Block():
                workspace.put(use.file, block.text, use.over)
            case Program(), Block():
                workspace.run_program(block, use)
            case Printed(), Block():
                workspace.check_printed(block, use)
