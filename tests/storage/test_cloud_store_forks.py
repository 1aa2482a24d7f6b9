"""obstore's threads and forks: a fork reads if its parent has not, and is refused if its parent has."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.storage.clouds import CLOUDS, part
from tests.storage.scripted_http import ScriptedHttp

PROGRAM = """
import json, os, sys
from tiered_stream.errors import StorageError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

store = open_store(StorageOptions(**json.loads(sys.argv[1])))
if sys.argv[2] == "read":
    store.get("key", ByteRange(0, 4))
fork = os.fork()
if not fork:
    try:
        print(store.get("key", ByteRange(0, 4)) == b"data", flush=True)
    except StorageError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(fork, 0)
"""


@pytest.mark.parametrize(
    ("parent", "said"),
    [
        ("wait", "True"),
        (
            "read",
            "this process was forked from a process that had read from the storage, so it cannot read: start it "
            'without a fork, in multiprocessing by get_context("spawn")',
        ),
    ],
)
def test_a_fork_reads_unless_its_parent_has_read(parent: str, said: str) -> None:
    with ScriptedHttp([part(b"data")]) as server:
        options = {
            name: value for name, value in asdict(CLOUDS["gcs"].options(server.url)).items() if isinstance(value, str)
        }
        command = [sys.executable, "-c", PROGRAM, json.dumps(options), parent]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == said
