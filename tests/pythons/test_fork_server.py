"""Python processes of the driver, forked from one that has everything imported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.delta.archive import ODD, everything
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import ROOT, SPARK_SUBMIT, spark_environment, write_conf
from tiered_stream.pythons import forked_python as forked_python_module
from tiered_stream.pythons.fork_server import (
    MAX_REQUEST_BYTES,
    Request,
    _end_with,
    _wait_for_go,
    parse_request,
    read_at_start,
    receive_request,
)
from tiered_stream.pythons.forked_python import ServedPython, forked_python
from tiered_stream.pythons.forks import may_fork

GIVEN = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
_SAY = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "first path": sys.path[0],
    "greeting": os.environ.get("GREETING"), "read": sys.stdin.read(), "imported": "boto3" in sys.modules,
}))
print("said", file=sys.stderr)
sys.exit(7)
"""
_DRAW = "import numpy, random\nprint(numpy.random.random(), random.random())"
_WAIT = "import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPython]:
    with closing(ServedPython(GIVEN, tasks=False)) as found:
        folder = tmp_path_factory.mktemp("served")
        # On a busy machine, the server imports for longer than its clients wait.
        while run(found, folder, "import sys\nprint('boto3' in sys.modules)").stdout != "True\n":
            pass
        yield found


def command(served: ServedPython, folder: Path, source: str, *arguments: str) -> list[str]:
    """What runs a module with that source, in `folder`."""
    (folder / "told.py").write_text(source)
    return [str(served.program), "-m", "told", *arguments]


def run(
    served: ServedPython, folder: Path, source: str, *arguments: str, given: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a module with that source in `folder`, with `given` as standard input and more variables."""
    return subprocess.run(
        command(served, folder, source, *arguments), cwd=folder, env=environment(**more), input=given,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **GIVEN, **more}


def say(served: ServedPython, folder: Path, warned: str = "", **more: str) -> dict[str, object]:
    """What `_SAY` finds, which has to have ended as it wants to; its standard error is `warned` before."""
    done = run(served, folder, _SAY, "a", "b c", given="given", **more)
    assert done.returncode == 7
    assert done.stderr.startswith(warned) and done.stderr.endswith("said\n")
    assert done.stderr.count("\n") == 1 + bool(warned)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def expected(folder: Path, *, imported: bool, greeting: str | None = None) -> dict[str, object]:
    return {
        "arguments": ["a", "b c"], "name": "__main__", "folder": str(folder), "first path": str(folder),
        "greeting": greeting, "read": "given", "imported": imported,
    }  # fmt: skip


def test_a_fork_is_what_a_python_of_its_own_would_be_but_has_the_imports(served: ServedPython, tmp_path: Path) -> None:
    found = say(served, tmp_path, GREETING="hello")
    assert found == expected(tmp_path, imported=True, greeting="hello")
    assert say(served, tmp_path) == expected(tmp_path, imported=True)  # of the fork before it nothing is left


@pytest.mark.parametrize(
    "other", [{"PYTHONHASHSEED": "1"}, {"LC_ALL": "C"}, {"LD_PRELOAD": ""}, {"OMP_NUM_THREADS": "2"}]
)
def test_what_would_start_otherwise_is_a_python_of_its_own(
    served: ServedPython, tmp_path: Path, other: Mapping[str, str]
) -> None:
    assert say(served, tmp_path, **other) == expected(tmp_path, imported=False)


def test_what_is_no_module_is_run_by_a_python_of_its_own(served: ServedPython) -> None:
    ask = [str(served.program), "-c", "import sys; print('boto3' in sys.modules)"]
    assert subprocess.check_output(ask, env=environment(), text=True) == "False\n"


def kill(served: ServedPython) -> None:
    served._process.kill()
    served._process.wait()


def remove_folder(served: ServedPython) -> None:
    shutil.rmtree(served._folder)


def stop(served: ServedPython) -> None:
    served._process.send_signal(signal.SIGSTOP)


def fill(served: ServedPython) -> None:
    """Connect until nobody else can: the server is stopped, and takes none."""
    stop(served)
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(str(served._address))
        except BlockingIOError:
            return
        _FILLING.append(client)


_FILLING: list[socket.socket] = []


@pytest.mark.parametrize("harm", [kill, remove_folder, stop, fill])
def test_whatever_becomes_of_its_server_the_program_is_a_python_and_says_so_once(
    tmp_path: Path, harm: Callable[[ServedPython], None]
) -> None:
    with closing(ServedPython(GIVEN, tasks=False)) as served:
        harm(served)
        warned = "tiered_stream: Python processes start without the fork server, which does not respond: "
        assert say(served, tmp_path, warned) == expected(tmp_path, imported=False)
        assert say(served, tmp_path) == expected(tmp_path, imported=False)
    while _FILLING:
        _FILLING.pop().close()


def test_a_program_without_the_package_is_a_python_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_python_module, "_CLIENT", tmp_path / "in an archive.zip" / "fork_client.py")
    with closing(ServedPython(GIVEN, tasks=False)) as served:
        assert say(served, tmp_path) == expected(tmp_path, imported=False)


def test_a_fork_that_nobody_wants_any_more_runs_nothing() -> None:
    for sent in (b"", b"x", b"!"):  # the last without descriptors
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(sent)
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(SystemExit):
                _wait_for_go(ours)


def test_a_fork_whose_stand_in_has_gone_before_it_can_be_told_ends() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(SystemExit):
        _end_with(ours)


def test_a_server_whose_socket_has_a_large_number_forks(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("import sys\nprint('boto3' in sys.modules)")
    program = rf"""
import os, resource, subprocess
from tiered_stream.pythons.forked_python import ServedPython
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
while os.dup(2) < 1024:
    pass
served = ServedPython({GIVEN!r}, tasks=False)
run = [served.program, "-m", "told"]
# On a busy machine, the server imports for longer than its clients wait.
while subprocess.check_output(run, env={{**os.environ, **{GIVEN!r}}}, cwd={str(tmp_path)!r}) != b"True\n":
    pass
served.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_forks_draw_random_numbers_of_their_own(tmp_path: Path) -> None:
    """NumPy has its generator since the imports, of which all are copies."""
    with closing(ServedPython(GIVEN, tasks=True)) as served:
        drawn = [run(served, tmp_path, _DRAW).stdout.split() for _ in range(3)]
    assert len(drawn[0]) == 2 and all(len(set(numbers)) == 3 for numbers in zip(*drawn, strict=True))


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_ends_with_the_process_that_stands_in_for_it(
    served: ServedPython, tmp_path: Path, with_signal: signal.Signals
) -> None:
    waiting = command(served, tmp_path, _WAIT)
    process = subprocess.Popen(waiting, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    fork = int(process.stdout.readline())
    assert Path(f"/proc/{fork}/cmdline").read_bytes().rstrip(b"\0").split(b"\0") == [b"python", b"-m", b"told"]
    process.send_signal(with_signal)
    process.communicate()
    wait_until(lambda: not Path(f"/proc/{fork}").exists(), "the fork to end")


def test_a_fork_that_becomes_another_program_is_waited_for(served: ServedPython, tmp_path: Path) -> None:
    becomes = "import os\nos.execl('/bin/sh', 'sh', '-c', 'read line; echo $line')"
    assert run(served, tmp_path, becomes, given="still here\n").stdout == "still here\n"


def test_a_fork_that_is_killed_ends_its_process_with_an_error(served: ServedPython, tmp_path: Path) -> None:
    assert run(served, tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)").returncode == 1


def test_a_server_and_its_folder_go_with_the_driver_however_it_ends() -> None:
    program = rf"""
import os
from tiered_stream.pythons.forked_python import ServedPython
served = ServedPython({GIVEN!r}, tasks=False)
print(served._folder, served._process.pid, sep="\n", flush=True)
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    folder, pid = done.stdout.splitlines()
    wait_until(lambda: not Path(folder).exists() and not Path(f"/proc/{pid}").exists(), "the server to end")


def test_a_sick_request_costs_itself_only(served: ServedPython, tmp_path: Path) -> None:
    for sent in (b"", b"\1", b"\xff\xff\xff\xff", b"\4\0\0\0abcd", b"\3\0\0\0a\0b"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(served._address))
            client.sendall(sent)
    assert say(served, tmp_path) == expected(tmp_path, imported=True)


def test_nobody_else_can_reach_the_socket(served: ServedPython) -> None:
    assert served._folder.stat().st_mode & 0o777 == 0o700


def test_there_is_one_server_for_the_same_variables() -> None:
    first = forked_python(GIVEN, tasks=False)
    assert first is not None
    assert forked_python(GIVEN, tasks=False) == first
    assert forked_python({**GIVEN, "PYTHONHASHSEED": "3"}, tasks=False) not in (None, first)


def test_a_server_for_other_variables_takes_the_place_of_the_one_before() -> None:
    before = forked_python({**GIVEN, "PYTHONHASHSEED": "8"}, tasks=False)
    former = forked_python_module._served
    assert before is not None and former is not None and former.runs
    assert forked_python({**GIVEN, "PYTHONHASHSEED": "9"}, tasks=False) not in (None, before)
    assert not former.runs and not former._folder.exists()
    program = [before, "-c", "print('it goes on')"]  # a query that was started before has it
    assert subprocess.check_output(program, env=environment(), stderr=subprocess.DEVNULL, text=True) == "it goes on\n"


def test_a_server_that_cannot_be_forked_leaves_no_folder(tmp_path: Path) -> None:
    started = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "sitecustomize.py").write_text(started)
    given = {**GIVEN, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    with closing(ServedPython(given, tasks=False)) as found:
        assert found._process.wait() == 1
        assert not found._folder.exists()


def test_a_server_that_lacks_an_import_says_so_and_forks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    with closing(ServedPython({**GIVEN, "PYTHONPATH": path}, tasks=False)) as found:
        # On a busy machine, the server imports for longer than its clients wait.
        while run(found, tmp_path, "import sys\nprint('pyspark' in sys.modules)", PYTHONPATH=path).stdout != "True\n":
            pass
    line = "the fork server could not import its modules, so each Python process imports them: not here\n"
    assert capfd.readouterr().err == line


def test_a_server_that_has_ended_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**GIVEN, "PYTHONHASHSEED": "6"}
    assert forked_python(given, tasks=False) is not None
    served = forked_python_module._served
    assert served is not None
    kill(served)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert forked_python(given, tasks=False) is None


def test_a_server_that_is_about_to_end_without_its_folder_is_not_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**GIVEN, "PYTHONHASHSEED": "10"}
    assert forked_python(given, tasks=False) is not None
    served = forked_python_module._served
    assert served is not None
    remove_folder(served)
    waited = served._process.wait

    def end(timeout: float | None = None) -> int:
        served._process.kill()  # it ends only once it is waited for
        return waited(timeout)

    monkeypatch.setattr(served._process, "wait", end)
    assert forked_python(given, tasks=False) is None
    assert caplog.messages == []


def test_a_server_whose_socket_was_removed_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forked_python_module, "_SECONDS_TO_END", 0)
    given = {**GIVEN, "PYTHONHASHSEED": "7"}
    before = forked_python(given, tasks=False)
    served = forked_python_module._served
    assert before is not None and served is not None
    remove_folder(served)
    again = forked_python(given, tasks=False)
    assert again not in (None, before)
    assert caplog.messages == ["somebody has removed the fork server's socket: another server is started"]
    former = [before, "-c", "print('it goes on')"]  # a query that was started before has it
    assert subprocess.check_output(former, env=environment(), stderr=subprocess.DEVNULL, text=True) == "it goes on\n"


def test_where_a_socket_has_no_place_there_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (long := tmp_path / ("long" * 30)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert forked_python({**GIVEN, "PYTHONHASHSEED": "4"}, tasks=False) is None
    assert list(long.iterdir()) == []


def test_where_programs_may_not_be_run_no_server_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 126))
    monkeypatch.setattr(subprocess, "Popen", None)
    assert forked_python({**GIVEN, "PYTHONHASHSEED": "5"}, tasks=False) is None
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_read_as_it_was_laid_out() -> None:
    fields = b"\0".join([b"2", b"/tmp", b"-m", b"told", b"A=1", b"B=x=y", b"C="])
    variables = {b"A": b"1", b"B": b"x=y", b"C": b""}
    assert parse_request(fields) == Request(b"/tmp", ("-m", "told"), variables)


@pytest.mark.parametrize("fields", [b"", b"x\0/tmp", b"3\0/tmp\0-m\0told", b"-1\0/tmp\0-m", b"1"])
def test_malformed_requests_are_refused(fields: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_request(fields)


def test_a_request_that_is_too_large_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((MAX_REQUEST_BYTES + 1).to_bytes(4, "little"))
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match="a request of 8388609 bytes"):
            receive_request(ours)


def test_variables_that_are_read_later_do_not_matter() -> None:
    started = {b"PYTHONPATH": b"/a", b"LANG": b"C.UTF-8", b"NUMBA_CACHE_DIR": b"/b"}
    later = {b"PYTHON_WORKER_FACTORY_PORT": b"1", b"SPARK_LOCAL_DIRS": b"/c", b"AWS_PROFILE": b"d", b"TZ": b"UTC"}
    assert read_at_start({**started, **later}) == started


@pytest.mark.parametrize(
    ("threads", "forks"), [([], True), (["jemalloc_bg_thd"], True), (["jemalloc_bg_thd", "OpenBLAS"], False)]
)
def test_a_process_with_threads_of_others_is_not_forked(tmp_path: Path, threads: list[str], forks: bool) -> None:
    for number, name in enumerate(["python3", *threads]):
        (tmp_path / str(os.getpid() + number)).mkdir()
        (tmp_path / str(os.getpid() + number) / "comm").write_text(f"{name}\n")
    assert may_fork(tmp_path) is forks


_READ = """
import os, sys
from pathlib import Path
from tests.delta.archive import ODD, options
from tests.rigs.stack.spark import spark_session

spark = spark_session("forks", (), {"spark.tiered_stream.fork.server.enabled": sys.argv[1]})
rows = spark.read.format("tiered_stream").options(**options(ODD)).load().count()
commands = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\\0").decode().split("\\0")
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        own = os.getsid(int(pid)) == os.getsid(0)
    except OSError:
        continue
    if own:
        commands[pid] = words, parent
servers = {pid for pid, (words, _) in commands.items() if "tiered_stream.pythons.fork_server" in words}
forked = sorted(words[-1].rpartition(".")[2] for words, parent in commands.values() if parent in servers)
spark.stop()
print("found", forked, rows)
"""


def spark_program(source: str, argument: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", source, argument], capture_output=True, text=True, check=False, env=spark_environment(),
        start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.mark.starts_spark
@pytest.mark.parametrize(
    ("enabled", "forked"),
    [
        ("true", ["create_data_source", "plan_data_source_read", "worker"]),
        pytest.param("false", [], marks=pytest.mark.slow),
    ],
)
def test_planners_and_a_local_masters_tasks_are_forked_and_every_row_is_read(enabled: str, forked: list[str]) -> None:
    done = spark_program(_READ, enabled)
    found = next(line for line in done.stdout.splitlines() if line.startswith("found"))
    assert found == f"found {forked} {everything(ODD).num_rows}"


_HARMED = """
import sys
from tests.pythons import test_fork_server
from tests.delta.archive import ODD, options
from tests.rigs.stack.spark import spark_session
from tiered_stream import register
from tiered_stream.pythons import forked_python

spark = spark_session("harm", (), {})
register(spark)
for number in range(20):
    if number == 3:
        getattr(test_fork_server, sys.argv[1])(forked_python._served)
    stream = spark.readStream.format("tiered_stream").options(**options(ODD)).load()
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    print("rows", sum(progress.numInputRows for progress in query.recentProgress), flush=True)
spark.stop()
"""


@pytest.mark.starts_spark
@pytest.mark.slow
@pytest.mark.parametrize("harm", ["kill", "remove_folder", "stop", "fill"])
def test_whatever_becomes_of_the_server_no_query_fails(harm: str) -> None:
    done = spark_program(_HARMED, harm)
    rows = [line for line in done.stdout.splitlines() if line.startswith("rows")]
    assert rows == [f"rows {everything(ODD).num_rows}"] * 20
    assert done.stderr.count("Python processes start without") == 1


_SUBMITTED = """
from pyspark.sql import SparkSession
from tiered_stream import register
from tiered_stream.pythons import forked_python
from tiered_stream.spark.executor_python import forgo_source_lookup, start_pythons

start_pythons()
early = forked_python._served
spark = SparkSession.builder.getOrCreate()
if {forgo}:
    forgo_source_lookup(spark)
register(spark)
by_name = spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists("tiered_stream")
of_others = spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists("found_by_spark")
print("found", early is not None and early is forked_python._served, by_name, of_others)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.starts_spark
@pytest.mark.parametrize("forgo", [True, False])
def test_a_jobs_server_starts_before_spark_and_its_look_up_of_others_sources_can_be_spared(
    tmp_path: Path, forgo: bool
) -> None:
    (tmp_path / "pyspark_others.py").write_text(
        "from pyspark.sql.datasource import DataSource\n"
        "class DefaultSource(DataSource):\n"
        "    @classmethod\n"
        "    def name(cls):\n"
        "        return 'found_by_spark'\n"
    )
    (tmp_path / "job.py").write_text(_SUBMITTED.format(forgo=forgo))
    write_conf(tmp_path / "spark.conf", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
    given = spark_environment()
    given["PYTHONPATH"] = os.pathsep.join((given["PYTHONPATH"], str(tmp_path)))
    # By its name: Spark looks for no sources where there is a blank in the path of the Python.
    python = Path(sys.executable)
    given |= {"PYSPARK_PYTHON": python.name, "PATH": os.pathsep.join((str(python.parent), given["PATH"]))}
    done = subprocess.run(
        [str(SPARK_SUBMIT), "--properties-file", str(tmp_path / "spark.conf"), str(tmp_path / "job.py")],
        capture_output=True, text=True, check=False, env=given,
    )  # fmt: skip
    assert f"found True True {not forgo}" in done.stdout, done.stderr[-3000:]
