"""README and docs are run as they are written, and so is each command with each settings file in conf."""

from __future__ import annotations

import os

import pytest

from tests.rigs.documented.blocks import Printed, Program, Run, Settings
from tests.rigs.documented.documentation import Documentation
from tests.rigs.documented.settings_files import SPARK_FILES, run_as_it_is, run_filled_in
from tests.rigs.documented.site import Site
from tests.rigs.documented.uses import USES
from tests.rigs.documented.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.starts_spark]

_WANTED = os.environ.get("DOCUMENTED", "").split()
PAGES = [
    page
    for page, uses in USES.items()
    if page in (_WANTED or USES) and any(isinstance(use, Run | Settings | Program | Printed) for use in uses)
]
FILES = [name for name in SPARK_FILES if name in (_WANTED or SPARK_FILES)]


@pytest.fixture(scope="module")
def workspace(documented: Site, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("user") / "tiered_stream", documented)


@pytest.fixture(scope="module")
def documentation(workspace: Workspace, documented: Site) -> Documentation:
    return Documentation(workspace, documented)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(documentation: Documentation, page: str) -> None:
    documentation.run(page)


@pytest.mark.parametrize("name", FILES)
def test_each_command_names_what_is_to_be_filled_in(workspace: Workspace, name: str) -> None:
    assert run_as_it_is(workspace, name) == []


@pytest.mark.parametrize("name", FILES)
def test_each_command_works_with_a_settings_file_that_is_filled_in(workspace: Workspace, name: str) -> None:
    run_filled_in(workspace, name)


def test_a_gateway_names_what_is_to_be_filled_in_and_tries_again(workspace: Workspace) -> None:
    ended = workspace.run(
        "tiered-stream gateway --config conf/gateway.properties", until=r"kafka\.security\.protocol to"
    )
    ended.expect(0, "gateway.properties")


def test_watch_names_an_address_that_does_not_respond(workspace: Workspace) -> None:
    ended = workspace.run("tiered-stream watch 127.0.0.1:9404 --once")
    ended.expect(1, "watch")
    assert "127.0.0.1:9404" in ended.output
