"""Services as processes: ready, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import ServiceProcess, free_ports, wait_until

ROOT = Path(__file__).parents[3]
SLEEP = ["sleep", "60"]
IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
    except FileNotFoundError:
        return True


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(5))) == 5


def test_a_process_that_ends_at_once_shows_the_end_of_its_log(tmp_path: Path) -> None:
    process = ServiceProcess("liar", ["sh", "-c", "echo out of luck; exit 3"], tmp_path / "log")
    with pytest.raises(StackError, match="liar ended with status 3") as raised:
        process.start(lambda: False)
    assert "out of luck" in raised.value.__notes__[0]


def test_a_process_that_never_gets_ready_is_not_left_running(tmp_path: Path) -> None:
    process = ServiceProcess("sleeper", SLEEP, tmp_path / "log")
    with pytest.raises(StackError, match="in vain for: sleeper to be ready"):
        process.start(lambda: False, timeout=0.3)
    assert gone(process.pid)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = ServiceProcess("deaf", [sys.executable, "-c", IGNORES_SIGTERM], log)
    process.start(lambda: log.read_text() == "up\n")
    process.stop(grace=0.2)
    assert gone(process.pid) and not process.running


def test_a_service_dies_with_a_python_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tests.rigs.stack.processes import ServiceProcess\n"
        f"process = ServiceProcess('sleeper', {SLEEP!r}, Path(sys.argv[1]))\n"
        "process.start(lambda: True)\nprint(process.pid, flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), "the service to die", pause=0.05)


def test_waiting_says_what_it_waited_for() -> None:
    with pytest.raises(StackError, match="waited 0 s in vain for: the moon"):
        wait_until(lambda: False, "the moon", timeout=0.1, pause=0.01)
