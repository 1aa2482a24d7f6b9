"""What the bench's table says of measured seconds, and how its slow S3 endpoint is slow."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.rigs.bench.__main__ import wanted
from tests.rigs.bench.batch_reads import Growth, straight
from tests.rigs.bench.figures import Row, Spread, kept
from tests.rigs.bench.shapes import SHAPES, scaled
from tests.rigs.bench.slow_proxy import SlowProxy
from tests.rigs.bench.turns import BROKER, JVM, PYTHON, S3, Claim, Contender, kind_of, rows_of, take_turns

# A process of its own: what other tests left below this one may end while it is measured.
_ONE_CHILD = """
import json, subprocess, sys
from tests.rigs.bench.turns import core_seconds, since
used = "import os\\nwhile sum(os.times()[:2]) < 0.3: pass\\nprint(flush=True)\\ninput()"
before = core_seconds()
with subprocess.Popen([sys.executable, "-c", used], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    running = since(before)
    child.communicate(b"\\n")
print(json.dumps({"running": running, "ended": since(before)}))
"""


def contender(name: str, seconds: list[float], records: int, order: list[str]) -> Contender:
    upcoming = iter(seconds)

    def run() -> float:
        order.append(name)
        return next(upcoming)

    return Contender(run, records)


def rows(order: list[str] | None = None) -> list[Row]:
    order = [] if order is None else order
    contenders = {
        "ours": contender("ours", [9.0, 1.0, 2.0, 4.0], 100, order),
        "theirs": contender("theirs", [9.0, 3.0, 3.0, 3.0], 50, order),
    }
    contenders["ours"].tell(memory=5.0)
    contenders["ours"].tell(memory=3.0)
    return rows_of([Claim("A", "ours", "theirs", 2, 4)], contenders, runs=3)


def test_contenders_take_turns_run_by_run_and_a_first_round_that_differs_does_not_count() -> None:
    order: list[str] = []
    (row,) = rows(order)
    assert order == ["ours", "theirs"] * 4
    assert row.seconds == Spread(1.0, 2.0, 4.0) and row.against_seconds == Spread(3.0, 3.0, 3.0)


@pytest.mark.parametrize(
    ("ours", "theirs", "counted"),
    [
        ([1.0, 1.05], [2.0, 1.95], [1.0, 1.05]),
        ([1.0, 1.06, 1.03], [2.0, 2.0, 2.0], [1.06, 1.03]),
        ([1.0, 1.0, 1.0], [3.0, 2.0, 2.0], [1.0, 1.0]),
    ],
)
def test_rounds_end_once_two_in_a_row_agree(ours: list[float], theirs: list[float], counted: list[float]) -> None:
    contenders = {"ours": contender("ours", ours, 1, []), "theirs": contender("theirs", theirs, 1, [])}
    assert take_turns(contenders, 3)["ours"] == counted
    assert len(contenders["ours"].spent) == len(counted)


def test_a_ratio_is_that_of_runs_side_by_side_for_a_record() -> None:
    (row,) = rows()
    assert row.ratio == Spread(1.5, 3.0, 6.0)
    assert row.verdict == "floor" and row.more == {"memory": 5.0}


def test_a_process_is_told_by_what_it_runs() -> None:
    commands = (
        "java -cp a:b kafka.Kafka c",
        "/opt/java -Xmx1g org.gaul.s3proxy.Main",
        "/a/versitygw posix",
        "java -x y",
    )
    assert [kind_of(each.split()) for each in commands] == [BROKER, S3, S3, JVM]
    assert kind_of(["python3", "-m", "pyspark.daemon"]) == PYTHON


def test_core_seconds_are_those_of_processes_below_this_one() -> None:
    measured = json.loads(subprocess.check_output([sys.executable, "-c", _ONE_CHILD], text=True))
    assert measured["running"][PYTHON] >= 0.29 and measured["ended"]["jobs"] >= 0.29


def test_what_is_kept_has_the_promised_names(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    kept(rows(), file, {"load": [1, 2, 3]})
    found = json.loads(file.read_text())
    assert found["machine"] == {"load": [1, 2, 3]}
    (row,) = found["rows"]
    names = {"workload", "subject", "against", "seconds", "against_seconds", "ratio", "floor", "aim"}
    assert names <= row.keys() and row["seconds"] == {"min": 1.0, "median": 2.0, "max": 4.0}


def test_parts_are_chosen_by_their_names() -> None:
    assert list(wanted("A")) == ["A"]
    assert list(wanted("C,H-A")) == ["C-lz4", "C-zstd", "H-A"]
    assert {"H-A", "H-K"} < wanted("H").keys()
    assert wanted("").keys() > {"decode", "A", "H-A", "O"}
    with pytest.raises(SystemExit, match="no workload is named Z"):
        wanted("A,Z")


def test_a_topics_name_tells_its_shape() -> None:
    assert len({shape.topic for shape in (*SHAPES.values(), *scaled(0.5).values())}) == 2 * len(SHAPES)
    assert scaled(1.0) == SHAPES


def test_the_slow_endpoint_waits_for_the_first_byte_and_then_keeps_its_rate() -> None:
    slept: list[float] = []
    clock = count(step=0)  # time passes for nobody
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = SlowProxy(0.25, 1000, now=lambda: float(next(clock)), sleep=slept.append)
        proxy.upstream = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client:
            service, _ = server.accept()
            with service:
                for _ in range(2):
                    client.sendall(b"question")
                    assert service.recv(100) == b"question"
                    service.sendall(b"x" * 500)
                    assert client.recv(500, socket.MSG_WAITALL) == b"x" * 500
                service.sendall(b"y" * 100)
                assert client.recv(100, socket.MSG_WAITALL) == b"y" * 100
        proxy.close()
    assert slept[:2] == [0.25, 0.25] and slept[2] == pytest.approx(0.75)


def test_growth_is_straight_where_a_record_takes_as_long_as_one_of_the_smaller_topic() -> None:
    seconds = {"start": [1.0, 1.0], "few": [3.0, 2.0], "many": [33.0, 21.0]}
    row = straight("S", "subject", Growth("few", "many", "start", 16), seconds)
    assert (row.ratio.min, row.ratio.max) == (0.8, 1)
    assert row.against_seconds.max == 33
