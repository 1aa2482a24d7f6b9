"""Which `java` runs the stack, and the command lines it is run with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from tests.rigs.stack.errors import StackError

OLDEST_JAVA = 17
"""Spark 4.2 and Kafka 4.3 both ask for it."""
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
"""For tests: the JVM's second compiler costs more than it gains within minutes.

Without the code cache setting the JVM has 48 MB for code. Spark fills them within minutes, and code is compiled again.
On two cores one thread collects garbage at least as fast as several.
"""


@cache
def java_executable() -> str:
    """Return the path of a `java` that is new enough: from `JAVA_HOME`, or else on `PATH`.

    Raises:
        StackError: there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if executable is None or not os.access(executable, os.X_OK):
        raise StackError(f"no java at {executable or 'PATH'}: install a Java {OLDEST_JAVA} runtime, or set JAVA_HOME")
    banner = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', banner)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise StackError(f"{executable} is not Java {OLDEST_JAVA} or newer; it says: {banner.strip()[:200]}")
    return executable


def java_command(
    main_class: str, class_path: Iterable[Path], arguments: Sequence[str], jvm_options: Sequence[str] = ()
) -> list[str]:
    """The command line that runs `main_class`."""
    joined = os.pathsep.join(str(path) for path in class_path)
    return [java_executable(), *jvm_options, "-cp", joined, main_class, *arguments]
